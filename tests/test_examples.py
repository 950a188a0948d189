"""Forms written by hand, as most code has them, are the lines of fastpos beside them: ``examples/*_form.py``."""

import sys
from pathlib import Path

import children
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the forms are written with it")
EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import complex_form  # noqa: E402
import half_form  # noqa: E402
import learned_form  # noqa: E402


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


# Data of at most 5, and two float32 sums of two products each.
ROUNDING = {"rtol": 0, "atol": 5 * 4 * 2.0**-23}


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("start", [0, 4000])
def test_metas_complex_form(start, base):
    q, k = torch.randn(2, 33, 4, 64).clamp(-5, 5), torch.randn(2, 33, 2, 64).clamp(-5, 5)
    table = complex_form.waves(64, start + 33, base)[start:]
    for hand, ours in zip(complex_form.by_hand(q, k, table), complex_form.by_fastpos(q, k, start, base), strict=True):
        torch.testing.assert_close(ours, hand, **ROUNDING)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_the_halves_of_transformers(base):
    q, k = torch.randn(2, 4, 33, 64).clamp(-5, 5), torch.randn(2, 2, 33, 64).clamp(-5, 5)
    positions = torch.randint(0, 9000, (2, 33))
    cos, sin = half_form.waves(64, positions, base)
    for hand, ours in zip(half_form.by_hand(q, k, cos, sin), half_form.by_fastpos(q, k, positions, base), strict=True):
        torch.testing.assert_close(ours, hand, **ROUNDING)


def test_nanogpts_learned_table():
    wte, wpe = torch.nn.Embedding(50, 48), torch.nn.Embedding(40, 48)
    tokens = torch.randint(0, 50, (3, 9))
    results, gradients = [], []
    for form in (learned_form.by_hand, learned_form.by_fastpos):
        results.append(form(tokens, wte, wpe, 31))
        gradients.append(torch.autograd.grad(results[-1].square().sum(), (wte.weight, wpe.weight)))
    assert torch.equal(*results)
    for hand, ours in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, hand, rtol=1e-6, atol=1e-5)
    with pytest.raises(IndexError):
        learned_form.by_fastpos(tokens, wte, wpe, 32)


@pytest.mark.parametrize(
    ("name", "said"),
    [("complex", "largest difference"), ("half", "largest difference"), ("learned", "the same bits: True")],
)
def test_a_form_runs_alone(name, said):
    code = f"import runpy; runpy.run_path({str(EXAMPLES / f'{name}_form.py')!r}, run_name='__main__')"
    assert said in children.child(code)[0]
