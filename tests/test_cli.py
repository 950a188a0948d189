"""The ``fastpos`` command, and what importing the package costs."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fastpos import backends, cli, threads
from fastpos.commands import bench, checks, verify, workloads

HEAVY = ("numba", "torch", "triton", "typer", "rich", "matplotlib", "mpmath", "ml_dtypes")
DECODE = "decode-b1-s1-float32-halves-inplace"


def invoke(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run(*arguments, **variables):
    """Run Python in a child process with more environment variables."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def default_threads():
    """Undo what ``bench --threads`` sets."""
    yield
    threads.set_num_threads(None)


def test_import_loads_nothing_heavy():
    """``import fastpos`` costs little more than NumPy: what only some calls or commands need comes when they need it."""
    code = f"import sys, fastpos; print([name for name in {HEAVY} if name in sys.modules])"
    child = run("-c", code)
    assert child.stdout.strip() == "[]", child.stderr


def test_help_loads_no_kernels():
    """``fastpos --help`` answers at once."""
    code = f"""
import sys
from fastpos.cli import app
try:
    app(["--help"])
except SystemExit as end:
    assert end.code == 0
print([name for name in {HEAVY} if name in sys.modules and name not in ("typer", "rich")])
"""
    child = run("-c", code)
    assert "verify" in child.stdout
    assert child.stdout.strip().endswith("[]"), child.stdout


def test_info_says_what_a_call_gets_and_why():
    """Backends with reasons, the one that auto gives, threads, and the cache of compiled kernels."""
    result = invoke("info")
    assert result.exit_code == 0, result.output
    for said in (
        "processor",
        "largest cache",
        "compiled for",
        "compiled kernels",
        "numba for NumPy arrays",
        "not usable:",
    ):
        assert said in result.output
    assert f"{threads.get_num_threads()} for calls that move 4 MiB or more" in result.output
    for backend in backends():
        assert backend.name in result.output
        # A long reason is folded in its column, beside that of the versions.
        assert set((backend.reason or "").split()) <= set(result.output.split())


def test_info_names_who_chose():
    """Environment variables are named where they decide."""
    child = run("-m", "fastpos", "info", FASTPOS_BACKEND="numpy", FASTPOS_NUM_THREADS="3")
    assert child.returncode == 0, child.stderr
    assert "numpy for NumPy arrays (FASTPOS_BACKEND says numpy)" in child.stdout
    assert "3 for calls" in child.stdout
    assert "FASTPOS_NUM_THREADS" in child.stdout


