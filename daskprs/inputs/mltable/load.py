"""`load`: what published scripts ask of the package ``mltable``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from daskprs.errors import InputError
from daskprs.inputs.mltable.place import mltable_at
from daskprs.inputs.source.read_options import Reading
from daskprs.inputs.whole_table import whole_table

if TYPE_CHECKING:
    import pandas as pd


class LoadedTable:
    """An MLTable, read when its rows are asked for."""

    def __init__(self, path: str) -> None:
        self.path = path

    def to_pandas_dataframe(self) -> pd.DataFrame:
        """Return all rows; of an MLTable that reads nothing, the paths of its files."""
        return whole_table(self.path, Reading())

    def show(self, count: int = 20) -> pd.DataFrame:
        """Return the first rows."""
        return self.to_pandas_dataframe().head(count)


def load(uri: str | os.PathLike[str], **_: Any) -> LoadedTable:
    """Return the MLTable in a folder.

    Raises
    ------
    InputError
        When there is none.

    """
    path = os.fspath(uri)
    if mltable_at(path) is None:
        msg = (
            f"mltable.load: there is no MLTable in {path!r}. Give the path of the folder that it "
            "lies in, such as a script gets for an input."
        )
        raise InputError(msg)
    return LoadedTable(path)
