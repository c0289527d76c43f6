"""Cells of delimited text that are null: words of pandas, and those of the option `csv_options`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from daskprs._arrow.exact_casts import is_text
from daskprs._inputs.source.given_types import arrow_type_of, pandas_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NULLS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""The words that `pandas.read_csv` takes for null by default."""
EMPTY = ("",)
"""The null words that are left in text without an `N`."""
Words = tuple[Any, ...]
"""Text, and numbers: -999 is also written as -999.0."""


class NullWords(NamedTuple):
    """The cells that are null, in each column."""

    default: Words
    """The words for the columns that `of_columns` does not have."""
    of_columns: Mapping[str, Words]
    has_own: bool = False
    """Whether the option `csv_options` names some of them."""

    @property
    def are_default(self) -> bool:
        """Whether pandas reads so without options."""
        return self == DEFAULT

    def of(self, name: str) -> Words:
        """Return the words of a column."""
        return self.of_columns.get(name, self.default)

    def described(self, name: str) -> str:
        """Return the words of a column as text, which a resume compares."""
        words = self.of(name)
        has_all = set(NULLS) <= set(words)
        own = [repr(word) for word in words if not (has_all and word in NULLS)]
        return ", ".join([*(["those of pandas"] if has_all else []), *own]) or "none"

    def options(self, names: Iterable[str]) -> dict[str, Any]:
        """Return pandas' options for these columns; other columns have no nulls."""
        if self.are_default:
            return {}
        words = {name: list(self.of(name)) for name in names}
        return {"keep_default_na": False, "na_values": words}


DEFAULT = NullWords(NULLS, {})


def null_words(csv_options: Mapping[str, Any], dtypes: Mapping[str, Any]) -> NullWords:
    """Return the null words of an input.

    In a column whose type in `dtypes` is text, only an empty cell is null, and in one of categories
    no category is. `csv_options` come before both.
    """
    keeps, own = csv_options.get("keep_default_na"), csv_options.get("na_values", ())
    default = () if keeps is False else NULLS
    by_name = own if isinstance(own, dict) else {}
    for_all = () if isinstance(own, dict) else tuple(own)
    of_columns = {}
    for name in {**dtypes, **by_name}:
        is_typed = name in dtypes and keeps is None
        words = _words_of(name, dtypes[name]) if is_typed else default
        of_columns[name] = (*words, *by_name.get(name, for_all))
    of_all = (*default, *for_all)
    differing = {name: words for name, words in of_columns.items() if words != of_all}
    return NullWords(of_all, differing, bool(own))


def _words_of(name: str, dtype: Any) -> Words:
    known = pandas_type(name, dtype)
    if isinstance(known, pd.CategoricalDtype):
        categories = () if known.categories is None else known.categories
        return tuple(word for word in NULLS if word not in categories)
    return EMPTY if _is_text(known) else NULLS


def _is_text(known: Any) -> bool:
    arrow_type = arrow_type_of(known)
    return arrow_type is not None and is_text(arrow_type)
