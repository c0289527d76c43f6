"""A copy of the project without the packages at its edge, and without their tests.

``python -m tests.support.core_copy FOLDER`` makes it; `make test-core` runs its tests.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HOME = Path(__file__).parents[2]
MADE = (
    ".git",
    ".venv*",
    ".core",
    ".*_cache",
    "__pycache__",
    ".hypothesis",
    ".bench",
    "site",
    "dist",
)
"""What git ignores: an unpacked sdist has no git to ask."""


def copy_core(folder: Path) -> list[str]:
    """Fill a folder, and return the names of the packages that are left out."""
    ignored = shutil.ignore_patterns(*MADE, "demo-output", "daskprs-jobs")
    shutil.copytree(HOME, folder, ignore=ignored, dirs_exist_ok=True)
    removed = sorted(path.parent.name for path in folder.glob("daskprs/*/plugin.py"))
    for name in removed:
        shutil.rmtree(folder / "daskprs" / name)
        shutil.rmtree(folder / "tests" / name.removeprefix("_"))
    return removed


if __name__ == "__main__":
    sys.stdout.write(f"Without {', '.join(copy_core(Path(sys.argv[1])))}:\n")
