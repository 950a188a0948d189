"""Numbers that both sides of a launch agree on: the rules by which tokens stand, and what a launch answers."""

# position of token j of batch row b (or of document n, which begins at boundary[n]):
START = 0  # where + j
STARTS = 1  # where[b] + j
IDS = 2  # where[b, j]
PACKED = 3  # starts[n] + j - boundary[n]

DONE = 0
MISMATCH = 1  # an array is not the one that the launch was made for; nothing was written
OVERLAP = 2  # an output may share memory with another operand; nothing was written