def shown(tmp_path, config):
    """What ``fastpos info --config`` prints of a config, and how it ends."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = invoke("info", "--config", tmp_path)
    return result.exit_code, result.stdout


LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}


def test_info_of_a_config(tmp_path):
    """The encoding, its wavelengths and its factor."""
    yarn = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
    code, said = shown(tmp_path, {**LLAMA, "max_position_embeddings": 65536, "rope_theta": 1e4, "rope_scaling": yarn})
    assert code == 0
    assert "Rotary(128, base=10000.0, scaling=YaRN(factor=16.0, " in said
    assert "128 of 128 turn, in pairs (i, i+64)" in said
    assert re.search(r"layers +all 32", said)
    assert re.search(r"shortest wavelength +6\.2832 tokens", said)  # 2 pi
    assert re.search(rf"longest wavelength +{16 * 2 * math.pi * 1e4 ** (126 / 128):,.1f} tokens", said)
    assert re.search(r"attention factor +1\.27725887", said)
    assert "warning" not in said


def test_info_of_layers_that_differ(tmp_path):
    """A table for each kind of layers; what cannot be honoured is said there, and by the exit code."""
    text = {
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    code, said = shown(tmp_path, {"model_type": "gemma3", "text_config": text})
    assert code == 0
    assert "sliding_attention: 0, 1, 2, 3, 4, 6, 7, 8, ... (10 of 12)" in said
    assert "full_attention: 5, 11 (2 of 12)" in said
    assert "Rotary(256, base=10000.0)" in said
    assert "Rotary(256, base=1000000.0, scaling=Linear(factor=8.0))" in said
    code, said = shown(tmp_path, {"model_type": "gemma4_text", "num_hidden_layers": 6})
    assert code == 0
    assert re.search(r"pairs that stand still +192 of 256", said)
    text["rope_scaling"]["alpha"] = 1
    code, said = shown(tmp_path, text)
    assert code == 1
    assert re.search(r"refused +rope_scaling\.alpha: expected no such key with rope_type 'linear', got 1", said)
    assert "Rotary(256, base=10000.0)" in said


def test_info_of_lengths_and_warnings(tmp_path):
    """Both lists of a long config, and what a user should know."""
    rope = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [4.0] * 64}
    content = {
        **LLAMA,
        "original_max_position_embeddings": 4096,
        "max_position_embeddings": 131072,
        "rope_scaling": rope,
    }
    code, said = shown(tmp_path, content)
    assert code == 0
    assert re.search(r"shortest wavelength, up to 4096 tokens +6\.2832 tokens", said)
    assert re.search(r"shortest wavelength, beyond +25\.1327 tokens", said)
    assert "seq_lens=" in said
    assert "LongRoPE(short_factor=(...), long_factor=(...), " in said
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "mscale_all_dim": 1.0}
    _, said = shown(tmp_path, {**LLAMA, "max_position_embeddings": 32768, "rope_scaling": yarn})
    assert re.search(r"warning +rope_scaling\.factor: 4 is used, but .* = 32768 / 4096", said)
    assert re.search(r"warning +rope_scaling\.mscale_all_dim: .* no effect", said)
    _, said = shown(
        tmp_path, {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": {"type": "dynamic", "factor": 2}}
    )
    assert "up to 8192 tokens" in said


def test_info_of_heads_axes_and_queries(tmp_path):
    """What a rotation has besides frequencies."""
    yarn = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    code, said = shown(tmp_path, {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "num_hidden_layers": 61})
    assert code == 0
    assert "64 of 64 turn, in pairs (2i, 2i+1), written to (i, i+32)" in said
    assert "softmax scale" not in said
    content = {
        "model_type": "deepseek_v3",
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 163840,
        "rope_scaling": yarn,
    }
    _, said = shown(tmp_path, content)
    assert "the attention multiplies its softmax scale by" in said
    code, said = shown(
        tmp_path, {**LLAMA, "model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    )
    assert code == 0
    assert "time, height, width: (16, 24, 24) pairs, chunked" in said
    llama4 = {"model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 8}
    code, said = shown(tmp_path, llama4)
    assert code == 0
    assert "all, without rotation: 3, 7 (2 of 8)" in said
    assert "none turns: layers without positions" in said
    assert "scaled by where they stand: the first array of a call is q (Llama4Scale(" in said


def test_info_of_what_is_no_config(tmp_path):
    """One line, exit code 1, no traceback."""
    for path, said in ((tmp_path, "config.json"), (tmp_path / "missing.json", "missing.json")):
        result = invoke("info", "--config", path)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")
        assert said in result.stderr
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    result = invoke("info", "--config", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "model_type: expected one that fastpos knows" in result.stderr


CALL = "import fastpos, numpy; fastpos.apply(fastpos.Rotary(2), numpy.ones((1, 1, 1, 2)), start=0)"


@pytest.mark.parametrize(("name", "value"), [("FASTPOS_BACKEND", "cuda"), ("FASTPOS_NUM_THREADS", "0")])
def test_bad_environment_is_said_as_by_a_call(name, value):
    """The command ends with the text of a call's error, exit code 1 and no traceback."""
    child = run("-m", "fastpos", "info", **{name: value})
    call = run("-c", CALL, **{name: value})
    assert child.returncode == 1
    assert child.stdout == ""
    assert child.stderr.startswith("error: FASTPOS_")
    assert "Traceback" not in child.stderr
    assert call.stderr.strip().endswith(f"ValueError: {child.stderr.removeprefix('error: ').strip()}")


def test_verify_passes_here():
    """Every usable backend keeps its bounds on this machine."""
    result = invoke("verify")
    assert result.exit_code == 0, result.output
    usable = [backend.name for backend in backends() if backend.usable]
    for name in usable:
        assert f"Backend {name}" in result.stdout
    count = len(usable) * len(checks.checks())
    assert sum(line.rstrip().endswith(" pass") for line in result.stdout.splitlines()) == count
    assert f"All {count} checks passed" in result.stdout


