"""Frequency scalings as their sources write them, in 300-digit arithmetic, on plain numbers: nothing here is fastpos.

Each gives frequencies in radians a token and the attention factor. ``base``, ``d`` as in the papers; a float enters as
the number that it is.
"""

from mpmath import ceil, exp, floor, log, mpf, pi, sqrt, workdps

DIGITS = 300


def _exactly(formula):
    def computed(*arguments, **options):
        with workdps(DIGITS):
            frequencies, factor = formula(*arguments, **options)
            return [+frequency for frequency in frequencies], +mpf(factor)

    return computed


def _plain(base, d):
    return [exp(-2 * mpf(i) / d * log(mpf(base))) for i in range(d // 2)]


@_exactly
def default(base, d):
    """Su et al. 2021, equation 15."""
    return _plain(base, d), 1


@_exactly
def linear(base, d, factor):
    """Chen et al. 2023: positions m L / L'."""
    return [w / mpf(factor) for w in _plain(base, d)], 1


@_exactly
def dynamic(base, d, factor, trained, length):
    """bloc97's "dynamically scaled RoPE": a new base."""
    n = max(length, trained)
    grown = mpf(base) * (mpf(factor) * n / trained - (mpf(factor) - 1)) ** (mpf(d) / (d - 2))
    return _plain(grown, d), 1


@_exactly
def yarn(base, d, factor, original, fast=32, slow=1, truncate=True, attention=None):
    """Peng et al. 2023, section 3.2 with the correction range of their code, temperature of equation 22."""

    def turns_to_pair(turns):
        return d * log(original / (turns * 2 * pi)) / (2 * log(mpf(base)))

    first, last = turns_to_pair(mpf(fast)), turns_to_pair(mpf(slow))
    if truncate:
        first, last = floor(first), ceil(last)
    first, last = max(first, mpf(0)), min(last, mpf(d - 1))
    width = last - first if last != first else mpf("0.001")
    frequencies = []
    for i, w in enumerate(_plain(base, d)):
        ramp = (i - first) / width
        ramp = 0 if ramp < 0 else 1 if ramp > 1 else ramp
        frequencies.append(w * (1 - ramp) + w / mpf(factor) * ramp)
    return frequencies, 1 + log(mpf(factor)) / 10 if attention is None else attention


@_exactly
def longrope(base, d, divisors, original, factor, attention=None):
    """Ding et al. 2024, with the factor of Phi-3: 1 / (e_i b^(2i/d))."""
    frequencies = [1 / (mpf(e) * mpf(base) ** (2 * mpf(i) / d)) for i, e in enumerate(divisors)]
    grown = sqrt(1 + log(mpf(factor)) / log(mpf(original))) if factor > 1 else 1
    return frequencies, grown if attention is None else attention


@_exactly
def llama3(base, d, factor, original, low=1, high=4):
    """Meta's ``apply_scaling`` of Llama 3.1, in its three branches."""
    frequencies = []
    for w in _plain(base, d):
        wavelength = 2 * pi / w
        if wavelength < original / mpf(high):
            frequencies.append(w)
        elif wavelength > original / mpf(low):
            frequencies.append(w / mpf(factor))
        else:
            smooth = (original / wavelength - mpf(low)) / (mpf(high) - mpf(low))
            frequencies.append((1 - smooth) * w / mpf(factor) + smooth * w)
    return frequencies, 1


@_exactly
def proportional(base, d, share, factor=1.0):
    """Barbero et al. 2024, p-RoPE: the slowest pairs stand still."""
    turning = int(d * share) // 2
    return [w / mpf(factor) if i < turning else mpf(0) for i, w in enumerate(_plain(base, d))], 1


def turns(frequency):
    """The fraction of a turn a token, an integer in units of 2**-128."""
    with workdps(DIGITS):
        return int(floor(frequency / (2 * pi) * 2**128)) % 2**128
