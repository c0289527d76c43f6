"""Read all rows of a table at once, for callers that want them."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from daskprs._inputs.files.marked_folder import mark_at
from daskprs._inputs.files.path_columns import PATH
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.azure._mltable.content import read_mltable
from daskprs.azure._mltable.form import Transformation
from daskprs.azure._mltable.place import NAME
from daskprs.errors import InputError

if TYPE_CHECKING:
    from daskprs._inputs.source.source import TableSource


STEPS = frozenset(Transformation.model_fields)
"""The transformations that the file of a table may have, which are methods in the package."""


def whole_table(data: Any, reading: ReadOptions) -> pd.DataFrame:
    """Return all rows, with the types that `run` would get; for file input, the paths."""
    source = open_source(data, reading)
    with tempfile.TemporaryDirectory(prefix="daskprs-table-") as folder:
        source.prepare(Path(folder))
        with closing(source.reader()) as reader:
            loaded = [reader.load(one) for one in source.mini_batches()]
        is_table = source.unit == "row"
        none = cast("TableSource", source).meta() if is_table else pd.DataFrame({PATH: []})
    filled = (one for one in loaded if len(one))
    frames = [pd.DataFrame({PATH: one}) if isinstance(one, list) else one for one in filled]
    whole: pd.DataFrame = pd.concat(frames or [none], ignore_index=True)
    return whole


class LoadedTable:
    """An MLTable, read when its rows are asked for.

    Attributes
    ----------
    path : str
        The folder of the table.
    paths : list of dict
        The paths of its data, as they are written in its file: ``[{"file": "./a.csv"}]``.

    """

    def __init__(self, path: str, file: str) -> None:
        self.path = path
        self._file = file

    @property
    def paths(self) -> list[dict[str, str]]:
        """The paths of its data, as they are written in its file."""
        written = read_mltable(self._file).document.content["paths"]
        return [{str(kind): str(path) for kind, path in one.items()} for one in written]

    def __getattr__(self, name: str) -> Any:
        """Refuse what else the package has, with what to write."""
        if name.startswith("_"):
            raise AttributeError(name)
        step = f"add - {name}: … to the transformations in {self._file}, or "
        msg = (
            f"LoadedTable.{name}: the mltable package is not installed, and daskprs does not need "
            f"it to read a table: {step if name in STEPS else ''}change the rows in pandas, after "
            "to_pandas_dataframe()."
        )
        raise AttributeError(msg)

    def to_pandas_dataframe(self) -> pd.DataFrame:
        """Return all rows; for an MLTable that reads nothing, the paths of its files."""
        return whole_table(self.path, ReadOptions())

    def show(self, count: int = 20) -> pd.DataFrame:
        """Return the first rows."""
        return self.to_pandas_dataframe().head(count)


def load(uri: str | os.PathLike[str], **_: Any) -> LoadedTable:
    """Return the MLTable in a folder; an InputError says that there is none."""
    path = os.fspath(uri)
    file = mark_at(path, NAME)
    if file is None:
        msg = (
            f"mltable.load: there is no MLTable in {path!r}. Give the path of the folder that it "
            "lies in, such as a script gets for an input."
        )
        raise InputError(msg)
    return LoadedTable(path, file)
