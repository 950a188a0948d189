"""Bad calls, one table: the same error on every backend, named in words, and not one byte written."""

from importlib.util import find_spec

import ml_dtypes
import numpy as np
import oracle
import pytest
from numpy.lib.stride_tricks import as_strided

import fastpos
from fastpos import Learned, Linear, Rotary, Sinusoidal

ROPE = Rotary(8)
PE = Sinusoidal(8)
LEARNED = Learned(np.ones((10, 8), np.float32), offset=2)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def x4():
    return ones(2, 3, 4, 8)


def thd():
    return ones(5, 2, 8)


def bsd():
    return ones(2, 3, 8)


def td():
    return ones(5, 8)


def of(name, *shape):
    """Make a function that makes an array of this dtype."""
    return lambda: ones(*(shape or (2, 3, 4, 8)), dtype=name)


def case(error, message, encoding, *arrays, **arguments):
    """One bad call: ``arrays`` and ``arguments`` hold functions where each call needs fresh memory."""
    return error, message, encoding, arrays, arguments


class Tensor:
    """Some other library's array, which NumPy could read."""

    __module__, __qualname__ = "torch", "Tensor"

    def __array__(self, dtype=None, copy=None):
        return x4()


def read_only():
    array = x4()
    array.flags.writeable = False
    return array


def overlapping(*strides):
    return lambda: as_strided(np.ones(512, np.float32), (2, 3, 4, 8), strides)


WHERE = [
    case(TypeError, r"expected start=, positions= or cu_seqlens=", ROPE, x4),
    case(TypeError, r"positions: expected none beside start", ROPE, x4, start=0, positions=[0, 1, 2]),
    case(TypeError, r"positions: expected none beside cu_seqlens", ROPE, x4, positions=[0, 1, 2], cu_seqlens=[0, 3]),
    case(TypeError, r"positions: expected integers that int64 can hold, got float64", ROPE, x4, positions=[0.0, 1.0, 2.0]),
    case(TypeError, r"positions: expected integers that int64 can hold, got float32", ROPE, x4, positions=ones(3)),
    case(TypeError, r"positions: expected integers that int64 can hold, got bool", ROPE, x4, positions=[True, False, True]),
    case(TypeError, r"positions: expected integers that int64 can hold, got object", ROPE, x4, positions=[None, 1, 2]),
    case(ValueError, r"positions: expected shape \(s,\) = \(3,\) or \(b, s\) = \(2, 3\), got \(2,\)",
         ROPE, x4, positions=[0, 1]),
    case(ValueError, r"positions: .*\(b, s\) = \(2, 3\), got \(\)", ROPE, x4, positions=5),
    case(ValueError, r"positions: .*\(b, s\) = \(2, 3\), got \(2, 1\)", ROPE, x4, positions=[[0], [1]]),
    case(ValueError, r"positions: .*\(b, s\) = \(2, 3\), got \(3, 2\)", ROPE, x4, positions=[[0, 1], [2, 3], [4, 5]]),
    case(ValueError, r"positions: .*\(b, s\) = \(2, 3\), got \(2, 3, 1\)",
         ROPE, x4, positions=np.zeros((2, 3, 1), int)),
    case(ValueError, r"positions: expected shape \(t,\) = \(5,\), got \(4,\)", ROPE, thd, positions=range(4)),
    case(ValueError, r"positions: expected at most 2\*\*62, got 18446744073709551615", ROPE, x4,
         positions=np.full(3, 2**64 - 1, np.uint64)),
    case(TypeError, r"start: expected .*integer.*, got 1\.5", ROPE, x4, start=1.5),
    case(TypeError, r"start: expected .*integer.*, got True", ROPE, x4, start=True),
    case(TypeError, r"start: expected .*integer.*, got", ROPE, x4, start="3"),
    case(TypeError, r"start: expected integers that int64 can hold, got float64", ROPE, x4, start=[1.0, 2.0]),
    case(ValueError, r"start: .*\(2,\), one a row or document, got shape \(3,\)", ROPE, x4, start=[0, 1, 2]),
    case(ValueError, r"start: expected one integer, for there is no batch axis", ROPE, thd, start=[0, 1]),
    case(ValueError, r"start: expected within .*2\*\*62, got 9223372036854775808", ROPE, x4, start=2**63),
    case(ValueError, r"cu_seqlens: expected a layout with packed tokens 't'.*'bshd'", ROPE, x4, cu_seqlens=[0, 3]),
    case(ValueError, r"cu_seqlens: expected no decrease, got 4 then 2 at index 2", ROPE, thd, cu_seqlens=[0, 4, 2, 5]),
    case(ValueError, r"cu_seqlens: expected no decrease, got 4611686018427387904 then -9223372036854775808",
         ROPE, thd, cu_seqlens=[0, 2**62, -(2**63), -(2**62), 0, 5]),
    case(TypeError, r"layout: expected a string of letters", ROPE, x4, start=0, layout=["b"]),
    case(ValueError, r"start: expected within \+-2\*\*62", ROPE, x4, start=lambda: np.array(-(2**63))),
    case(ValueError, r"cu_seqlens: expected boundaries from 0 to t = 5, got 1 to 5", ROPE, thd, cu_seqlens=[1, 5]),
    case(ValueError, r"cu_seqlens: expected boundaries from 0 to t = 5, got 0 to 6", ROPE, thd, cu_seqlens=[0, 6]),
    case(ValueError, r"cu_seqlens: expected boundaries from 0 to t = 5, got 0 to 4", ROPE, thd, cu_seqlens=[0, 4]),
    case(ValueError, r"cu_seqlens: expected shape \(documents \+ 1,\), got \(1, 2\)", ROPE, thd, cu_seqlens=[[0, 5]]),
    case(ValueError, r"cu_seqlens: expected shape \(documents \+ 1,\), got \(0,\)", ROPE, thd, cu_seqlens=[]),
    case(TypeError, r"cu_seqlens: expected integers that int64 can hold, got float64", ROPE, thd, cu_seqlens=[0.0, 5.0]),
    case(ValueError, r"start: .*\(2,\), one a row or document, got shape \(3,\)", ROPE, thd, cu_seqlens=[0, 2, 5], start=[0, 1, 2]),
]  # fmt: skip

