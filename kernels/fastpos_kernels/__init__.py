"""The kernels of fastpos: arrays or addresses in, results out; imports nothing from ``fastpos``."""
