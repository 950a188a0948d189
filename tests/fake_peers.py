"""Peers that do what no peer should: for tests of ``fastpos bench --against``, in whose worker processes they run."""

import os
import sys
import time

import numpy as np

from fastpos.commands.peers import numpy_forms
from fastpos.commands.peers.job import Form


def right(job):
    """A peer without fault that prints where answers go."""
    print("not an answer")
    return numpy_forms.ready(job)


def raises(job):
    """An exception with a text of two lines."""
    raise RuntimeError("no such instruction\nhere")


def dies(job):
    """A process that says something and is gone."""
    print("Illegal something", file=sys.stderr)
    os._exit(7)


def hangs(job):
    """No answer."""
    time.sleep(600)


def wrong(job):
    """Inputs as they were."""
    return Form(lambda: None, lambda: job.inputs)


def not_numbers(job):
    """NaN in one place."""
    results = [x.copy() for x in numpy_forms.ready(job).results()]
    results[-1][-1, -1, -1] = np.nan
    return Form(lambda: None, lambda: tuple(results))


def misshapen(job):
    """Heads before tokens."""
    return Form(lambda: None, lambda: tuple(x.swapaxes(1, 2) for x in numpy_forms.ready(job).results()))


def dies_later(job):
    """Right results, and the end during the bursts."""
    return _later(job, lambda: os._exit(9))


def hangs_later(job):
    """Right results, and silence during the bursts."""
    return _later(job, lambda: time.sleep(600))


def _later(job, act):
    form = numpy_forms.ready(job)
    done = []

    def call():
        done.append(0)
        if len(done) > 3:
            act()
        # So long that a burst is one call, and warming up is two.
        time.sleep(0.03)

    return Form(call, form.results)
