"""Which backend a call gets: precedence, what is said about it, and that importing costs nothing."""

import numpy as np
import pytest
from children import child

import fastpos
from fastpos import Learned, Rotary, Sinusoidal

ROPE = Rotary(8)


def chosen(**arguments):
    return fastpos.explain(ROPE, np.ones((1, 2, 1, 8), np.float32), start=0, **arguments).backend


@pytest.fixture(autouse=True)
def nothing_set():
    yield
    fastpos.set_backend(None)


def test_argument_before_scope_before_process():
    assert chosen() == "numba"
    fastpos.set_backend("numpy")
    assert chosen() == "numpy"
    with fastpos.use_backend("numba"):
        assert chosen() == "numba"
        assert chosen(backend="numpy") == "numpy"
        with fastpos.use_backend("numpy"):
            assert chosen() == "numpy"
        assert chosen() == "numba"
        with fastpos.use_backend("auto"):
            assert chosen() == "numba"
    assert chosen() == "numpy"
    assert chosen(backend="auto") == "numba"
    fastpos.set_backend(None)
    assert chosen() == "numba"


def test_scope_ends_with_an_error():
    with pytest.raises(KeyError), fastpos.use_backend("numpy"):
        raise KeyError
    assert chosen() == "numba"


def test_in_place_calls_follow_the_choice(monkeypatch):
    """The quick way of a repeated call in place must not outlive a change of backend."""
    from fastpos_kernels import numpy_launch

    calls = []
    rotate = numpy_launch.rotate
    monkeypatch.setattr(
        numpy_launch, "rotate", lambda *arguments, **more: (calls.append(1), rotate(*arguments, **more))
    )
    rope, x = Rotary(8), np.ones((1, 2, 1, 8), np.float32)
    for start in range(3):
        fastpos.apply_(rope, x, start=start)
    assert not calls
    with fastpos.use_backend("numpy"):
        fastpos.apply_(rope, x, start=3)
    assert len(calls) == 1
    fastpos.set_backend("numpy")
    fastpos.apply_(rope, x, start=4)
    assert len(calls) == 2
    fastpos.apply_(rope, x, start=4, backend="numba")
    assert len(calls) == 2


PRECEDENCE = """
import fastpos, numpy
def chosen(**arguments):
    return fastpos.explain(fastpos.Rotary(8), numpy.ones((1, 2, 1, 8)), start=0, **arguments).backend
print(chosen(), chosen(backend="numba"), end=" ")
fastpos.set_backend("numba"); print(chosen(), end=" ")
fastpos.set_backend(None); print(chosen(), end=" ")
with fastpos.use_backend("auto"): print(chosen())
"""


def test_environment_comes_last():
    assert child(PRECEDENCE, FASTPOS_BACKEND="numpy")[0] == "numpy numba numba numpy numba"


UNKNOWN = """
import fastpos, numpy
x = numpy.ones((1, 2, 1, 8))
for call in (fastpos.apply, fastpos.apply_, fastpos.explain):
    try:
        call(fastpos.Rotary(8), x, start=1)
    except ValueError as error:
        print(error)
assert (x == 1).all()
fastpos.apply(fastpos.Rotary(8), x, start=1, backend="numpy")
"""


def test_unknown_in_the_environment_fails_at_the_first_call():
    said = child(UNKNOWN, FASTPOS_BACKEND="cuda")[0].splitlines()
    assert len(said) == 3
    for line in said:
        assert line.startswith("FASTPOS_BACKEND: unknown backend 'cuda'")
        for name in ("auto", "numpy: usable", "numba: usable", "triton: "):
            assert name in line


@pytest.mark.parametrize("ask", [
    lambda name: chosen(backend=name),
    fastpos.set_backend,
    lambda name: fastpos.use_backend(name).__enter__(),
], ids=["argument", "set_backend", "use_backend"])  # fmt: skip
def test_names_that_cannot_be(ask):
    with pytest.raises(ValueError, match=r"unknown backend 'jax'.*auto.*numpy: usable; numba: usable; triton: \w+"):
        ask("jax")
    with pytest.raises(
        ValueError, match=r"backend 'triton' cannot run here; numpy: usable; numba: usable; triton: \w+"
    ):
        ask("triton")
    with pytest.raises(TypeError, match="expected a name, got 3"):
        ask(3)
    assert chosen() == "numba"


def test_listing():
    numpy, numba, triton = fastpos.backends()
    assert (numpy.name, numba.name, triton.name) == ("numpy", "numba", "triton")
    assert numpy.usable
    assert numba.usable
    assert numpy.reason is numba.reason is None
    assert not triton.usable
    assert triton.reason
    assert f"numpy {np.__version__}" in numpy.versions
    assert [version.split()[0] for version in numba.versions] == ["numba", "llvmlite"]


def test_nothing_falls_back_in_silence(monkeypatch):
    broken = fastpos.dispatch.Backend("numba", "numba cannot be imported: test", ())
    find = fastpos.dispatch.find
    monkeypatch.setattr(fastpos.dispatch, "find", lambda name: broken if name == "numba" else find(name))
    with pytest.raises(ValueError, match="numba: numba cannot be imported: test"):
        chosen()
    with pytest.raises(ValueError, match=r"backend 'numba' cannot run here; .*numba cannot be imported: test"):
        chosen(backend="numba")
    assert chosen(backend="numpy") == "numpy"


