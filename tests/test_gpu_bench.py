"""``bench/gpu.py`` without a GPU: its dry run reports everything, and its judges refuse what is wrong."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from children import finish, start

from fastpos import Learned, Rotary, Sinusoidal

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

BENCH = Path(__file__).parent.parent / "bench"
SECTIONS = ("Correctness", "Copy", "Prefill", "Decode", "Peers that took no part", "Bars", "Predictions")
CHECKS = {
    "formulas", "positions", "layouts", "large", "repeats", "gradients", "torch.compile", "CUDA graphs",
}  # fmt: skip


@pytest.fixture
def rooms(monkeypatch):
    """Let the files beside ``gpu.py`` be imported."""
    monkeypatch.syspath_prepend(str(BENCH))


def test_dry_run(tmp_path):
    """The command in a process of its own: Triton is told to interpret before it is imported."""
    code = "import runpy, sys; path = sys.argv[1]; sys.argv = sys.argv[1:]; runpy.run_path(path, run_name='__main__')"
    path = str(BENCH / "gpu.py")
    code = f"import sys; sys.path.insert(0, {str(BENCH)!r}); {code}"
    said, _ = finish(start(code, path, "--dry-run", "--out", str(tmp_path), warnings="default"))
    text, report = (tmp_path / "gpu.md").read_text(), json.loads((tmp_path / "gpu.json").read_text())
    assert text in said + "\n"
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    assert "every time here is meaningless" in text
    assert "interpreter" in report["facts"]["device"]
    assert report["facts"]["versions"]["torch"] == torch.__version__
    assert report["dry"]
    assert set(report["checks"]) == CHECKS
    assert report["checks"]["CUDA graphs"] == "not run: needs a GPU"
    assert [row["name"] for row in report["prefill"]] == [
        "rotary, 2 tokens", "rotary, 4 tokens", "rotary, 4 tokens", "sinusoidal, 4 x 64", "sinusoidal, 4 x 64",
        "learned, 4 x 64",
    ]  # fmt: skip
    assert [row["batch"] for row in report["decode"]] == [1, 2]
    for row in (*report["prefill"], *report["decode"]):
        assert all(timing["median"] > 0 for timing in row["device"].values())
        # Every peer of the kind has figures or a reason; what comes with the test's requirements has figures.
        if "rotary" in row["name"] or "decode" in row["name"]:
            named = {"torch eager", "torch.compile", "torch.compile, own table", "transformers", "Liger"}
            assert named <= row["device"].keys() | row["failures"].keys()
            assert named - {"transformers", "Liger"} <= row["device"].keys()
            for name, reason in row["failures"].items():
                assert reason.startswith(("not installed", "wrong", "failed")), name
    for row in report["decode"]:
        assert set(row["graphs"].values()) == {"not run: needs a GPU"}
        assert all(seconds > 0 for seconds in row["host"].values())
    assert [said[2] for said in report["predictions"]].count("fastpos, in place") == 2


def test_a_wrong_result_ends_the_run(rooms, tmp_path, monkeypatch, capsys):
    import gpu
    import gpu_checks
    from gpu_truth import Wrong

    def fail(machine):
        raise Wrong("a case: 3 of 4 elements are off")

    monkeypatch.setattr(gpu_checks, "CHECKS", {"good": lambda machine: "fine", "bad": fail, "never": pytest.fail})
    assert gpu.run(torch.device("cpu"), True, tmp_path) == 1
    assert "stopped at bad, and nothing more is timed: WRONG: a case: 3 of 4" in capsys.readouterr().err
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["checks"] == {"good": "fine"}
    assert (report["stopped_at"], report["error"]) == ("bad", "WRONG: a case: 3 of 4 elements are off")
    assert not (tmp_path / "gpu.md").exists()


def test_no_gpu_is_said(rooms, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCH / "gpu.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "--dry-run" in capsys.readouterr().err


ENCODINGS = [Rotary(16, rotary_dim=12, interleaved=True), Sinusoidal(16), Learned(np.eye(9, 16, dtype=np.float32))]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["rotary", "sinusoidal", "learned"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_judges(rooms, encoding, dtype):
    """Right results pass, and one element that is off by some ulp, NaN or another row's does not."""
    import gpu_truth
    from gpu_machine import Machine

    import fastpos
    from fastpos.commands.workloads import normals

    machine, positions = Machine(torch.device("cpu"), True), np.arange(8)
    x = normals(0, (8, *((2,) if isinstance(encoding, Rotary) else ()), 16), dtype)
    right = machine.on(fastpos.apply(encoding, x, positions=positions, layout="thd" if x.ndim == 3 else "td"))
    assert 0 <= gpu_truth.check_truth("it", encoding, x, positions, right, 0.5) <= 1
    assert gpu_truth.check_near("it", encoding, x, right, right) == 0
    gpu_truth.check_same("it", right, right.clone())
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[right.element_size()]
    large = int(right.abs().argmax())
    # Beyond what arithmetic in this type may lose of the largest result.
    some = {"float64": 1000, "float32": 16}.get(dtype, 3)
    off, poisoned = right.clone(), right.clone()
    off.view(words).view(-1)[large] += some
    poisoned.view(-1)[large] = torch.nan
    for wrong in (off, poisoned, right.flip(0)):
        with pytest.raises(gpu_truth.Wrong, match=r"it: .* elements are off"):
            gpu_truth.check_truth("it", encoding, x, positions, wrong, 0.5)
        with pytest.raises(gpu_truth.Wrong, match=r"it, against the CPU: .* elements are off"):
            gpu_truth.check_near("it", encoding, x, wrong, right)
        with pytest.raises(gpu_truth.Wrong, match=r"it: .* differ"):
            gpu_truth.check_same("it", wrong, right)
    with pytest.raises(gpu_truth.Wrong, match="expected torch"):
        gpu_truth.check_same("it", right.flatten(), right)


