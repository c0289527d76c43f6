"""All rows of a table at once, for those who ask for them."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from daskprs.inputs.files.path_columns import PATH
from daskprs.inputs.open_source import open_source

if TYPE_CHECKING:
    from daskprs.inputs.source.read_options import Reading
    from daskprs.inputs.source.source import TableSource


def whole_table(data: Any, reading: Reading) -> pd.DataFrame:
    """Return all rows, with the types that `run` would get them with; of files, their paths.

    Parameters
    ----------
    data, reading
        As those of `open_source`.

    """
    source = open_source(data, reading)
    with tempfile.TemporaryDirectory(prefix="daskprs-table-") as folder:
        source.prepare(Path(folder))
        with closing(source.reader()) as reader:
            loaded = [reader.load(one) for one in source.mini_batches()]
        is_table = source.unit == "row"
        none = cast("TableSource", source).meta() if is_table else pd.DataFrame({PATH: []})
    filled = (one for one in loaded if len(one))
    frames = [pd.DataFrame({PATH: one}) if isinstance(one, list) else one for one in filled]
    return pd.concat(frames or [none], ignore_index=True)