def test_explain(threads):
    x, cache = np.ones((2, 5, 3, 8), np.float16), np.ones((2, 9, 3, 8), np.float16)
    plan = fastpos.explain(ROPE, x, start=0)
    assert (plan.backend, plan.kernel, plan.layout, plan.dtype) == ("numba", "rotate", "bshd", "float16")
    assert (plan.threads, plan.in_place, plan.streamed, plan.copies) == (1, False, False, False)
    assert (plan.bytes_read, plan.bytes_written) == (x.nbytes, x.nbytes)
    with pytest.raises(AttributeError):
        plan.threads = 2
    assert fastpos.explain(ROPE, x, start=0) == plan
    assert fastpos.explain(ROPE, x, start=0, out=x).in_place
    assert not fastpos.explain(ROPE, x, start=0, out=cache[:, 2:7]).in_place
    assert fastpos.explain(ROPE, x[..., ::-1], start=0).copies
    assert fastpos.explain(ROPE, x, x, start=0).bytes_read == 2 * x.nbytes
    assert fastpos.explain(Sinusoidal(8), x[0], start=0, backend="numpy").kernel == "add_sinusoidal"
    assert fastpos.explain(Learned(np.ones((9, 8))), x[0], start=0).kernel == "add_learned"
    threads(2)
    assert fastpos.explain(Rotary(8), x, start=0).threads == 2
    assert fastpos.explain(Rotary(8), x, start=0, backend="numpy").threads == 1
    assert (x == 1).all()


def test_small_work_stays_on_one_thread(monkeypatch):
    monkeypatch.setattr(fastpos.threads, "_chosen", 8)
    assert fastpos.explain(Rotary(128), np.ones((1, 1, 40, 128), np.float32), start=0).threads == 1
    assert fastpos.explain(Rotary(128), np.ones((1, 512, 40, 128), np.float32), start=0).threads == 8


def test_large_results_are_streamed_past_the_caches(monkeypatch):
    x = np.ones((1, 500, 4, 64), np.float32)
    monkeypatch.setattr(fastpos.machine, "last_level_cache", lambda: 16 * x.nbytes)
    assert not fastpos.explain(Rotary(64), x, start=0).streamed
    monkeypatch.setattr(fastpos.machine, "last_level_cache", lambda: x.nbytes)
    assert fastpos.explain(Rotary(64), x, start=0).streamed
    assert not fastpos.explain(Rotary(64), x, start=0, out=x).streamed
    assert not fastpos.explain(Rotary(64), x, start=0, backend="numpy").streamed


def test_import_loads_no_compiler():
    loaded = child("import fastpos, sys; print(*{name.split('.')[0] for name in sys.modules})")[0].split()
    assert "fastpos" in loaded
    heavy = {"numba", "llvmlite", "torch", "triton", "ml_dtypes", "rich", "typer", "matplotlib", "mpmath"}
    assert not heavy & {*loaded}


def test_numpy_calls_load_no_compiler_either():
    code = "fastpos.apply(fastpos.Rotary(8), numpy.ones((1, 2, 1, 8)), start=0, backend='numpy')"
    assert child(f"import fastpos, numpy, sys; {code}; print('numba' in sys.modules)")[0] == "False"


def why_not_triton(setup="", **environment):
    """Say in a fresh process why Triton's kernels cannot run, and the error of a call that asks for them."""
    code = f"""
import sys
{setup}
import fastpos, numpy
print(fastpos.backends()[2].reason)
try:
    fastpos.apply(fastpos.Rotary(8), numpy.ones((1, 2, 1, 8)), start=1, backend="triton")
except ValueError as error:
    print(error)
"""
    return child(code, **environment)[0].splitlines()


@pytest.mark.parametrize(("setup", "reason"), [
    ("sys.modules['triton'] = None", "triton is not installed: pip install 'fastpos[gpu]'"),
    ("sys.modules['torch'] = None", "torch is not installed: pip install 'fastpos[gpu]'"),
    ("import triton; triton.__version__ = '3.5.1'", "triton 3.5.1 is older than 3.6: pip install --upgrade 'fastpos[gpu]'"),
    ("import torch; torch.cuda.is_available = lambda: False", "PyTorch finds no GPU (TRITON_INTERPRET=1 lets "
     "Triton's interpreter run its kernels on the CPU, slowly)"),
])  # fmt: skip
def test_what_triton_lacks_is_said_with_what_to_install(setup, reason):
    pytest.importorskip("triton", reason="needs torch and triton")
    said, error = why_not_triton(setup, TRITON_INTERPRET=None)
    assert said == reason
    assert error.startswith("backend: backend 'triton' cannot run here; ")
    assert error.endswith(f"triton: {reason}")


def test_triton_is_usable_with_its_interpreter():
    pytest.importorskip("triton", reason="needs torch and triton")
    said, error = why_not_triton(TRITON_INTERPRET="1")
    assert said == "None"
    assert error.startswith("backend=: backend 'triton' works on PyTorch tensors on a GPU")
    assert error.endswith("got NumPy arrays")
