"""Where the channels of a head's pairs lie: what each pairing means, as indices."""

import numpy as np


def channels(head) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """First and second channel of every pair where it is read, and where it is written; each ``(pairs,)``."""
    pair = np.arange(head.pairs)
    sections = np.array(head.sections or (head.pairs,))
    section = np.repeat(sections, sections)
    block = np.repeat(np.cumsum(sections) - sections, sections)
    split = head.start + pair + block, head.start + pair + block + section
    neighbours = head.start + 2 * pair, head.start + 2 * pair + 1
    read = neighbours if head.interleaved else split
    return *read, *(split if head.deinterleaved else read)
