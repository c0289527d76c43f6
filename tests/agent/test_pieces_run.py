"""An attempt at pieces of a mini-batch."""

from __future__ import annotations

import io
import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskprs._agent.child.null_rows import NullRows
from daskprs._agent.child.pieces_run import PiecesRun
from daskprs._agent.child.script_calls import completed
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.pieces import Pieces
from daskprs._output.rows.format_result import RowWriter
from daskprs._output.rows.typed_rows import decode
from daskprs._output.spec import OutputSpec
from daskprs._output.spool import UnwritableError
from daskprs._system.seal import Seal
from daskprs.errors import ReturnTypeError
from tests.support.versions import dtype_of


def test_a_full_disk_is_the_fault_of_no_piece() -> None:
    """It ends the job, as it does when a whole mini-batch is written."""

    async def write_run(*_: Any) -> bool:
        raise UnwritableError(28, "No space left on device", "spool")

    attempt: Any = SimpleNamespace(
        data=["a", "b"],
        mini_batch=MiniBatch(0, None, "0"),
        total=2,
        nulls=None,
        named={},
        turn_to=print,
        enter=print,
    )
    pieces = Pieces(((0, 1), (1, 2)))
    failure: Any = None
    output = OutputSpec(text=False, typed=True)
    run = PiecesRun(attempt, pieces, output, None, write_run, failure)
    with pytest.raises(UnwritableError):
        completed(run.made(None, counts_inputs=False))


def test_the_index_of_an_arrow_table_is_no_column_of_rows_of_nulls() -> None:
    """The rows of other mini-batches lack it, too."""
    nulls = NullRows()
    table = pa.Table.from_pandas(pd.DataFrame({"n": [1]}, index=["a"]))
    nulls.write(RowWriter(OutputSpec(text=False, typed=False)), table, 0)
    assert nulls.columns == ("n",)


def test_names_that_are_numbers_are_told_as_text() -> None:
    """A mini-batch in which no row succeeds has them, too."""
    nulls = NullRows()
    frame = pd.DataFrame([[1, 2, 3]], columns=pd.Index([0.5, np.int64(3), True], dtype=object))
    nulls.write(RowWriter(OutputSpec(text=False, typed=False)), frame, 0)
    assert nulls.columns == ("0.5", "3", "True")


@pytest.mark.parametrize("name", [("a", "b"), math.nan, pd.Timestamp("2020-01-01")])
def test_names_that_another_mini_batch_could_not_have_are_refused(name: Any) -> None:
    frame = pd.DataFrame([[1, 2]], columns=pd.Index(["a", name], dtype=object))
    with pytest.raises(ReturnTypeError, match=re.escape(f"returned a column {name!r}: ")):
        NullRows().write(RowWriter(OutputSpec(text=False, typed=False)), frame, 0)


def test_rows_of_arrow_get_types_of_pandas_that_hold_nulls() -> None:
    """Whether a row has failed or not; nothing else that the table notes is lost."""
    table = pa.table({"n": pa.array([1], pa.int16()), "yes": [True], "text": ["a"]})
    output = OutputSpec(text=False, typed=True)
    writer = RowWriter(output)
    NullRows().write(writer, table.replace_schema_metadata({"of": "the script"}), 0)
    payload = writer.finish().payload
    (piece,) = decode(io.BytesIO(payload), len(payload), Seal(is_trusted=True))
    assert piece.value.table.schema.metadata[b"of"] == b"the script"
    (frame,) = piece.value.frames()
    types = {"n": "Int16", "yes": "boolean", "text": str(dtype_of("str")), "_error": "string"}
    assert frame.dtypes.astype(str).to_dict() == types