def test_peers_are_checked(rooms):
    """A peer that turns the wrong way, or gives other shapes, or NaN, takes no part."""
    import gpu_peers
    from gpu_machine import Machine
    from gpu_speed import Size

    task = Size("it", Rotary(16, base=500.0), 2, 5, "float32", 3).task(Machine(torch.device("cpu"), True), 0)
    eager = next(peer for peer in gpu_peers.PEERS if peer.name == "torch eager")
    assert gpu_peers.check_peer(eager, task) is None
    for change, said in (
        (lambda results: [-y for y in results], "wrong: its error is"),
        (lambda results: [y * torch.nan for y in results], "wrong: its error is nan"),
        (lambda results: [y[:, :-1] for y in results], "wrong: expected results of shape"),
    ):
        peer = replace(eager, make=lambda task, change=change: lambda: change(eager.make(task)()))
        assert said in gpu_peers.check_peer(peer, task)
    assert replace(eager, modules=("no_such_module",)).missing() == "not installed: pip install no_such_module"


def test_bars_and_predictions(rooms):
    """What only a run on a GPU shows: what was asked for and predicted, beside what came."""
    from gpu_report import PROMPT, bars, predictions
    from gpu_speed import OURS, Row, Size

    from fastpos.commands.timing import Timing

    times = {OURS: 330, "torch.compile": 325, "torch.compile, own table": 700}
    device = {name: Timing(1, (time * 1e-6,) * 3) for name, time in times.items()}
    size = Size(PROMPT, Rotary(128), 1, 65_536, "bfloat16")
    row = Row(size, 1_342_177_280, device, failures={"Liger": "not installed"})
    narrow = Row(replace(size, dtype="float32"), row.bytes, {OURS: Timing(1, (1.0,))})
    assert bars([narrow, row], row.bytes / 312e-6) == [
        (">= 90% of a copy", "94.5%", "holds"),
        (">= 1.0x torch.compile", "0.98x", "MISSED"),
        (">= 2.0x torch.compile, own table", "2.12x", "holds"),
        (">= 1.0x Liger", "not measured: not installed", "open"),
    ]
    found = predictions({"prefill": [narrow, row], "decode": []})
    assert [said[-1] for said in found] == ["330 us", "325 us", "700 us", "-", "-", "-", "-"]
