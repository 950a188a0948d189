"""Frequency scalings: each against its source's formula in 300 digits, and refused with the value in the text."""

import decimal
from decimal import Decimal

import formulas
import numpy as np
import oracle
import pytest
from children import child
from hypothesis import assume, given
from hypothesis import strategies as st

import fastpos
from fastpos import Rotary
from fastpos.frequencies import rates
from fastpos.scaling import AttentionFactor, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN

bases = st.sampled_from([100.0, 1e4, 5e5, 1e6, 1e7]) | st.floats(10, 1e8)
widths = st.sampled_from([4, 8, 64, 80])
growths = st.sampled_from([1.0, 2.0, 4.0, 8.0, 32.0, 40.0]) | st.floats(1, 100)
contexts = st.sampled_from([2048, 4096, 8192, 32768, 131072]) | st.integers(300, 1 << 20)


def check(rope, right):
    """Compare words, what was lost in them, and the factor with the exact frequencies."""
    frequencies, factor = right
    clock = rates(rope)
    assert len(clock.words) == len(frequencies)
    for word, residual, frequency in zip(clock.words, clock.residuals, frequencies, strict=True):
        off = (int(word) << 64) + int(float(residual) * 2.0**128) - formulas.turns(frequency)
        assert abs((off + 2**127) % 2**128 - 2**127) < 2**12, (int(word), frequency)
    assert clock.factor == pytest.approx(float(factor), rel=3e-16)


@given(bases, widths, growths)
def test_linear(base, d, factor):
    check(Rotary(d, base=base, scaling=Linear(factor)), formulas.linear(base, d, factor))


@given(bases, widths, growths, contexts, st.integers(0, 1 << 22))
def test_dynamic(base, d, factor, trained, length):
    rope = Rotary(d, base=base, scaling=DynamicNTK(factor, trained)).at_length(length)
    check(rope, formulas.dynamic(base, d, factor, trained, length))
    assert rope == Rotary(d, base=base, scaling=DynamicNTK(factor, trained)).at_length(max(length, trained))


@given(bases, widths, growths, contexts, st.booleans(), st.floats(2, 64), st.floats(0.5, 2))
def test_yarn(base, d, factor, original, truncate, fast, slow):
    """Where so small a base lets every pair turn often there is no ramp, and its formula gives nonsense: refused below."""
    assume(base >= 1000 and d > 4)
    rope = Rotary(d, base=base, scaling=YaRN(factor, original, beta_fast=fast, beta_slow=slow, truncate=truncate))
    check(rope, formulas.yarn(base, d, factor, original, fast, slow, truncate))


