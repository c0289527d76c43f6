"""Turn transformations, as they are written, into the steps that are applied to rows."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from daskprs._inputs.files.path_columns import PATH
from daskprs.azure._mltable.conversions import Conversion
from daskprs.azure._mltable.expression import BadExpression, Expression
from daskprs.azure._mltable.form import BooleanType, ColumnType, ReadDelimited, ReadDeltaLake
from daskprs.azure._mltable.steps import (
    AddPathColumns,
    ChosenRows,
    Convert,
    Filter,
    FirstRows,
    KeepColumns,
    RandomSample,
    Rename,
    TableStep,
    Unconverted,
    transformed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from daskprs.azure._mltable.content import MLTableContent
    from daskprs.azure._mltable.form import ReadForm
    from daskprs.azure._yaml_files.mistakes import Mistake

NULLABLE = {"int", "boolean"}
"""Types whose column has a different type if it holds nulls."""
SHOWN = 20


class Builder:
    """Makes steps one after the other, and knows the columns behind each.

    `meta` is the table of the files without rows: the columns of the files, and last those of
    paths, which `path_names` has. `samples` gives rows of the files, to find nulls; it is called
    only where nulls matter.
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
        self.steps: list[TableStep] = []
        self.meta = meta
        self.mistakes: list[Mistake] = []
        if path_names:
            self.add(KeepColumns(tuple(one for one in meta.columns if one not in path_names)))

    def begin(self, options: ReadForm) -> None:
        """Apply the reading options: the name of the path column, and types."""
        at = self._written.read_at
        if not isinstance(options, ReadDeltaLake) and options.include_path_column:
            name = options.path_column
            if name != PATH and name in self.meta.columns:
                self._refuse(at, f"the files have a column {name!r} already", "path_column")
            elif name != PATH:
                self.add(Rename(PATH, name))
        overrides = options.overrides if isinstance(options, ReadDelimited) else {}
        where = ("infer_column_types", "column_type_overrides")
        known = {name: one for name, one in overrides.items() if self._known([name], at, *where)}
        if known:
            self._convert(known)

    def add_all(self) -> None:
        """Make the steps of all transformations."""
        for at, one in enumerate(self._written.transformations):
            self._add_transformation(at, one.name, one.value)

    def add(self, step: TableStep) -> None:
        """Put a step behind the others."""
        self.steps.append(step)
        self.meta = transformed(self._whole, self.steps)

    def _add_transformation(self, at: int, name: str, value: Any) -> None:
        match name:
            case "extract_columns_from_partition_format":
                self._add_path_columns(at)
            case "convert_column_types":
                for number, entry in enumerate(value):
                    if self._known(entry.columns, at, number, "columns"):
                        self._convert(dict.fromkeys(entry.columns, entry.column_type))
            case "keep_columns" | "drop_columns":
                self._choose_columns(at, value, is_kept=name == "keep_columns")
            case "filter":
                self._filter(at, value)
            case "take" | "skip":
                self.add(FirstRows(value, self._number(FirstRows), is_kept=name == "take"))
            case "select_partitions":
                self._select(at, value)
            case "take_random_sample":
                number = self._number(RandomSample)
                self.add(RandomSample(value.probability, value.seed or 0, number))

    def _select(self, at: int, numbers: list[int]) -> None:
        """Choose partitions: the source of a table reads no others, and each file of a list is one.

        A table's steps give the same rows before and behind, but for `take` and `skip`.
        """
        if self._written.read_at < 0:
            self.add(ChosenRows(tuple(numbers)))
        elif any(isinstance(step, FirstRows) for step in self.steps):
            told = "take and skip before it count rows of other partitions: write it before them"
            self._refuse(at, told)

    def _add_path_columns(self, at: int) -> None:
        taken = [name for name in self._path_names if name in self.meta.columns]
        if taken:
            self._refuse(at, f"there is a column {taken[0]!r} already")
        else:
            self.add(AddPathColumns(self._path_names))

    def _choose_columns(self, at: int, patterns: list[str], *, is_kept: bool) -> None:
        names = self._matching(patterns)
        if self._known(names, at):
            left = [name for name in self.meta.columns if name not in names]
            self.add(KeepColumns(tuple(names if is_kept else left)))

    def _filter(self, at: int, text: str) -> None:
        try:
            expression = Expression.parse(text)
            if self._known(expression.columns(), at):
                expression.mask(self.meta)
                self.add(Filter(expression))
        except BadExpression as error:
            self._refuse(at, str(error))

    def _convert(self, types: dict[str, Any]) -> None:
        conversions = [conversion(name, one, self._written.folder) for name, one in types.items()]
        if any(one.kind in NULLABLE for one in conversions):
            nulls = self._nulls([one.column for one in conversions])
            conversions = [one._replace(is_nullable=one.column in nulls) for one in conversions]
        self.add(Convert(tuple(conversions)))

    def _nulls(self, names: list[str]) -> set[str]:
        """Return the columns that hold a null after the steps so far, judging by samples."""
        steps = [step for step in self.steps if not isinstance(step, FirstRows | RandomSample)]
        found = set[str]()
        for frame in self._samples():
            try:
                rows = transformed(frame, steps)
            except (Unconverted, BadExpression):
                continue  # its mini-batch will report the error
            found |= {name for name in names if rows[name].isna().any()}
        return found

    def _number(self, kind: type) -> int:
        return sum(isinstance(step, kind) for step in self.steps)

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
            self._refuse(at, f"the column {name!r} does not exist; {shown}", *more)
        return not wrong

    def _refuse(self, at: int, told: str, *more: str | int) -> None:
        self.mistakes.append(self._written.mistake(at, told, *more))


def conversion(name: str, column_type: Any, folder: str) -> Conversion:
    """Return the conversion of a column."""
    if not isinstance(column_type, ColumnType):
        return Conversion(name, column_type, folder=folder)
    if (dates := column_type.datetime) is not None:
        constant = dates.date_constant
        return Conversion(name, "datetime", formats=tuple(dates.formats), date_constant=constant)
    texts = column_type.boolean or BooleanType()
    return Conversion(
        name,
        "boolean",
        true_values=tuple(texts.true_values or ()),
        false_values=tuple(texts.false_values or ()),
        mismatch_as=texts.mismatch_as or "error",
    )


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
