"""A column gives back its numbers, also the zeros that take no memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskprs._output.journal.commits import IntColumn

COUNTS = st.integers(0, 100)


@given(COUNTS, COUNTS, COUNTS, st.integers(0, 9))
def test_numbers_and_zeros_come_back_as_they_were_put_in(
    before: int, count: int, after: int, first: int
) -> None:
    """All at once and one by one; and a column that is made of them is the same."""
    numbers = [0] * before + list(range(first, first + count)) + [0] * after
    column = IntColumn("q")
    column.extend(None, before)
    column.extend(range(first, first + count), count)
    column.extend(None, after)
    for one in (column, IntColumn("q", np.array(numbers, np.int64))):
        assert len(one) == len(numbers)
        assert np.array_equal(one.copy(), np.array(numbers, np.int64))
        assert [one[row] for row in range(len(numbers))] == numbers
