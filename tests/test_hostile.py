"""Hosts that make it hard: many threads, forks, nowhere to write, many processes at once, another instruction set."""

import os
import platform
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import fastpos_kernels
import numpy as np
import pytest
from children import child, finish, start
from fastpos_kernels import numba_threads

import fastpos
from fastpos import Rotary

THREADS = """
import threading
import numpy as np
import fastpos

fastpos.threads.THREADED_BYTES = 1
fastpos.set_num_threads(2)
rng = np.random.default_rng(1)
arrays = [rng.standard_normal((1, 90 + n, 4, 32), dtype=np.float32) for n in range(8)]
ropes = [fastpos.Rotary(32, base=1e4 + n % 3) for n in range(8)]
barrier, results = threading.Barrier(8), {}

def work(n):
    barrier.wait()
    for _ in range(40):
        apart = fastpos.apply(ropes[n], arrays[n], start=n)
        here = fastpos.apply_(ropes[n], arrays[n].copy(), start=n)
        with fastpos.use_backend("numpy" if n % 2 else "numba"):
            assert fastpos.explain(ropes[n], arrays[n], start=n).backend == ("numpy" if n % 2 else "numba")
        assert (apart == here).all()
    results[n] = apart

threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
fastpos.set_num_threads(1)
for n in range(8):
    assert (results[n] == fastpos.apply(fastpos.Rotary(32, base=1e4 + n % 3), arrays[n], start=n)).all()
assert len(threading.enumerate()) <= 2
print("same")
"""


def test_eight_threads_at_once():
    assert child(THREADS)[0] == "same"


FORK = """
import os, threading
import numpy as np
import fastpos

fastpos.threads.THREADED_BYTES = 1
fastpos.set_num_threads(2)
rope, x = fastpos.Rotary(32), np.random.default_rng(1).standard_normal((1, 400, 4, 32), dtype=np.float32)

def run():
    y = x.copy()
    for _ in range(5):
        y = fastpos.apply(rope, x, start=3)
    return y

right = run()
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        ok = (run() == right).all() and any(thread.name == "fastpos-helper" for thread in threading.enumerate())
        others = [threading.Thread(target=run) for _ in range(4)]
        for thread in others: thread.start()
        for thread in others: thread.join()
        os._exit(0 if ok and (run() == right).all() else 9)
    children.append(pid)
    assert (run() == right).all()
print([os.waitpid(pid, 0)[1] for pid in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_children_after_parallel_use():
    assert child(FORK, warnings="ignore::DeprecationWarning")[0] == "[0, 0, 0]"


FIRST = """
import sys
import numpy as np
import fastpos

print(fastpos.__file__)
x = np.random.default_rng(1).standard_normal((1, 30, 2, 16), dtype=np.float32)
here = fastpos.apply_(fastpos.Rotary(16), x.copy(), start=3)
assert np.abs(here - fastpos.apply(fastpos.Rotary(16), x, start=3, backend="numpy")).max() < 1e-6
assert (here == fastpos.apply(fastpos.Rotary(16), x, start=3)).all()
print(here.tobytes().hex())
"""
SECOND = """
table = np.arange(320, dtype=np.float32).reshape(20, 16)
assert (fastpos.apply(fastpos.Learned(table), x[0, :20, 0] * 0, start=0) == table).all()
"""


def copied(folder):
    """Copy the packages to ``folder``; an import path that finds them there first."""
    for package in (fastpos, fastpos_kernels):
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return os.pathsep.join([str(folder), *(path for path in sys.path if path)])


def test_nowhere_to_write(tmp_path):
    """A folder cannot be made where a file stands: that stops every user, root as well."""
    path = copied(tmp_path)
    for folder in [tmp_path, *tmp_path.rglob("*/")]:
        if folder.is_dir():
            (folder / "__pycache__").touch()
    nowhere = str(tmp_path / "fastpos" / "__init__.py")
    homes = {name: nowhere for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "USERPROFILE", "IPYTHONDIR")}
    homes |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    running = [start(FIRST + SECOND, warnings="default", NUMBA_CACHE_DIR=cache, **homes) for cache in (None, nowhere)]
    for said, warned in [finish(process) for process in running]:
        assert said.startswith(str(tmp_path))
        assert warned.count("no folder for compiled kernels is writable") == 1
        assert "set NUMBA_CACHE_DIR to a writable folder" in warned
    assert not [path for path in tmp_path.rglob("*.nb?")]


def test_four_processes_on_one_empty_cache(tmp_path):
    running = [start(FIRST, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(4)]
    said = {finish(process)[0] for process in running}
    assert len(said) == 1
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert written
    assert {child(FIRST, NUMBA_CACHE_DIR=str(tmp_path))[0]} == said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")} == written


def test_compiled_kernels_are_those_of_their_sources(tmp_path):
    """Numba looks at the file of the cached function alone; a change in any other file must count as well."""
    changes = {"PYTHONPATH": copied(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    child(FIRST, **changes)
    before = {*tmp_path.rglob("*.nbc")}
    assert before
    with (tmp_path / "fastpos_kernels" / "numba_lanes.py").open("a") as source:
        source.write("\n# another version\n")
    child(FIRST, **changes)
    assert {*tmp_path.rglob("*.nbc")} > before


MAKERS = """
import sys
import numba
import numpy as np
import ml_dtypes
import fastpos

name, target = sys.argv[1:]
dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
rng = np.random.default_rng(1)

def patterns(*shape):
    # Every kind of number: all exponents, subnormals, infinities, NaN with their payloads.
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=np.uint8).view(dtype)

def small(*shape):
    # Results near the least number of the type.
    return (rng.standard_normal(shape) * float(ml_dtypes.finfo(dtype).smallest_normal)).astype(dtype)

