"""Frequency scalings: rules from the plain frequencies of a rotation to those a model was trained with, and one factor.

Letters of formulas: i pair, d ``rotary_dim``, b ``base``, s ``factor``, ``w_i = b ** (-2 i / d)`` the plain frequency in
radians a token, w'_i the scaled one, L0 ``original_max_position_embeddings``, L ``max_position_embeddings``, A what
cosines and sines are multiplied with (1 where nothing else is said), ln the natural logarithm.
"""

from .by_length import DynamicNTK, LongRoPE
from .fixed import AttentionFactor, Linear, Llama3, Proportional
from .rule import Scaling
from .yarn import YaRN

__all__ = ["AttentionFactor", "DynamicNTK", "Linear", "Llama3", "LongRoPE", "Proportional", "Scaling", "YaRN"]