ROWS = [
    case(IndexError, r"position 8 \(token 2\): expected 0 to 7, .* 10 rows and offset 2", LEARNED, bsd, start=6),
    case(IndexError, r"position -1 \(token 0\): expected 0 to 7, .* 10 rows", LEARNED, bsd, start=-1),
    case(IndexError, r"position 8 \(row 1, token 2\): .* 10 rows", LEARNED, bsd, start=[0, 6]),
    case(IndexError, r"position -3 \(row 1, token 0\): .* 10 rows", LEARNED, bsd, start=[0, -3]),
    case(IndexError, r"position 8 \(row 1, token 0\): .* 10 rows", LEARNED, bsd, positions=[[0, 1, 2], [8, 1, 0]]),
    case(IndexError, r"position -1 \(row 0, token 1\): .* 10 rows", LEARNED, bsd, positions=[0, -1, 2]),
    case(IndexError, r"position 2147483648 \(row 0, token 1\): .* 10 rows", LEARNED, bsd, positions=[0, 2**31, 2]),
    case(IndexError, r"position 8 \(document 1, token 8\): .* 10 rows",
         LEARNED, of(np.float32, 12, 8), cu_seqlens=[0, 3, 12]),
    case(IndexError, r"position 9 \(document 0, token 2\): .* 10 rows",
         LEARNED, td, cu_seqlens=[0, 3, 5], start=[7, 0]),
    case(IndexError, r"position -2 \(document 2, token 0\): .* 10 rows", LEARNED, td, cu_seqlens=[0, 3, 3, 5],
         start=[1, 99, -2]),
]  # fmt: skip

