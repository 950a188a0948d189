"""The README is executed: its Python, and the two commands' names; docstrings are executed too."""

import doctest
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fastpos

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages(fastpos.__path__, "fastpos.") if not name.endswith("__main__")
)


def test_python_of_the_readme(tmp_path, monkeypatch):
    """All blocks in one namespace, in order, as a reader would type them; without PyTorch, those that need none."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 5
    names = {}
    for block in blocks:
        if not ("torch" in block or "transformers" in block) or find_spec("torch"):
            exec(compile(block, "README.md", "exec"), names)


@pytest.mark.parametrize("name", ["accuracy", "speed", "peers"])
def test_tables_of_the_readme_are_filled(name):
    """They are written by ``.ci/tables.py``."""
    table = README.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    assert table.count("\n| ") >= 10


def test_messages_in_the_readme(rng):
    """The messages quoted under "Gotchas" are those that calls raise."""
    quoted = re.findall(r"^\| `(\w+Error): (.*?)` \|", README, re.MULTILINE)
    assert len(quoted) >= 5
    x, rope = rng.standard_normal((1, 3, 2, 8)).astype("float32"), fastpos.Rotary(8)
    learned = fastpos.Learned(rng.standard_normal((16, 8)))
    said = set()
    for call in (
        lambda: fastpos.apply(rope, x),
        lambda: fastpos.apply(rope, x, positions=[0, 1, 2, 3]),
        lambda: fastpos.apply(rope, x.tolist(), start=0),
        lambda: fastpos.apply(learned, x[:, :, 0].astype("float64"), start=14),
        lambda: fastpos.apply(rope, x, start=0, out=x[:, ::-1]),
        lambda: fastpos.apply(rope, x, x.astype("float64"), start=0),
        lambda: fastpos.apply(rope, x, start=0, backend="triton"),
    ):
        with pytest.raises((TypeError, ValueError, IndexError)) as error:
            call()
        said.add((type(error.value).__name__, str(error.value)))
    for kind, message in quoted:
        assert any(kind == other and message.rstrip(".") in text for other, text in said), message


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    """Each example in a docstring runs and gives what it says."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "transformers", "triton", "jax", "onnx", "onnxruntime"):
            pytest.skip(f"{error.name} is not installed")
        raise
    known = {"np": np, "fastpos": fastpos} | {name: getattr(fastpos, name) for name in fastpos.__all__}
    result = doctest.testmod(
        module, extraglobs={name: value for name, value in known.items() if name not in vars(module)}
    )
    assert result.failed == 0
