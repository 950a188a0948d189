"""``fastpos bench --against``: every peer computes the formula, and what a peer does wrong is said and ends with it."""

import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from time import perf_counter, sleep

import numpy as np
import oracle
import pytest
from children import child
from typer.testing import CliRunner

from fastpos import Learned, cli, threads
from fastpos.commands import against, timing
from fastpos.commands.peers import catalogue, process
from fastpos.commands.peers.catalogue import PEERS, Peer, Result, Table
from fastpos.commands.peers.process import PeerFailed, PeerProcess
from fastpos.commands.workloads import DECODE, LEARNED, PREFILL, SINUSOIDAL, Case

START = 5
DECODE_NAME = "decode-b1-s1-float32-halves"
SMALL = (
    Case(PREFILL, 2, 5, 16, "float32", False, False, (4, 2)),
    Case(PREFILL, 2, 5, 16, "float32", False, True, (4, 2)),
    Case(DECODE, 1, 1, 16, "bfloat16", False, False, (4, 2)),
    Case(SINUSOIDAL, 2, 5, 16, "float32", False),
    Case(SINUSOIDAL, 2, 5, 16, "bfloat16", False),
    Case(LEARNED, 2, 5, 16, "float32", False),
)
# Three roundings to x's type in the longest chain (a table, a product, a sum), of operands up to |a| + |b| + 1.
EPSILONS = {"float32": 2.0**-24, "bfloat16": 2.0**-8}


def invoke(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, ["bench", *(str(argument) for argument in arguments)])


@pytest.fixture(autouse=True)
def default_threads():
    """Undo what ``bench`` sets."""
    yield
    threads.set_num_threads(None)


@pytest.fixture(scope="module")
def shared():
    """One process for all forms: importing what they stand on takes longest."""
    with PeerProcess("", 1) as one:
        yield one


@pytest.fixture
def started(monkeypatch):
    """Process numbers of all workers."""
    numbers = []
    start = PeerProcess._start

    def recorded(self):
        start(self)
        numbers.append(self._process.pid)

    monkeypatch.setattr(PeerProcess, "_start", recorded)
    return numbers


def gone(number):
    """Whether no process has this number."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


def exact(case, start):
    """Sampled rows by the oracle of the tests, as float64."""
    tokens = case.sampled()
    encoding = case.encoding()
    rows = []
    for x in case.inputs():
        flat = x[-1, tokens].reshape(-1, case.width)
        if isinstance(encoding, Learned):
            right = oracle.integers(flat) + oracle.integers(encoding.table[start + tokens])
        else:
            heads = x.shape[2] if case.heads else 1
            frequencies = oracle.geometric(encoding.base, case.width)
            cos, sin = oracle.waves(np.repeat(start + tokens, heads), frequencies)
            if case.heads:
                right = oracle.rotate(flat, cos, sin, case.interleaved)
            else:
                right = oracle.integers(flat) + oracle.join(sin, cos, True)
        rows.append((right / (1 << oracle.SCALE)).astype(np.float64).reshape(x[-1, tokens].shape))
    return rows


# Compiling takes 5 s, and a failure costs a process: one case for these.
SLOW = {
    "torch-compiled": SMALL[0],
    "torch-compiled-made": SMALL[3],
    "fastpos-torch": SMALL[0],
    "onnxruntime": SMALL[1],
}


def peers_for(case):
    """Peers with a form for a case."""
    return [peer for peer in PEERS if peer.unfit(case) is None and SLOW.get(peer.name, case) is case]


@pytest.mark.parametrize(
    ("case", "peer"),
    [pytest.param(case, peer, id=f"{case.name}-{peer.name}") for case in SMALL for peer in peers_for(case)],
)
def test_every_peer_computes_the_formula(shared, case, peer):
    """Results in the axes of the inputs, right to a few roundings at positions where float32 angles are."""
    if peer.missing():
        pytest.skip(f"{peer.name} is {peer.missing()}")
    shared.form = peer.form
    start = 0 if case.workload == LEARNED else START
    try:
        results = shared.build(case, start)
    except PeerFailed as failed:
        if peer.name == "fastpos-torch" and "expected a NumPy array" in str(failed):
            pytest.skip("this version of fastpos takes no tensors")
        raise
    largest = max(float(np.abs(x.astype(np.float32)).max()) for x in case.inputs())
    for got, right in zip(results, exact(case, start), strict=True):
        assert got.shape == right.shape
        assert np.abs(got - right).max() <= EPSILONS[case.dtype] * 8 * (2 * largest + 1)
    shared.burst()
    assert shared.failure is None
    assert shared.calls >= 1
    assert 0 < shared.seconds[-1] < 10


def test_a_missing_kernel_is_said_by_its_type(shared):
    """ONNX Runtime rotates no bfloat16."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    shared.form = ".onnx_forms:bound"
    with pytest.raises(PeerFailed, match=r"implementation for RotaryEmbedding.*bfloat16"):
        shared.build(SMALL[2], START)


