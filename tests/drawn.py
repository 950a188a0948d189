"""One drawn call on tensors, against what arrays get."""

import numpy as np
import oracle
import torch
from hypothesis import strategies as st
from tensors import array_of, tensor_of
from views import lyings, patterns, stands, surroundings

import fastpos


def _is_plain(encoding):
    """Whether Numba's kernel carries short sinusoids of this kind from anchors, which Triton's does not."""
    waves = encoding.waves
    unusual = waves.zeros or waves.cosine_first or waves.padding_index is not None or waves.real
    return waves.sines == waves.cosines and not unusual and encoding.scale == 1.0


def _exact_sinusoids(encoding, values, layout, at):
    """``values * embedding_scale`` plus the sinusoids of their positions (b, s), in high precision."""
    cos, sin = oracle.waves(at.ravel(), oracle.geometric(encoding.base, encoding.width))
    rows = oracle.join(sin, cos, encoding.interleaved).reshape(*at.shape, -1)
    rows = rows.swapaxes(0, 1) if layout == "sbd" else rows if layout == "bsd" else rows[0]
    return ((oracle.integers(values) * oracle.integers(encoding.embedding_scale)) >> oracle.SCALE) + rows


def check_a_drawn_call(data, encoding, kind, backend=None):
    """Draw a layout, sizes, positions, a dtype and how memory lies; the bits must be those that NumPy arrays get.

    Short sinusoids, which kernels make in different ways, must be right to one rounding.
    """
    layout = data.draw(
        st.sampled_from(["bshd", "bhsd", "thd", "shd"] if kind == "rotary" else ["bsd", "sbd", "td", "sd"])
    )
    sizes = {"b": data.draw(st.integers(1, 3)), "h": data.draw(st.integers(1, 5)), "d": encoding.width}
    sizes["s"] = sizes["t"] = tokens = data.draw(st.integers(1, 5))
    stand = data.draw(stands(sizes["b"] if "b" in layout else 1, tokens, layout, encoding))
    dtype = data.draw(st.sampled_from(sorted(oracle.DTYPES)))
    shape = [sizes[letter] for letter in layout]
    values = np.random.default_rng(3).standard_normal(shape).astype(oracle.DTYPES[dtype])
    want = fastpos.apply(encoding, values, **stand.arguments, layout=layout)
    place = dict(stand.arguments)
    for name, value in place.items():
        if isinstance(value, np.ndarray) and value.dtype.isnative and all(step >= 0 for step in value.strides):
            place[name] = tensor_of(value.copy())
    way = data.draw(st.sampled_from(["new", "in place", "out"]))
    lying = data.draw(lyings(len(shape)))
    lying.steps = tuple(map(abs, lying.steps))
    lying.odd = False
    lying.offset -= lying.offset % values.itemsize
    array, buffer = lying.place(values)
    around = surroundings(array, buffer)
    x = tensor_of(array)
    carried = backend == "triton" and kind == "sinusoidal" and values.itemsize == 2 and _is_plain(encoding)
    exact = _exact_sinusoids(encoding, values, layout, stand.at) if carried else None
    for _ in range(2):
        patterns(array)[...] = patterns(values)
        if way == "new":
            result = fastpos.apply(encoding, x, **place, layout=layout, backend=backend)
            assert result.stride() == torch.empty_like(x).stride()
        elif way == "out":
            result = tensor_of(np.empty_like(values))
            assert fastpos.apply(encoding, x, **place, layout=layout, backend=backend, out=result) is result
        else:
            assert fastpos.apply_(encoding, x, **place, layout=layout, backend=backend) is x
            result = x
        assert result.dtype == x.dtype
        if exact is None:
            oracle.assert_same(array_of(result), want)
        else:
            size = np.abs(values.astype(np.float64)) * encoding.embedding_scale + 1
            limit = oracle.ulp(exact, dtype) / 2 + oracle.FLOAT32_ERROR * size
            oracle.assert_close(array_of(result), exact, limit)
        if way != "in place":
            oracle.assert_same(array, values)
    assert surroundings(array, buffer) == around
