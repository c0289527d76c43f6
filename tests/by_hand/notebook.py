"""Run published notebooks of Azure's SDKs with their imports changed, and say what came of each.

``python -m tests.by_hand.notebook [--skip REGEX]... NOTEBOOK...``, from a clone of the repository
that has them. Each runs in a process of its own, in its folder. Cells that match a REGEX are left
out, and so are lines of IPython; ``%%writefile`` writes, also to a path with variables.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

CHANGES = {
    r"azure\.ai\.ml": "daskprs.azure.v2",
    r"azure\.(identity|core\.exceptions)": "daskprs.azure.v2",
    r"from azureml\.[a-z._]+ import": "from daskprs.azure.v1 import",
    r"azureml\.core": "daskprs.azure.v1",
}
WRITEFILE = re.compile(r"\s*%%writefile (\S+)\n")


def code_of(notebook: Path, skipped: list[str]) -> str:
    """Return the code of a notebook as one script."""
    cells = json.loads(notebook.read_text())["cells"]
    script = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or any(re.search(one, text) for one in skipped):
            continue
        if found := WRITEFILE.match(text):
            name, body = found[1], text[found.end() :]
            path = f"__import__('string').Template({name!r}).safe_substitute(globals())"
            script.append(f"__import__('pathlib').Path({path}).write_text({body!r})")
            continue
        for pattern, new in CHANGES.items():
            text = re.sub(pattern, new, text)
        lines = [line for line in text.splitlines() if not line.lstrip().startswith(("%", "!"))]
        script.append("\n".join(lines))
    return "\n\n".join(["display = print", *script])


def main() -> None:
    """Run the notebooks, and show the end of what each printed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("notebooks", nargs="+", type=Path)
    given = parser.parse_args()
    home = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, ["", home, os.environ.get("PYTHONPATH", "")]))
    for notebook in given.notebooks:
        done = subprocess.run(
            [sys.executable, "-c", code_of(notebook, given.skip)],
            cwd=notebook.parent,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        last = (done.stderr if done.returncode else done.stdout).strip().splitlines()[-5:]
        print(f"{notebook}: {'failed' if done.returncode else 'ran'}")
        print("".join(f"    {line}\n" for line in last))


if __name__ == "__main__":
    main()