ARRAYS = [
    *(
        case(TypeError, rf"x: expected dtype float32, float16, bfloat16, float64, got {name}", ROPE, of(name), start=0)
        for name in ("int64", "uint8", "bool", "complex64", "complex128", "object")
    ),
    case(TypeError, r"x: expected dtype .*, got float8_e4m3fn", ROPE, of(ml_dtypes.float8_e4m3fn), start=0),
    case(TypeError, r"x: expected dtype .*, got >f4 in foreign byte order", ROPE, of(">f4"), start=0),
    case(TypeError, r"x: expected a NumPy array .*, got numpy\.ma\.MaskedArray",
         ROPE, lambda: np.ma.masked_array(x4(), x4() > 0), start=0),
    case(TypeError, r"x: expected a NumPy array .*, got numpy\.matrix",
         ROPE, lambda: np.ones((3, 8), np.float32).view(np.matrix), start=0),
    case(TypeError, r"x: expected a NumPy array .*, got builtins\.list", ROPE, lambda: [[1.0] * 8], start=0),
    case(TypeError, r"x: expected a NumPy array .*, got torch\.Tensor", ROPE, Tensor, start=0),
    case(TypeError, r"more\[0\]: expected a NumPy array .*, got torch\.Tensor", ROPE, x4, Tensor, start=0),
    case(TypeError, r"more\[0\]: expected dtype float32 like x, got float16", ROPE, x4, of(np.float16), start=0),
    case(ValueError, r"more\[0\]: expected rank 4 like x, got shape \(2, 3, 8\)", ROPE, x4, bsd, start=0),
    case(ValueError, r"x: expected 8 channels on the last axis for Rotary\(.*, got \(2, 3, 4, 6\)",
         ROPE, of(np.float32, 2, 3, 4, 6), start=0),
    case(ValueError, r"more\[1\]: expected 8 channels .*\(2, 3, 4, 10\)",
         ROPE, x4, x4, of(np.float32, 2, 3, 4, 10), start=0),
    case(ValueError, r"x: expected 8 channels .* for Sinusoidal\(.*, got \(2, 3, 9\)",
         PE, of(np.float32, 2, 3, 9), start=0),
    case(ValueError, r"more\[0\]: expected 3 on axis 's' like x, got shape \(2, 4, 4, 8\)",
         ROPE, x4, of(np.float32, 2, 4, 4, 8), start=0),
    case(ValueError, r"more\[0\]: expected 2 on axis 'b' like x, got shape \(1, 3, 4, 8\)",
         ROPE, x4, of(np.float32, 1, 3, 4, 8), start=0),
    case(TypeError, r"encoding: expected first an object made by fastpos\.Rotary, .*, got a NoneType", None, x4, start=0),
    case(TypeError, r"encoding: expected first an object made by fastpos\.Rotary, .*, got a Linear", Linear(2.0), x4, start=0),
    case(ValueError, r"layout: unknown letter 'x' in 'bsxd'", ROPE, x4, start=0, layout="bsxd"),
    case(ValueError, r"layout: unknown letter 'h' in 'bshd'", PE, x4, start=0, layout="bshd"),
    case(ValueError, r"layout: a letter stands twice in 'bssd'", ROPE, x4, start=0, layout="bssd"),
    case(ValueError, r"layout: expected 'd' \(channels\) last, got 'bsdh'", ROPE, x4, start=0, layout="bsdh"),
    case(ValueError, r"layout: expected exactly one of 's' and 't', got 'bhd'",
         ROPE, of(np.float32, 2, 4, 8), start=0, layout="bhd"),
    case(ValueError, r"layout: expected exactly one of 's' and 't', got 'sthd'", ROPE, x4, start=0, layout="sthd"),
    case(ValueError, r"layout: packed tokens 't' have no batch axis, got 'bthd'", ROPE, x4, start=0, layout="bthd"),
    case(ValueError, r"layout: 'bsd' has 3 axes, but the array has 4", ROPE, x4, start=0, layout="bsd"),
    case(TypeError, r"layout: expected a string .*, got 4", ROPE, x4, start=0, layout=4),
    case(ValueError, r"layout: expected one to be named .* rank 2; by default .*'bshd'", ROPE, of(np.float32, 3, 8), start=0),
    case(ValueError, r"layout: expected one to be named .* rank 4; by default .*'bsd'", PE, x4, start=0),
    case(ValueError, r"layout: expected one to be named .* rank 0", PE, lambda: ones(), start=0),
]  # fmt: skip

