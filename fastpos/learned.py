"""Learned tables of absolute positions: the frozen description, and which row a model's config means."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from .fields import integer

# Rows before that of position 0, by ``model_type``; names of transformers. Two: ``self.offset = 2`` in the model's file.
# From padding: ids are padding_idx + 1 on (``create_position_ids_from_input_ids``), padding_idx is ``pad_token_id``.
DIRECT = (
    "albert bert bert-generation big_bird convbert distilbert electra ernie gpt2 gpt_bigcode gpt_neo imagegpt megatron-bert "
    "mobilebert nystromformer openai-gpt rembert roc_bert splinter squeezebert whisper yoso"
).split()
TWO = "bart biogpt mbart mvp opt plbart trocr".split()
FROM_PADDING = (
    "camembert data2vec-text esm ibert lilt longformer luke mpnet roberta roberta-prelayernorm xlm-roberta xlm-roberta-xl xmod"
).split()


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained table of absolute positions: ``y = x + table[p + offset]``.

    Parameters
    ----------
    table
        ``(rows, width)`` in float32, float16, bfloat16 or float64. A NumPy array is copied, so that later changes to the
        caller's do not change what this encoding is. A PyTorch tensor is kept as it is, for it may be trained: calls read
        it as it then stands, and it gets its gradient. Two ``Learned`` are equal only when they are the same object.
    offset
        Rows before the row of position 0 (2 for OPT and BART, padding index + 1 for RoBERTa; ``from_config`` knows). A
        position whose row does not exist is an IndexError.

    Examples
    --------
    >>> Learned(np.zeros((1024, 768), np.float32)).width
    768
    """

    table: Any = field(repr=False)
    _: KW_ONLY
    offset: int = 0

    @classmethod
    def from_config(cls, table: Any, config: Any) -> "Learned":
        """A checkpoint's table with the offset of its model.

        Positions count tokens from 0: rows before the offset are padding's, which positions do not name.

        Parameters
        ----------
        table
            ``(rows, width)``, as the checkpoint has it.
        config
            Its config, as of ``Rotary.from_config``: ``model_type``, and for RoBERTa's family ``pad_token_id``.

        Returns
        -------
        Learned
            With offset 0 for GPT-2, BERT and Whisper's decoder, 2 for OPT and BART, ``pad_token_id + 1`` for RoBERTa.

        Raises
        ------
        ValueError, TypeError, OSError
            For a model type that is not known here, one without the ``pad_token_id`` that it needs, or no config.

        Examples
        --------
        >>> table = np.zeros((514, 768), np.float32)
        >>> Learned.from_config(table, {"model_type": "roberta", "pad_token_id": 1}).offset
        2
        """
        from .configs.values import load

        config = load(config)
        kind = config.get("model_type")
        if kind in FROM_PADDING:
            padding = config.get("pad_token_id")
            if padding is None:
                raise ValueError(
                    f"config: expected pad_token_id for the model type {kind!r}, whose rows begin after it"
                )
            return cls(table, offset=integer("pad_token_id", padding, 0, 1 << 31) + 1)
        if kind in DIRECT or kind in TWO:
            return cls(table, offset=2 if kind in TWO else 0)
        known = ", ".join(sorted((*DIRECT, *TWO, *FROM_PADDING)))
        raise ValueError(
            f"config: model type {kind!r} is not known to have a learned table of positions; give Learned(table, offset=) "
            f"yourself. Known: {known}"
        )

    def __post_init__(self) -> None:
        if isinstance(self.table, np.ma.MaskedArray):
            raise TypeError("table: expected a plain array, got a masked array")
        table = self.table if self.is_tensor else np.asarray(self.table)
        dtype = _name(table.dtype)
        if dtype not in ("float32", "float16", "bfloat16", "float64"):
            raise TypeError(f"table: expected float32, float16, bfloat16 or float64, got {table.dtype}")
        if table.ndim != 2 or 0 in table.shape:
            raise ValueError(f"table: expected shape (rows, width), got {tuple(table.shape)}")
        if not self.is_tensor:
            table = np.array(table, dtype=table.dtype.newbyteorder("="), order="C")
            table.flags.writeable = False
            object.__setattr__(self, "table", table)
        object.__setattr__(self, "offset", integer("offset", self.offset, 0, len(table) - 1))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a pickled or copied state; NumPy does not carry over that the table is read-only."""
        self.__dict__.update(state)
        if not self.is_tensor:
            self.table.flags.writeable = False

    @property
    def is_tensor(self) -> bool:
        """Whether the table is a PyTorch tensor."""
        return hasattr(type(self.table), "__torch_function__")

    @property
    def width(self) -> int:
        """Channels."""
        return int(self.table.shape[1])

    def __repr__(self) -> str:
        rows, width = self.table.shape
        return f"Learned(rows={rows}, width={width}, dtype={_name(self.table.dtype)}, offset={self.offset})"


def _name(dtype: Any) -> str:
    """``float32`` for NumPy's and PyTorch's."""
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
