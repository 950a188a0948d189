"""One rounding from float64 to the type of a result."""

import numpy as np


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Float64 ``values`` rounded once to nearest even.

    ml_dtypes takes float64 to bfloat16 by way of float32 and so rounds twice. Rounded to odd on the way (towards zero, the
    last bit set when anything was lost), the float32 keeps on which side of a tie the value lay.
    """
    if dtype.name != "bfloat16":
        return values.astype(dtype)
    single = values.astype(np.float32)
    bits = single.view(np.uint32)
    bits -= (np.abs(single) > np.abs(values)) & np.isfinite(single)
    bits |= (single != values) & np.isfinite(single)
    return single.astype(dtype)