def plain(*shape):
    return rng.standard_normal(shape).astype(dtype)

results = {}
"""
OPERATIONS = """
for width in (128, 74):
    for interleaved in (False, True):
        rope = fastpos.Rotary(width, interleaved=interleaved)
        for make in (patterns, small, plain):
            x, key = make(1, 37, 5, width), f"{width} {interleaved} {make.__name__}"
            results["rotate " + key] = fastpos.apply(rope, x, start=2**31 - 20)
            results["in place " + key] = fastpos.apply_(rope, x.copy(), start=-9)
            if interleaved:
                pe = fastpos.Sinusoidal(width, embedding_scale=width**0.5)
                results["sinusoidal " + key] = fastpos.apply(pe, x[:, :, 0], start=10**6)
            else:
                learned = fastpos.Learned(x[0, :, 1])
                results["learned " + key] = fastpos.apply(learned, x[0, :, 0], start=0)
"""
FORMS = """
scale, whole = fastpos.LogScale(5.0), fastpos.Axes((10, 9, 16))
real = fastpos.Axes((10, 9, 16), own_channels=True, real=True)
common = {"rotary_dim": 70, "rotary_start": 3, "query_scale": scale}
forms = {
    "deinterleaved": fastpos.Rotary(74, interleaved=True, deinterleaved=True, axes=whole, **common),
    "rounded": fastpos.Rotary(74, numerics="hf", axes=real, **common),
}
for form, rope in forms.items():
    for make in (patterns, small, plain):
        x, at = make(1, 37, 5, 74), rng.uniform(-1e5, 1e5, (3, 37))
        results[f"{form} {make.__name__}"] = fastpos.apply(rope, x, positions=at if rope.axes.real else at.astype(int))
"""
SAVE = """
np.savez(target, **{key: np.ascontiguousarray(value).view(np.uint8) for key, value in results.items()})
print(*numba.core.registry.cpu_target.target_context.codegen().magic_tuple()[1:])
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is an instruction set of x86-64")
@pytest.mark.parametrize(
    ("code", "names"),
    [(OPERATIONS, ["float32", "float16", "bfloat16", "float64"]), (FORMS, ["float32", "bfloat16"])],
    ids=["operations", "forms"],
)
def test_avx2_gives_the_same_bits(tmp_path, code, names):
    code = MAKERS + code + SAVE
    target = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    running = [start(code, name, str(tmp_path / f"avx2 {name}.npz"), **target) for name in names]
    for process in running:
        assert finish(process)[0] == "x86-64-v3", "Numba took its target from elsewhere"
    for name in names:
        child(code, name, str(tmp_path / f"host {name}.npz"))
        with np.load(tmp_path / f"host {name}.npz") as one, np.load(tmp_path / f"avx2 {name}.npz") as other:
            assert one.files == other.files
            different = {
                key: int((one[key] != other[key]).sum()) for key in one.files if (one[key] != other[key]).any()
            }
        assert not different, f"bytes of {name} that differ: {different}"


COUNT = "import fastpos; print(fastpos.get_num_threads()); fastpos.set_num_threads(2); print(fastpos.get_num_threads())"


@pytest.mark.parametrize(("changes", "count"), [({"FASTPOS_NUM_THREADS": "3"}, 3), ({"NUMBA_NUM_THREADS": "1"}, 1),
    ({"FASTPOS_NUM_THREADS": "5", "NUMBA_NUM_THREADS": "1"}, 5)], ids=str)  # fmt: skip
def test_threads_of_the_environment(changes, count):
    assert child(COUNT, **changes)[0].split() == [str(count), "2"]


BAD_COUNT = """
import numpy as np
import fastpos

x = np.ones((1, 2, 1, 8))
for call in (fastpos.apply, fastpos.apply_, fastpos.explain):
    for backend in ("numpy", "numba"):
        try:
            call(fastpos.Rotary(8), x, start=1, backend=backend)
        except ValueError as error:
            print(error)
assert (x == 1).all()
"""


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5"])
def test_bad_threads_in_the_environment(text):
    said = child(BAD_COUNT, FASTPOS_NUM_THREADS=text)[0].splitlines()
    assert said == [f"FASTPOS_NUM_THREADS: expected a whole number of at least 1, got {text!r}"] * 6


def test_nobody_works_any_more_when_an_interrupted_caller_raises():
    """Or a helper would write to arrays that the caller has let go of."""
    begun, go_on, finished = threading.Event(), threading.Event(), []

    def work():
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(10)
            threading.Timer(0.2, go_on.set).start()
            raise KeyboardInterrupt
        begun.set()
        go_on.wait(10)
        finished.append(True)

    with pytest.raises(KeyboardInterrupt):
        numba_threads.share(work, 2)
    assert finished == [True]


def call_until_interrupted(delay, rope, x):
    signal.setitimer(signal.ITIMER_REAL, delay)
    while True:
        fastpos.apply_(rope, x, start=0)


def test_interrupts_of_large_calls(rng):
    """A signal's exception comes out of the call, and the array stays as it is from then on."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("no interval timers on this system")
    fastpos.set_num_threads(2)
    # Or an interrupt would fall into an import, which no library outlives.
    fastpos.apply_(Rotary(128), np.ones((1, 4096, 4, 128), np.float32), start=0)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(30):
            x = np.ones((1, 4096, 4, 128), np.float32)
            rope = Rotary(128)
            delay = float(rng.uniform(0.001, 0.01))
            with pytest.raises(KeyboardInterrupt):
                call_until_interrupted(delay, rope, x)
            seen = x.copy()
            time.sleep(0.002)
            assert np.array_equal(x, seen)
    finally:
        signal.signal(signal.SIGALRM, before)
        fastpos.set_num_threads(None)
