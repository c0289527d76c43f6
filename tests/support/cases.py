"""Cases and examples of one test, most of which only `make test-long` plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

SUITE_EXAMPLES = 20
"""Of a property, in the suite; `make test-long` has a hundred times as many."""


def mostly_long(cases: Iterable[Any], *, suite: Iterable[Any]) -> list[ParameterSet]:
    """Return the cases as parameters; those that the suite does not play are marked long.

    Parameters
    ----------
    cases
        A value or a tuple of values for each case.
    suite
        Those among them that the suite plays.
    """
    kept, found = list(suite), []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = [] if case in kept else [pytest.mark.long]
        found.append(pytest.param(*values, marks=marks))
    return found


def few_examples(share: int) -> settings:
    """Return settings for a property whose examples are dear: the suite plays one of `share`.

    As each property, it has all of its examples in `make test-long`.
    """
    most = settings.default.max_examples
    return settings(max_examples=most if most > SUITE_EXAMPLES else max(most // share, 1))
