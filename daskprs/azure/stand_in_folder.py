"""Modules that published scripts import and this Python lacks, for processes that are no agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.agent import stand_ins
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

MODULE = b"""\
from daskprs.agent import stand_ins

stand_ins.take_over(__name__)
"""


def stand_in_folder(folder: Path) -> Path:
    """Return a folder for ``PYTHONPATH`` that has them; other steps may import from it by now."""
    for name in stand_ins.lacking():
        file = folder / name / "__init__.py"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(file, durable=False) as made:
                made.write(MODULE)
    return folder