OUT = [
    case(ValueError, r"out: expected a writeable array, got a read-only one", ROPE, x4, start=0, out=read_only),
    case(ValueError, r"out: expected shape \(2, 3, 4, 8\) like its input, got \(2, 3, 8\)", ROPE, x4, start=0, out=bsd),
    case(TypeError, r"out: expected dtype float32 like its input, got float64", ROPE, x4, start=0, out=of(float)),
    case(TypeError, r"out: expected dtype float32.*, got >f4", ROPE, x4, start=0, out=of(">f4")),
    case(TypeError, r"out: expected a NumPy array .*, got numpy\.ma",
         ROPE, x4, start=0, out=lambda: np.ma.masked_array(x4())),
    case(ValueError, r"out: expected 2 arrays, one for each input, got 1", ROPE, x4, x4, start=0, out=x4),
    case(ValueError, r"out: expected elements apart in memory", ROPE, x4, start=0, out=overlapping(384, 0, 32, 4)),
    case(ValueError, r"out: expected elements apart in memory", ROPE, x4, start=0, out=overlapping(384, 120, 32, 4)),
    case(ValueError, r"out: expected elements apart in memory", ROPE, x4, start=0, out=overlapping(384, 128, 30, 4)),
    case(ValueError, r"out: expected elements apart in memory", ROPE, x4, start=0, out=overlapping(384, 128, 32, 2)),
    case(ValueError, r"out\[1\]: expected shape \(2, 3, 1, 8\)",
         ROPE, x4, of(np.float32, 2, 3, 1, 8), start=0, out=lambda: (x4(), x4())),
]  # fmt: skip


def made(value):
    return value() if callable(value) else value


def memory(*values):
    """Every byte of the arrays among these, and of what they are views of."""
    arrays = [value for item in values for value in (item if isinstance(item, tuple) else (item,))]
    return [np.asarray(a if a.base is None else a.base).tobytes() for a in arrays if isinstance(a, np.ndarray)]


CALLS = [
    pytest.param(function, *call, id=f"{number} {function.__name__}: {call[1]}")
    for number, call in enumerate([*WHERE, *ROWS, *ARRAYS, *OUT])
    for function in (fastpos.apply, fastpos.apply_, fastpos.explain)
    if not (function is fastpos.apply_ and "out" in call[-1])
]


@pytest.mark.parametrize(("function", "error", "message", "encoding", "arrays", "arguments"), CALLS)
def test_refused(backend, function, error, message, encoding, arrays, arguments):
    inputs = [made(array) for array in arrays]
    given = {name: made(value) for name, value in arguments.items()}
    before = memory(*inputs, given.get("out"))
    with pytest.raises(error, match=message) as raised:
        function(encoding, *inputs, **given, backend=backend)
    assert raised.type is error
    assert memory(*inputs, given.get("out")) == before


def tensors(value):
    """Turn arrays into tensors on the same memory; TypeError or ValueError where there is no such tensor."""
    if isinstance(value, tuple):
        return tuple(map(tensors, value))
    if type(value) is not np.ndarray:
        return value
    if not value.flags.writeable:
        raise ValueError("PyTorch knows no read-only tensor")
    from tensors import tensor_of

    return tensor_of(value)


def as_tensors(call):
    """Tell whether a bad call on arrays can be made on tensors too."""
    _, message, _, arrays, arguments = call
    if "NumPy array" in message or "foreign" in message or ">f4" in message:
        return False
    try:
        tensors(tuple(made(value) for value in (*arrays, *arguments.values())))
    except (TypeError, ValueError):
        return False
    return True


TENSOR_CALLS = [call for call in CALLS if as_tensors(call.values[1:])] if find_spec("torch") else []


def test_most_bad_calls_are_made_on_tensors_too():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert len(TENSOR_CALLS) > 0.85 * len(CALLS)


@pytest.mark.parametrize(("function", "error", "message", "encoding", "arrays", "arguments"), TENSOR_CALLS)
@pytest.mark.parametrize("places", ["as given", "as tensors"])
def test_tensors_are_refused_alike(backend, function, error, message, encoding, arrays, arguments, places):
    originals = [made(array) for array in arrays], {name: made(value) for name, value in arguments.items()}
    before = memory(*originals[0], originals[1].get("out"))
    inputs = [tensors(x) for x in originals[0]]
    given = {name: tensors(value) if name == "out" else value for name, value in originals[1].items()}
    for name in ("start", "positions", "cu_seqlens"):
        value = given.get(name)
        if places == "as tensors" and isinstance(value, np.ndarray | list) and len(np.atleast_1d(value)):
            values = np.asarray(value)
            given[name] = value if values.dtype == object else tensors(values)
    with pytest.raises(error, match=message) as raised:
        function(encoding, *inputs, **given, backend=backend)
    assert raised.type is error
    assert memory(*originals[0], originals[1].get("out")) == before