def test_verify_tells_a_wrong_backend(monkeypatch):
    """A result off by 1e-6 fails its line, and the command: the checks can tell."""
    true = checks.apply
    monkeypatch.setattr(checks, "apply", lambda *args, **kwargs: true(*args, **kwargs) * (1 + 1e-6))
    # The arithmetic of transformers is off by more than that itself.
    some = [check for check in checks.checks(()) if check.what != "learned rows" and '"hf"' not in check.what]
    monkeypatch.setattr(verify, "checks", lambda: some)
    result = invoke("verify")
    assert result.exit_code == 1
    assert f"{2 * len(some)} of {2 * len(some)} checks failed" in result.stdout
    assert "FAIL" in result.stdout


def test_nan_is_no_small_error():
    """A backend that gives NaN does not pass."""
    assert not checks.Finding(float("nan"), 1.0, "").passed
    assert not checks.Finding(float("nan"), 1.0, "", least=True).passed


def test_warmup_compiles_what_is_asked_for():
    """A line for every kernel, with its seconds, and the folder they are kept in."""
    result = invoke("warmup", "--encoding", "rotary", "--encoding", "learned", "--dtype", "float32")
    assert result.exit_code == 0, result.output
    assert "rotate float32" in result.output
    assert "add_learned float32" in result.output
    assert "sinusoidal" not in result.output
    assert "They are kept in" in result.output


def test_warmup_knows_its_names():
    """An unknown type is refused with the known ones."""
    result = invoke("warmup", "--dtype", "int8")
    assert result.exit_code == 2
    assert "float16" in result.output


def test_bench_writes_its_files(tmp_path):
    """Progress on the way, a table at the end, and the same figures in the files."""
    files = {kind: tmp_path / f"result.{kind}" for kind in ("json", "markdown", "png")}
    result = invoke(
        *("bench", "--quick", "--only", DECODE, "--threads", 2),
        *("--json", files["json"], "--markdown", files["markdown"], "--plot", files["png"]),
    )
    assert result.exit_code == 0, result.output
    assert f"1/1 {DECODE}" in result.stderr
    written = json.loads(files["json"].read_text())
    assert written["settings"] == {"backend": "numba", "threads": 2, "quick": True}
    (measured,) = written["results"]
    assert measured["name"] == DECODE
    assert measured["input_bytes"] == 40 * 128 * 4
    assert set(measured["contenders"]) == set(workloads.CONTENDERS)
    assert 0 < measured["largest_absolute_error"] < 1e-6
    assert all(one["p20"] <= one["median"] <= one["p80"] for one in measured["contenders"].values())
    row = f"| {measured['time_over_copy']:.2f} | {measured['gigabytes_per_second']:.1f} |"
    assert row in files["markdown"].read_text(encoding="utf-8")
    assert "2 threads (copy and NumPy: 1)" in files["markdown"].read_text(encoding="utf-8")
    assert files["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_bench_refuses_before_it_measures(tmp_path, monkeypatch):
    """What cannot work in the end is said in the beginning."""
    result = invoke("bench", "--only", "decode-b3")
    assert result.exit_code == 1
    assert "no case has 'decode-b3' in its name; names are like rope-b1-s1-float32-halves-inplace" in result.stderr
    missing = tmp_path / "missing"
    result = invoke("bench", "--only", DECODE, "--json", missing / "result.json")
    assert result.exit_code == 1
    assert f"the folder {missing} does not exist" in result.stderr
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    result = invoke("bench", "--only", DECODE, "--plot", tmp_path / "result.png")
    assert result.exit_code == 1
    assert "--plot needs matplotlib" in result.stderr


def test_quick_cases_exist():
    """Each name of the quick list is that of a case, and no two cases share a name."""
    names = [case.name for case in workloads.CASES]
    assert len(set(names)) == len(names)
    assert set(workloads.QUICK) <= set(names)


@pytest.mark.parametrize("case", workloads.select(quick=True), ids=lambda case: case.name)
def test_a_copy_brings_the_inputs_back(case):
    """Contenders that work in place start every round from the same data."""
    contest = case.small().make()
    contest.contenders[workloads.MADE]()
    contest.contenders[workloads.COPY]()
    for x, target in zip(contest.inputs, contest.targets, strict=True):
        assert target.tobytes() == x.tobytes()
        assert target is not x
