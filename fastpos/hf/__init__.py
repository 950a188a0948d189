"""One line for transformers: a live model's queries and keys rotated by fastpos, proven on the model itself.

import fastpos.hf

report = fastpos.hf.patch(model)  # or: with fastpos.hf.patch(model): ...
print(report)
fastpos.hf.unpatch(model)
"""

from .patching import patch, unpatch
from .report import Part, Report

__all__ = ["Part", "Report", "patch", "unpatch"]
