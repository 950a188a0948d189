"""Check what a wheel would put where: the two packages and nothing else."""

import sys
import zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
tops = {name.split("/")[0] for name in names}
strange = {top for top in tops if top not in ("fastpos", "fastpos_kernels") and not top.endswith(".dist-info")}
missing = {"fastpos/py.typed", "fastpos/api.py", "fastpos/commands/bench.py", "fastpos_kernels/numba_rotate.py"} - {
    *names
}
if strange or missing or "kernels" in tops:
    sys.exit(f"{sys.argv[1]}: unexpected at the top: {sorted(strange)}; missing: {sorted(missing)}")
print(f"{len(names)} files in {sorted(tops)}")