def fake(name, **changes):
    """A peer of ``fake_peers.py``."""
    return Peer(name, "", ("numpy",), f"fake_peers:{name}", Table.GIVEN, Result.GIVEN, **changes)


FAULTS = {
    "raises": r"RuntimeError: no such instruction$",
    "dies": r"its process ended with exit status 7: Illegal something$",
    "hangs": r"no answer within 1 s$",
    "wrong": r"wrong: its error is \d\.\de[+-]\d+, and none up to .* is explained$",
    "not_numbers": r"wrong: its error is nan, and none up to .* is explained$",
    "misshapen": r"wrong: expected results of shapes .*, got .*$",
    "dies_later": r"its process ended with exit status 9$",
    "hangs_later": r"no answer within 1 s$",
}


def test_a_faulty_peer_is_said_and_ended(monkeypatch, tmp_path, started):
    """Each fault is listed with its reason, the others go on, the run succeeds, and no process is left."""
    monkeypatch.setattr(catalogue, "PEERS", [fake("right"), *map(fake, FAULTS), fake("absent", only="additions")])
    ask = PeerProcess._ask

    def impatient(self, request, limit):
        # Where an answer never comes, and only there: on a busy machine others take their time.
        silent = self.form == "fake_peers:hangs" or (self.form == "fake_peers:hangs_later" and "burst" in request)
        return ask(self, request, 1.0 if silent else limit)

    monkeypatch.setattr(PeerProcess, "_ask", impatient)
    monkeypatch.setattr(against, "QUICK_SECONDS", 0.05)
    files = {kind: tmp_path / f"result.{kind}" for kind in ("json", "markdown")}
    arguments = ["--quick", "--against", "auto", "--only", DECODE_NAME]
    result = invoke(*arguments, "--json", files["json"], "--markdown", files["markdown"])
    assert result.exit_code == 0, result.output
    (measured,) = json.loads(files["json"].read_text())["results"]
    rows = {row["name"]: row for row in measured["contenders"] if row["name"] != "fastpos"}
    assert rows["right"]["failure"] is None
    assert rows["right"]["time_over_fastpos"] > 0
    text = files["markdown"].read_text(encoding="utf-8")
    assert re.search(r"^\| right \|.*x \|.*\| given \| given memory \|$", text, re.MULTILINE)
    assert re.search(r"^\| right \| given \| given memory \| [\d.]+ .s \([\d.]+x\) \|$", text, re.MULTILINE)
    assert "| raises | given | given memory | - |" in text
    for name, reason in FAULTS.items():
        assert re.search(reason, rows[name]["failure"]), rows[name]
        assert "median" not in rows[name]
        assert f"- {name}: {rows[name]['failure']}" in text
        assert f"- {name}: " in result.stdout
    assert "without a form for this case: absent (additions only)" in result.stdout
    assert re.search(r"slower than: .*right in 1 of 1|Never slower than .*right \(1\)", " ".join(result.stdout.split()))
    assert len(started) == len(FAULTS) + 5
    assert all(map(gone, started))


def test_without_fastpos_there_is_nothing_to_compare(monkeypatch, started):
    """A fault of its own ends the run with the reason, and every process."""
    monkeypatch.setattr(against, "OURS", (*catalogue.OURS[:2], replace(catalogue.OURS[2], form="fake_peers:raises")))
    result = invoke("--quick", "--against", "numpy", "--only", DECODE_NAME)
    assert result.exit_code == 1
    assert "error: --against: fastpos, new arrays: RuntimeError: no such instruction" in result.stderr
    assert len(started) == 5
    assert all(map(gone, started))


def test_a_worker_ends_with_its_block(started):
    """Whatever happens in it, an interrupt included."""
    with suppress(KeyboardInterrupt), PeerProcess("fake_peers:right", 1) as one:
        one.build(SMALL[0], START)
        raise KeyboardInterrupt
    assert len(started) == 1
    assert gone(started[0])