@given(bases, widths, growths, contexts, st.data())
def test_longrope(base, d, factor, original, data):
    short, long = (data.draw(st.lists(st.floats(0.5, 60), min_size=d // 2, max_size=d // 2)) for _ in range(2))
    rope = Rotary(d, base=base, scaling=LongRoPE(short, long, original, factor))
    for length in (0, 1, original, original + 1, 10 * original):
        divisors = long if length > original else short
        check(rope.at_length(length), formulas.longrope(base, d, divisors, original, factor))
    assert rope.at_length(1) is rope.at_length(original)
    assert rope.at_length(original + 1) is rope.at_length(10 * original)


@given(bases, widths, growths, contexts, st.floats(0.1, 2), st.floats(2.1, 9))
def test_llama3(base, d, factor, original, low, high):
    scaling = Llama3(factor, original, low_freq_factor=low, high_freq_factor=high)
    check(Rotary(d, base=base, scaling=scaling), formulas.llama3(base, d, factor, original, low, high))


@given(bases, widths, st.floats(0.1, 9))
def test_a_factor_alone(base, d, factor):
    frequencies, _ = formulas.default(base, d)
    given = [float(frequency) for frequency in frequencies]
    check(Rotary(d, base=base, scaling=AttentionFactor(factor)), (frequencies, factor))
    check(Rotary(d, inv_freq=given, scaling=AttentionFactor(factor)), (given, factor))


@given(bases, widths, st.floats(0.01, 1), growths)
def test_proportional(base, d, share, factor):
    rope = Rotary(d, base=base, scaling=Proportional(share, factor=factor))
    check(rope, formulas.proportional(base, d, share, factor))


@pytest.mark.parametrize(
    ("rope", "right"),
    [
        (
            Rotary(64, base=150000.0, scaling=YaRN(32.0, 4096, truncate=False)),
            formulas.yarn(150000.0, 64, 32.0, 4096, truncate=False),
        ),
        (
            Rotary(64, scaling=YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)),
            formulas.yarn(1e4, 64, 40.0, 4096, attention=1),
        ),
        (Rotary(128, base=5e5, scaling=Llama3(8.0, 8192)), formulas.llama3(5e5, 128, 8.0, 8192)),
        (
            Rotary(128, base=5e5, scaling=Llama3(16.0, 8192, low_freq_factor=1.0, high_freq_factor=1.0)),
            formulas.llama3(5e5, 128, 16.0, 8192, 1, 1),
        ),
        (Rotary(8, inv_freq=(-1.0, -0.01, 1e-5, 0.0), scaling=Llama3(8.0, 64)), ([-1, -0.00125, 1.25e-6, 0], 1)),
        (Rotary(80, rotary_dim=32, scaling=Linear(2.0)), formulas.linear(1e4, 32, 2.0)),
        (Rotary(64, scaling=YaRN(1.0, 4096)), formulas.default(1e4, 64)),
        (Rotary(64, base=2.0, scaling=Llama3(8.0, 8192)), formulas.llama3(2.0, 64, 8.0, 8192)),
        (Rotary(4, scaling=YaRN(4.0, 64)), formulas.yarn(1e4, 4, 4.0, 64)),
        (Rotary(4, base=1e-300, scaling=Linear(1e-20)), formulas.linear(1e-300, 4, 1e-20)),
        (Rotary(4, base=1e-30, scaling=Proportional()), formulas.default(1e-30, 4)),
    ],
    ids=[
        "gpt-oss",
        "deepseek",
        "llama 3.1",
        "llama 4",
        "backwards",
        "partial",
        "factor 1",
        "all kept",
        "equal ends",
        "huge",
        "all turn",
    ],
)
def test_single(rope, right):
    check(rope, right)


@pytest.mark.parametrize(
    ("scaling", "factor"),
    [
        (YaRN(16.0, 4096), 1.2772588722239782),
        (YaRN(16.0, 4096, attention_factor=0.5, mscale=1.0, mscale_all_dim=2.0), 0.5),
        (YaRN(40.0, 4096, mscale=0.707, mscale_all_dim=0.707), 1.0),
        (YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=0.5), 1.3688879454113936 / 1.1844439727056968),
        (YaRN(40.0, 4096, mscale=2.0), 1.3688879454113936),
        (YaRN(40.0, 4096, mscale=2.0, mscale_all_dim=0), 1.3688879454113936),
        (YaRN(40.0, 4096, mscale=0, mscale_all_dim=2.0), 1.3688879454113936),
        (YaRN.deepseek(40.0, 4096), 1.3688879454113936),
        (YaRN.deepseek(40.0, 4096, mscale=2.0), 1.7377758908227871),
        (YaRN.deepseek(40.0, 4096, mscale=0.707, mscale_all_dim=0.707), 1.0),
        (YaRN.deepseek(40.0, 4096, mscale=0.0, mscale_all_dim=1.0), 1 / 1.3688879454113936),
        (LongRoPE([1.0], [2.0], 4096, 32.0), 1.1902380714238083),
        (LongRoPE([1.0], [2.0], 4096, 1.0), 1.0),
        (LongRoPE([1.0], [2.0], 4096, 32.0, attention_factor=1.25), 1.25),
        (Linear(8.0), 1.0),
        (Llama3(8.0, 8192), 1.0),
        (Proportional(0.25), 1.0),
        (DynamicNTK(8.0, 8192), 1.0),
    ],
    ids=repr,
)
def test_attention_factor(scaling, factor):
    """m(16) = 1 + 0.1 ln 16, m(40) = 1 + 0.1 ln 40; sqrt(1 + ln 32 / ln 4096) = sqrt(17 / 12)."""
    assert scaling.attention_scaling == pytest.approx(factor, rel=2e-16)


def test_a_callers_decimal_context_does_not_count():
    with decimal.localcontext(decimal.Context(prec=3)):
        coarse = [scaling.attention_scaling for scaling in (YaRN(7.0, 4096), LongRoPE([1.0], [2.0], 4096, 7.0))]
        scaling = YaRN(7.0, 4097)
        words = rates(Rotary(64, scaling=scaling)).words
    fine = [scaling.attention_scaling for scaling in (YaRN(7.0, 4096), LongRoPE([1.0], [2.0], 4096, 7.0))]
    assert coarse == fine
    rates.cache_clear()
    np.testing.assert_array_equal(words, rates(Rotary(64, scaling=scaling)).words)


def test_own_frequencies_are_scaled():
    own = (1.0, 0.3, 0.02, 0.001)
    for scaling, rule in [
        (Llama3(8.0, 64), lambda: None),
        (LongRoPE((1.0, 2.0, 3.0, 4.0), (2.0,) * 4, 64, 2.0, length=1), lambda: [1.0, 0.15, 0.02 / 3, 0.00025]),
        (Linear(4.0), lambda: [w / 4 for w in own]),
        (Proportional(0.5), lambda: [1.0, 0.3, 0.0, 0.0]),
    ]:
        clock = rates(Rotary(8, inv_freq=own, scaling=scaling))
        expected = rule() or [1.0, 0.3, 0.02 / 8, 0.001 / 8]
        if isinstance(scaling, Llama3):  # 64 / wavelength of 0.02 is 0.2 turns, of 0.3 is 3.06: in the ramp of 1 to 4
            smooth = (64 * 0.3 / (2 * np.pi) - 1) / 3
            expected[1] = (1 - smooth) * 0.3 / 8 + smooth * 0.3
        np.testing.assert_allclose(
            clock.words.astype(float) / 2**64 % 1.0 * 2 * np.pi, expected, rtol=1e-14, atol=1e-18
        )


@pytest.mark.parametrize("scaling", [YaRN(16.0, 4096), LongRoPE([1.0] * 4, [2.0] * 4, 8, 32.0, length=9)], ids=repr)
def test_the_factor_reaches_the_data_and_the_rest_passes(backend, rng, scaling):
    x = rng.standard_normal((1, 3, 2, 12))
    rope = Rotary(12, rotary_dim=8, scaling=scaling)
    turned = fastpos.apply(rope, x, start=0, backend=backend)
    oracle.assert_same(turned[..., 8:], x[..., 8:])
    np.testing.assert_allclose(turned[:, 0, :, :8], scaling.attention_scaling * x[:, 0, :, :8], rtol=1e-15)
    length = np.hypot(*np.split(turned[..., :8], 2, axis=-1)) / np.hypot(*np.split(x[..., :8], 2, axis=-1))
    np.testing.assert_allclose(length, scaling.attention_scaling, rtol=1e-14)
    cos, sin = fastpos.table(rope, positions=[0, 5])
    np.testing.assert_allclose(np.hypot(cos, sin), scaling.attention_scaling, rtol=1e-14)
    shifted = fastpos.shift_(rope, turned.copy(), by=4, backend=backend)
    np.testing.assert_allclose(shifted, fastpos.apply(rope, x, start=4, backend=backend), atol=1e-14)


def test_pairs_that_stand_still_pass_bit_for_bit(backend, rng):
    for dtype in oracle.DTYPES.values():
        x = rng.standard_normal((1, 4, 2, 64)).astype(dtype)
        turned = fastpos.apply(Rotary(64, scaling=Proportional(0.25)), x, start=10**6, backend=backend)
        for half in (slice(8, 32), slice(40, 64)):
            oracle.assert_same(turned[..., half], x[..., half])
        for half in (slice(0, 8), slice(32, 40)):
            assert (turned[..., half] != x[..., half]).all()


LISTS = ([1.0, 1.0], [2.0, 2.0])


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: YaRN(0.5, 4096), ValueError, r"factor: expected a finite number of at least 1, got 0\.5"),
    (lambda: YaRN(float("nan"), 4096), ValueError, "factor: expected .*, got nan"),
    (lambda: YaRN(float("inf"), 4096), ValueError, "factor: expected .*, got inf"),
    (lambda: YaRN(10**400, 4096), ValueError, "factor: expected a finite number, got an integer of 401 digits"),
    (lambda: YaRN("16", 4096), TypeError, "factor: expected a number, got '16'"),
    (lambda: YaRN(True, 4096), TypeError, "factor: expected a number, got True"),
    (lambda: YaRN(16.0, 4096.0), TypeError, r"original_max_position_embeddings: expected an integer, got 4096\.0"),
    (lambda: YaRN(16.0, 0), ValueError, "original_max_position_embeddings: expected 1 to 9007199254740992, got 0"),
    (lambda: YaRN(16.0, 4096, beta_fast=0), ValueError, "beta_fast: expected a finite number above 0, got 0"),
    (lambda: YaRN(16.0, 4096, beta_slow=-1.0), ValueError, r"beta_slow: .*, got -1\.0"),
    (lambda: YaRN(16.0, 4096, beta_fast=1, beta_slow=2), ValueError, "beta_fast: expected at least beta_slow = 2, got 1"),
    (lambda: YaRN(16.0, 4096, truncate=0), TypeError, "truncate: expected True or False, got 0"),
    (lambda: YaRN(16.0, 4096, attention_factor=0), ValueError, "attention_factor: .* above 0, got 0"),
    (lambda: YaRN(16.0, 4096, mscale=-1), ValueError, "mscale: expected a finite number of at least 0, got -1"),
    (lambda: YaRN(16.0, 4096, mscale_all_dim="1"), TypeError, "mscale_all_dim: expected a number, got '1'"),
    (lambda: Rotary(8, inv_freq=[1.0] * 4, scaling=YaRN(2.0, 64)), ValueError, "scaling: YaRN .* none beside inv_freq"),
    (lambda: Rotary(8, base=1.0, scaling=YaRN(2.0, 64)), ValueError, "base: expected above 1, .* logarithm, got 1"),
    (lambda: Rotary(8, scaling=YaRN(2.0, 3, truncate=False)), ValueError, r"scaling: expected a ramp .*, got 0\.00 to -0\.32"),
    (lambda: Rotary(4, base=10.0, scaling=YaRN(2.0, 2048, beta_fast=2)), ValueError, r"got 4\.00 to 3\.00 of 2 pairs with base 10"),
    (lambda: Linear(10**400), ValueError, "factor: .* an integer of 401 digits"),
    (lambda: DynamicNTK(0.5, 4096), ValueError, r"factor: expected .* of at least 1, got 0\.5"),
    (lambda: DynamicNTK(2.0, -1), ValueError, "max_position_embeddings: expected 1 to .*, got -1"),
    (lambda: DynamicNTK(2.0, 4096, length=-1), ValueError, "length: expected 0 to .*, got -1"),
    (lambda: DynamicNTK(2.0, 4096, length=1.5), TypeError, r"length: expected an integer, got 1\.5"),
    (lambda: Rotary(2, scaling=DynamicNTK(2.0, 4096)), ValueError, "DynamicNTK divides by rotary_dim - 2, .* got 2"),
    (lambda: Rotary(8, rotary_dim=2, scaling=DynamicNTK(2.0, 4096)), ValueError, "DynamicNTK divides .* got 2"),
    (lambda: LongRoPE([1.0, 0.0], [1.0, 1.0], 64, 2.0), ValueError, r"short_factor\[1\]: .* above 0, got 0\.0"),
    (lambda: LongRoPE([1.0, 1.0], [1.0, "2"], 64, 2.0), TypeError, r"long_factor\[1\]: expected a number, got '2'"),
    (lambda: LongRoPE(1.0, [1.0], 64, 2.0), TypeError, r"short_factor: expected a list of numbers, got 1\.0"),
    (lambda: LongRoPE([], [], 64, 2.0), TypeError, r"short_factor: expected a list of numbers, got \[\]"),
    (lambda: LongRoPE(*LISTS, 1, 2.0), ValueError, "original_max_position_embeddings: expected 2 to .*, got 1"),
    (lambda: LongRoPE(*LISTS, 64, 0.5), ValueError, r"^factor: expected .* at least 1, got 0\.5"),
    (lambda: LongRoPE(*LISTS, 64, 2.0, attention_factor=-1), ValueError, "attention_factor: .*, got -1"),
    (lambda: Rotary(8, scaling=LongRoPE(*LISTS, 64, 2.0)), ValueError, "short_factor: .* rotary_dim / 2 = 4 .*, got 2"),
    (lambda: Rotary(4, scaling=LongRoPE([1.0, 1.0], [1.0], 64, 2.0)), ValueError, "long_factor: .* = 2 numbers, got 1"),
    (lambda: Llama3(0.9, 8192), ValueError, r"factor: expected a finite number of at least 1, got 0\.9"),
    (lambda: Llama3(8.0, None), TypeError, "original_max_position_embeddings: expected an integer, got None"),
    (lambda: Llama3(8.0, 8192, low_freq_factor=0), ValueError, "low_freq_factor: .* above 0, got 0"),
    (lambda: Llama3(8.0, 8192, high_freq_factor=0.9), ValueError, r"high_freq_factor: .* low_freq_factor = 1, got 0\.9"),
    (lambda: Proportional(0), ValueError, "partial_rotary_factor: .* above 0 and at most 1, got 0"),
    (lambda: Proportional(1.5), ValueError, r"partial_rotary_factor: .* at most 1, got 1\.5"),
    (lambda: Proportional(factor=0), ValueError, "factor: .* above 0, got 0"),
    (lambda: Rotary(8, rotary_dim=4, scaling=Proportional(0.5)), ValueError, "rotary_dim: expected head_dim = 8 .*, got 4"),
])  # fmt: skip
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_scaling_is_a_rule_alone():
    """Each computes in the context that it is given, so that frequencies of any size can have the digits they need."""
    plain = [Decimal(1), Decimal("0.1")]
    with decimal.localcontext(decimal.Context(prec=120)):
        (first, _) = Linear(3.0).scaled(plain, None, Decimal(6))
    assert first == Decimal("0." + 120 * "3")


def test_rules_are_seen_before_they_are_imported():
    """They are imported when one is asked for, and listed all the same."""
    said = child(
        "import fastpos; print(set(fastpos.scaling.__all__) <= set(dir(fastpos.scaling)), 'Linear' in dir(fastpos))"
    )
    assert said[0] == "True True"
