"""Print the shell block of the README that follows the comment ``<!-- NAME -->``."""

import re
import sys
from pathlib import Path

text = (Path(__file__).parent.parent / "README.md").read_text()
found = re.search(rf"<!-- {re.escape(sys.argv[1])} -->\s*```sh\n(.*?)```", text, re.DOTALL)
if not found:
    sys.exit(f"README.md: expected a shell block after <!-- {sys.argv[1]} -->")
print(found[1], end="")
