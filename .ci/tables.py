"""Measure anew and write the README's tables of accuracy and speed: ``python .ci/tables.py``, on a quiet machine."""

import re
import subprocess
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
COMMANDS = {
    "accuracy": ["fastpos", "verify"],
    "speed": ["fastpos", "bench", "--quick"],
    "peers": ["fastpos", "bench", "--quick", "--against", "auto"],
}

with tempfile.TemporaryDirectory() as folder:
    for name, command in COMMANDS.items():
        table = Path(folder) / name
        subprocess.run([*command, "--markdown", str(table)], check=True)
        text, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->",
            lambda _, name=name, table=table: f"<!-- {name} -->\n{table.read_text()}<!-- end -->",
            README.read_text(),
            flags=re.DOTALL,
        )
        assert count == 1, f"README.md: expected one place for {name}, found {count}"
        README.write_text(text)