def overlaps():
    """Operands that share memory in a way no order of writing could serve, by name: inputs and outputs."""
    flat = np.ones(400, np.float32)
    shifted = flat[:192].reshape(2, 3, 4, 8), flat[8:200].reshape(2, 3, 4, 8)
    crossed = np.ones((2, 3, 3, 8), np.float32)
    two = np.ones((2, 3, 5, 8), np.float32)
    every_other = np.ones((2, 3, 2, 16), np.float32)
    return {
        "out a row further": ((shifted[0],), (shifted[1],)),
        "out before its input": ((shifted[1],), (shifted[0],)),
        "out transposed": ((crossed,), (crossed.transpose(0, 2, 1, 3),)),
        "out mirrored": ((crossed,), (crossed[:, ::-1],)),
        "one array twice in place": ((crossed, crossed), (crossed, crossed)),
        "q and k overlap in place": ((two[:, :, :3], two[:, :, 2:]), (two[:, :, :3], two[:, :, 2:])),
        "outputs overlap": ((crossed, crossed), (two[:, :, :3], two[:, :, 2:])),
        "out of q is k": ((crossed, crossed + 1), None),
        "channels one further": ((every_other[..., 0:8],), (every_other[..., 1:9],)),
        "third output is the first": ((crossed, crossed, crossed), (two[:, :, :3], crossed + 1, two[:, :, :3])),
    }


@pytest.mark.parametrize("name", overlaps())
@pytest.mark.parametrize("count", [1, 2])
def test_shared_memory_is_refused(backend, threads, name, count):
    threads(count)
    inputs, outputs = overlaps()[name]
    if outputs is None:
        outputs = inputs[1], inputs[0]
    before = memory(*inputs, *outputs)
    with pytest.raises(ValueError, match=r"overlap") as raised:
        fastpos.apply(ROPE, *inputs, start=1, out=outputs, backend=backend)
    assert "out" in str(raised.value)
    assert memory(*inputs, *outputs) == before


def test_read_only_in_place(backend):
    x = read_only()
    with pytest.raises(ValueError, match="read-only"):
        fastpos.apply_(ROPE, x, start=1, backend=backend)
    assert (x == 1).all()
    y = x4()
    fastpos.apply_(ROPE, y, start=1, backend=backend)
    y.flags.writeable = False
    kept = y.copy()
    with pytest.raises(ValueError, match="read-only"):
        fastpos.apply_(ROPE, y, start=1, backend=backend)
    oracle.assert_same(y, kept)


def test_one_bad_row_among_many(backend, rng):
    for _ in range(20):
        at = rng.integers(0, 8, (4, 50))
        row, token = rng.integers(4), rng.integers(50)
        at[row, token] = rng.choice([-1, 8, 2**40, -(2**40)])
        x = ones(4, 50, 8)
        with pytest.raises(IndexError, match=rf"position {at[row, token]} \(row {row}, token {token}\)"):
            fastpos.apply_(LEARNED, x, positions=at, backend=backend)
        assert (x == 1).all()


@pytest.mark.parametrize("n", [0, -3])
def test_threads_below_one(n):
    with pytest.raises(ValueError, match=f"n: expected at least 1, got {n}"):
        fastpos.set_num_threads(n)


@pytest.mark.parametrize("n", [1.5, True, "2"])
def test_threads_that_are_no_number(n):
    with pytest.raises(TypeError, match="n: expected an integer, got"):
        fastpos.set_num_threads(n)


@pytest.mark.parametrize(("error", "message", "arguments"), [
    (TypeError, "expected either start= and length=, or positions=", {}),
    (TypeError, "expected either start= and length=, or positions=", {"start": 0, "positions": [1]}),
    (TypeError, "length: expected how many rows", {"start": 0}),
    (TypeError, "length: expected none beside positions=", {"positions": [1], "length": 1}),
    (ValueError, "length: expected 0 or more, got -1", {"start": 0, "length": -1}),
    (TypeError, r"positions: expected integers .* got float64", {"positions": [0.5]}),
    (ValueError, r"positions: expected shape \(n,\), got \(1, 1\)", {"positions": [[1]]}),
    (IndexError, r"position 8 \(row 1\): expected 0 to 7, .* 10 rows", {"positions": [0, 8]}),
])  # fmt: skip
def test_tables(error, message, arguments):
    with pytest.raises(error, match=message):
        fastpos.table(LEARNED, **arguments)
