"""MLTables for tests: a folder with files and the YAML beside them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import yaml

from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from tests.support.put_together import together

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

COUNTER = itertools.count()


def mltable(root: Path, content: str | dict[str, Any], files: dict[str, str | bytes]) -> Path:
    """Return a new folder with an MLTable and its files."""
    folder = root / f"table{next(COUNTER)}"
    folder.mkdir()
    for name, body in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body.encode() if isinstance(body, str) else body)
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    (folder / "MLTable").write_text(text)
    return folder


def rows_of(folder: Path, **reading: Any) -> pd.DataFrame:
    """Return all rows that its mini-batches have together."""
    scratch = folder.with_name(f"{folder.name}-scratch")
    scratch.mkdir(exist_ok=True)
    return together(open_source(folder, ReadOptions(**reading)), scratch)
