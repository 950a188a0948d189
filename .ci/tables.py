"""Measure anew and write the README's tables: ``python .ci/tables.py [NAME ...]``, on a quiet machine with all peers."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
COMMANDS = {
    "accuracy": ["verify"],
    "speed": ["bench", "--quick"],
    "peers": ["bench", "--quick", "--against", "auto"],
}


def short(text: str) -> str:
    """Leave out the tables of single cases, which are folded away."""
    return text.split("<details>")[0].rstrip() + "\n"


with tempfile.TemporaryDirectory() as folder:
    for name in sys.argv[1:] or COMMANDS:
        table = Path(folder) / name
        subprocess.run([sys.executable, "-m", "fastpos", *COMMANDS[name], "--markdown", str(table)], check=True)
        measured = short(table.read_text()) if name == "peers" else table.read_text()
        text, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->",
            lambda _, name=name, measured=measured: f"<!-- {name} -->\n{measured}<!-- end -->",
            README.read_text(),
            flags=re.DOTALL,
        )
        assert count == 1, f"README.md: expected one place for {name}, found {count}"
        README.write_text(text)