LEFT_ALONE = """
import os, sys
from fastpos.commands.peers.process import PeerProcess
from fastpos.commands.workloads import CASES
one = PeerProcess(".numpy_forms:ready", 1)
one.build(CASES[0], 0)
print(one._process.pid, flush=True)
os._exit(0)
"""


def test_a_worker_does_not_outlive_its_parent():
    """Where nobody can end it, because the parent was killed, it ends by itself."""
    said, _ = child(LEFT_ALONE)
    deadline = perf_counter() + 10
    while not gone(int(said)) and perf_counter() < deadline:
        sleep(0.01)
    assert gone(int(said))


def test_a_worker_starts_anew_after_a_failure(started):
    """A peer that failed in one case takes part in the next."""
    with PeerProcess("fake_peers:dies", 1) as one:
        with pytest.raises(PeerFailed, match="status 7"):
            one.build(SMALL[0], START)
        one.burst()
        assert one.seconds == []
        assert one.used > 0
        one.form = "fake_peers:right"
        assert len(one.build(SMALL[0], START)) == 2
        assert one.failure is None
    assert len(started) == 2
    assert all(map(gone, started))


def test_workers_have_as_many_threads_as_fastpos():
    """Each library has its own variable for that, and must read it before it is imported."""
    variables = process.environment(3)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):
        assert variables[name] == "3"


def test_what_is_missing_is_said(monkeypatch):
    """``auto`` leaves it out with the reason; by name it is an error that lists all peers."""
    absent = ("jax", "onnx", "onnxruntime", "torch", "transformers")
    find = catalogue.find_spec
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None if name in absent else find(name))
    result = invoke("--against", "auto", "--only", DECODE_NAME, "--quick")
    assert result.exit_code == 0, result.output
    assert "Peers: numpy " in result.stdout
    assert "Not here: onnxruntime: not installed: pip install onnxruntime onnx" in result.stdout
    for asked, said in (("numpy,jax", "'jax' is not installed"), ("numpy,flash", "no peer is called 'flash'")):
        result = invoke("--against", asked)
        assert result.exit_code == 1
        assert said in result.stderr
        assert "  numpy: can be imported" in result.stderr
        assert "  jax: not installed: pip install jax" in result.stderr
        assert all(f"  {peer.name}: " in result.stderr for peer in PEERS)


def test_position_asked_for(tmp_path):
    """Rotations stand there, by fastpos and by peers; a learned table has no such rows."""
    file = tmp_path / "result.json"
    result = invoke("--quick", "--against", "numpy", "--only", DECODE_NAME, "--position", 131072, "--json", file)
    assert result.exit_code == 0, result.output
    assert "position 131072" in result.stdout
    (measured,) = json.loads(file.read_text())["results"]
    assert measured["start"] == 131072
    assert {row["result"] for row in measured["contenders"] if row["name"] == "fastpos"} == {*Result}
    assert all(row["largest_absolute_error"] < 1e-6 for row in measured["contenders"])


def test_options_that_belong_to_others(tmp_path):
    """A position needs peers; results against peers are not drawn."""
    result = invoke("--position", 7)
    assert result.exit_code == 1
    assert "--position: expected with --against alone" in result.stderr
    result = invoke("--against", "numpy", "--plot", tmp_path / "result.png")
    assert result.exit_code == 1
    assert "--plot: expected no --against" in result.stderr


class Recorded:
    """A contender that writes down its turns."""

    def __init__(self, name, turns, seconds):
        self.name, self.turns, self.seconds, self.used = name, turns, seconds, 0.0

    def burst(self):
        """One turn."""
        self.turns.append(self.name)
        self.used += self.seconds


def test_contenders_take_turns():
    """Round robin; one that has used up its share of the time sits out after three rounds."""
    turns = []
    timing.interleave([Recorded(name, turns, 1.0 if name == "slow" else 0.2) for name in ("a", "slow", "b")], 3.0)
    assert turns == ["a", "slow", "b"] * 3 + ["a", "b"] * 2


def test_cases_too_large_for_all_are_refused():
    """Every peer holds a case at once."""
    result = invoke("--against", "numpy", "--only", "rope-b8-s4096-float32")
    assert result.exit_code == 1
    assert "more than 128 MiB" in result.stderr
