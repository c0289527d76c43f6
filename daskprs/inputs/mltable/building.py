"""Turn transformations, as they are written, into the steps that are applied to rows."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from daskprs.inputs.files.path_columns import PATH
from daskprs.inputs.mltable.conversions import Conversion
from daskprs.inputs.mltable.expression import BadExpression, Expression
from daskprs.inputs.mltable.form import ColumnType
from daskprs.inputs.mltable.source import transformed
from daskprs.inputs.mltable.steps import (
    AddPathColumns,
    Convert,
    Filter,
    KeepColumns,
    RandomSample,
    Rename,
    Skip,
    TableStep,
    Take,
    Unconverted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from daskprs.inputs.mltable.form import ConvertEntry
    from daskprs.inputs.mltable.read import MLTableContent
    from daskprs.yaml_files.mistakes import Mistake

NULLABLE = {"int", "boolean"}
"""Types whose column has a different type if it holds nulls."""
SHOWN = 20


class Builder:
    """Makes steps one after the other, and knows the columns behind each.

    Parameters
    ----------
    written
        The MLTable.
    meta
        The table of its files without rows: the columns of its files, and last those of paths.
    path_names
        The columns of paths.
    samples
        Gives rows of the files, to find nulls; called only where nulls matter.

    """

    def __init__(
        self,
        written: MLTableContent,
        meta: pd.DataFrame,
        path_names: Sequence[str],
        samples: Callable[[], list[pd.DataFrame]],
    ) -> None:
        self._written = written
        self._whole = meta
        self._path_names = tuple(path_names)
        self._samples = samples
        self._sampled: list[pd.DataFrame] | None = None
        self._counting = self._sampling = 0
        self.steps: list[TableStep] = []
        self.meta = meta
        self.mistakes: list[Mistake] = []
        if path_names:
            self._add(KeepColumns(tuple(name for name in meta.columns if name not in path_names)))

    def begin(self, path_column: str, overrides: dict[str, Any]) -> None:
        """Apply the reading options: the name of the path column, and types."""
        at = self._written.read_at
        if path_column != PATH:
            if path_column in self.meta.columns:
                told = f"the files have a column {path_column!r} already"
                self.mistakes.append(self._written.mistake(at, told, "path_column"))
            else:
                self._add(Rename(PATH, path_column))
        where = ("infer_column_types", "column_type_overrides")
        known = [name for name in overrides if self._known([name], at, *where)]
        if known:
            self._convert({name: overrides[name] for name in known})

    def add_all(self) -> None:
        """Make the steps of all transformations."""
        for at, one in enumerate(self._written.transformations):
            method = getattr(self, f"_{one.name}", None)
            if method is not None:
                method(at, one.value)

    # ---- each transformation ----

    def _extract_columns_from_partition_format(self, at: int, value: str) -> None:
        del value
        taken = [name for name in self._path_names if name in self.meta.columns]
        if taken:
            told = f"there is a column {taken[0]!r} already"
            self.mistakes.append(self._written.mistake(at, told))
        else:
            self._add(AddPathColumns(self._path_names))

    def _convert_column_types(self, at: int, value: list[ConvertEntry]) -> None:
        for number, entry in enumerate(value):
            if self._known(entry.columns, at, number, "columns"):
                self._convert(dict.fromkeys(entry.columns, entry.column_type))

    def _keep_columns(self, at: int, value: list[str]) -> None:
        names = self._matching(value)
        if self._known(names, at):
            self._add(KeepColumns(tuple(names)))

    def _drop_columns(self, at: int, value: list[str]) -> None:
        names = self._matching(value)
        if self._known(names, at):
            self._add(KeepColumns(tuple(name for name in self.meta.columns if name not in names)))

    def _filter(self, at: int, value: str) -> None:
        try:
            expression = Expression.parse(value)
            if self._known(expression.columns(), at):
                expression.mask(self.meta)
                self._add(Filter(expression))
        except BadExpression as error:
            self.mistakes.append(self._written.mistake(at, str(error)))

    def _take(self, at: int, value: int) -> None:
        del at
        self._add(Take(value, self._counting))
        self._counting += 1

    def _skip(self, at: int, value: int) -> None:
        del at
        self._add(Skip(value, self._counting))
        self._counting += 1

    def _take_random_sample(self, at: int, value: Any) -> None:
        del at
        self._add(RandomSample(value.probability, value.seed or 0, self._sampling))
        self._sampling += 1

    # ---- what they have in common ----

    def _add(self, step: TableStep) -> None:
        self.steps.append(step)
        self.meta = transformed(self._whole, self.steps)
        self._sampled = None

    def _convert(self, types: dict[str, Any]) -> None:
        conversions = [conversion(name, one, self._written.folder) for name, one in types.items()]
        if any(one.kind in NULLABLE for one in conversions):
            nulls = self._nulls([one.column for one in conversions])
            conversions = [one._replace(is_nullable=one.column in nulls) for one in conversions]
        self._add(Convert(tuple(conversions)))

    def _nulls(self, names: list[str]) -> set[str]:
        """Return the columns that hold a null after the steps so far, judging by samples."""
        steps = [step for step in self.steps if not isinstance(step, Take | Skip | RandomSample)]
        found = set[str]()
        for frame in self._samples():
            try:
                rows = transformed(frame, steps)
            except (Unconverted, BadExpression):
                continue  # its mini-batch will report the error
            found |= {name for name in names if rows[name].isna().any()}
        return found

    def _matching(self, names: list[str]) -> list[str]:
        """Return columns by name; a name that is not a column is matched as an expression."""
        there = list(self.meta.columns)
        found: list[str] = []
        for name in names:
            found += [name] if name in there else (_matches(name, there) or [name])
        return list(dict.fromkeys(found))

    def _known(self, names: Iterable[str], at: int, *more: str | int) -> bool:
        """Record names that are not columns as mistakes, and say whether all names are columns."""
        there = [name for name in self.meta.columns if isinstance(name, str)]
        wrong = [name for name in names if name not in there]
        for name in wrong:
            near = difflib.get_close_matches(name, there, n=3)
            shown = f"near it: {', '.join(near)}" if near else f"there: {', '.join(there[:SHOWN])}"
            told = f"there is no column {name!r}; {shown}"
            self.mistakes.append(self._written.mistake(at, told, *more))
        return not wrong


def conversion(name: str, column_type: Any, folder: str) -> Conversion:
    """Return the conversion of a column."""
    if not isinstance(column_type, ColumnType):
        return Conversion(name, column_type, folder=folder)
    if column_type.boolean is not None:
        one = column_type.boolean
        return Conversion(
            name,
            "boolean",
            true_values=tuple(one.true_values or ()),
            false_values=tuple(one.false_values or ()),
            mismatch_as=one.mismatch_as or "error",
        )
    dates = column_type.datetime
    formats = () if dates is None else tuple(dates.formats)
    constant = None if dates is None else dates.date_constant
    return Conversion(name, "datetime", formats=formats, date_constant=constant)


def as_written(written: MLTableContent) -> Iterator[str]:
    """Yield the columns that are converted before any step uses their values.

    In delimited text these columns are converted from the written cells: a type inferred from
    samples would turn 007 into 7 before it is text again.
    """
    asked = set[str]()
    for one in written.transformations:
        if one.name == "filter":
            try:
                asked |= Expression.parse(one.value).columns()
            except BadExpression:
                continue  # it is reported later
        if one.name == "convert_column_types":
            for entry in one.value:
                yield from (name for name in entry.columns if name not in asked)
                asked |= set(entry.columns)


def _matches(pattern: str, names: list[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error:
        return []
