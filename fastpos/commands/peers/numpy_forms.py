"""NumPy as it is used today, in a process like those of the others."""

from ..workloads import COPY, MADE, READY, Array, Contest
from .job import Form, Job


def ready(job: Job) -> Form:
    """Rows of the table given."""
    return _form(job, READY)


def made(job: Job) -> Form:
    """Rows made (sinusoids, rotations) or gathered (learned) in the call."""
    return _form(job, MADE)


def _form(job: Job, contender: str) -> Form:
    contest = Contest(job.case, job.start)

    def results() -> tuple[Array, ...]:
        contest.contenders[COPY]()
        contest.contenders[contender]()
        return contest.targets

    return Form(contest.contenders[contender], results)
