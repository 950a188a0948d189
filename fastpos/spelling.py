"""Encodings in words: what stands in a traced graph, and is read again wherever that graph is loaded.

The words are the encoding's own ``repr``. They are read as a tree of constructor calls with literal arguments: a graph
from a file can name an encoding, and nothing else.
"""

import ast
from dataclasses import replace
from functools import lru_cache
from typing import Any

from . import scaling
from .axes import Axes
from .encodings import Rotary, Sinusoidal
from .queries import Llama4Scale, LogScale, MinistralScale

SCALINGS = (getattr(scaling, name) for name in scaling.__all__ if name != "Scaling")
KNOWN: dict[str, Any] = {
    known.__name__: known for known in (Rotary, Sinusoidal, Axes, Llama4Scale, LogScale, MinistralScale, *SCALINGS)
}


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KNOWN:
        if not all(keyword.arg for keyword in node.keywords):
            raise ValueError("expected named arguments alone")
        named = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return KNOWN[node.func.id](*map(_value, node.args), **named)
    return ast.literal_eval(node)


@lru_cache(maxsize=256)
def read(words: str) -> Rotary | Sinusoidal:
    """The encoding that ``repr`` spelled."""
    try:
        encoding = _value(ast.parse(words, mode="eval").body)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ValueError(
            f"encoding: expected what repr of a Rotary or Sinusoidal gives, got {words!r}: {error}"
        ) from error
    if not isinstance(encoding, Rotary | Sinusoidal):
        raise ValueError(f"encoding: expected what repr of a Rotary or Sinusoidal gives, got {words!r}")
    return encoding


@lru_cache(maxsize=256)
def keys_alone(words: str) -> str:
    """The same encoding for arrays after the first of a call, which no scale of queries is for."""
    encoding = read(words)
    return replace(encoding, query_scale=None).spelling if isinstance(encoding, Rotary) else words
