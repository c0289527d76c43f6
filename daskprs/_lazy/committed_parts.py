"""The expression of a dask DataFrame whose partitions are the committed rows of a job."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from dask._task_spec import Task
from dask.dataframe.dask_expr._collection import new_collection
from dask.dataframe.dask_expr._expr import PartitionsFiltered, _DelayedExpr
from dask.dataframe.dask_expr.io.io import BlockwiseIO

from daskprs._lazy.committed_job import read_part

if TYPE_CHECKING:
    import pandas as pd
    from dask.delayed import Delayed
    from dask.typing import Key

    from daskprs._lazy.result_form import ResultForm

NAME = "map_batches"


class CommittedParts(PartitionsFiltered, BlockwiseIO):  # type: ignore[misc] # dask is not typed
    """Reads a partition in each task, only the columns that are needed of it."""

    _parameters = ("job", "result", "count", "columns", "_partitions")
    _defaults = {"columns": None, "_partitions": None}  # noqa: RUF012 - as Dask has it
    _absorb_projections = True

    @cached_property
    def _name(self) -> str:
        return f"{NAME}-{self.deterministic_token}"

    @cached_property
    def _meta(self) -> pd.DataFrame:
        meta: pd.DataFrame = self.result.meta
        taken = self.operand("columns")
        return meta if taken is None else meta[list(taken)]

    @property
    def columns(self) -> list[Any]:
        """The columns that are read."""
        return list(self._meta.columns)

    def _divisions(self) -> tuple[None, ...]:
        count: int = self.operand("count")
        return (None,) * (count + 1)

    def _filtered_task(self, name: Key, index: int) -> Task:
        job = self._blockwise_arg(self.job, 0)
        taken = self.operand("columns")
        return Task(name, read_part, job, self.result, index, taken)


def frame_of_parts(job: Delayed, result: ResultForm, count: int) -> Any:
    """Return a dask DataFrame of the rows of a job, which is the result of a task."""
    return new_collection(CommittedParts(_DelayedExpr(job), result, count))
