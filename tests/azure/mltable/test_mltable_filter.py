"""The language of an MLTable's `filter`: Python's where it means something, and nothing else."""

from __future__ import annotations

import operator
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskprs.azure._mltable.expression import BadExpression, Expression

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = pd.DataFrame(
    {
        "a": [1.0, 2.0, None],
        "FBI Code": pd.Series(["11", "12", None], dtype="str"),
        "ok": [True, False, True],
        "day": pd.to_datetime(["2020-01-01", "2021-01-01", None]),
        "zoned": pd.to_datetime(["2020-01-01", "2021-01-01", None], utc=True),
        "mixed": pd.Series([True, None, False], dtype=object),
        "whole": pd.array([1, None, 3], dtype="Int64"),
        "date": pd.Series([date(2020, 1, 1), None, date(2021, 1, 1)], dtype=object),
        "price": pd.Series([Decimal("0.1"), Decimal("2.5"), None], dtype=object),
        "words": pd.Series([["x"], ["y"], None], dtype=object),
        "nothing": pd.Series([None, None, None], dtype=object),
        "span": pd.to_timedelta([1, 2, None], unit="s"),
    }
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("col('a') > 1", [1]),
        ('col("FBI Code") == "11"', [0]),
        ('col("FBI Code") == "11" and a < 2', [0]),
        ('col("FBI Code") in ["11", "13"]', [0]),
        ('col("FBI Code") not in ("11",)', [1, 2]),
        ('a == "2"', [1]),
        ("a != 1", [1, 2]),
        ("not a == 1", [1, 2]),
        ("a is None", [2]),
        ("a is not None", [0, 1]),
        ("a == None", [2]),
        ("1 < a <= 2", [1]),
        ("a * 2 + 1 == 5 or a - 1 == 0", [0, 1]),
        ("-a < -1", [1]),
        ("a % 2 == 1", [0]),
        ("(a > 1) | ok", [0, 1, 2]),
        ("~ok & (a > 1)", [1]),
        ("ok", [0, 2]),
        ("ok == 'false'", [1]),
        ("mixed", [0]),
        ("not mixed", [1, 2]),
        ("day >= '2020-06-01'", [1]),
        ("day < datetime(2020, 6, 1)", [0]),
        ("zoned >= '2020-06-01'", [1]),
        ("zoned >= '2020-06-01T00:00:00+02:00'", [1]),
        ("day >= '2020-06-01T00:00:00+02:00'", [1]),
        ("whole > 1", [2]),
        ("whole != 1", [1, 2]),
        ("2 < a or 2 > a", [0]),
        ("None == a", [2]),
        ("None != a", [0, 1]),
        ("a in [1, None]", [0, 2]),
        ("a in ['2']", [1]),
        ("mixed == 'true'", [0]),
        ("mixed != 'true'", [1, 2]),
        ("mixed in ['false']", [2]),
        ("mixed == False", [2]),
        ("date == '2020-01-01'", [0]),
        ("date != '2020-01-01'", [1, 2]),
        ("date == datetime(2021, 1, 1)", [2]),
        ("'2020-06-01' < date", [2]),
        ("date in ['2021-01-01']", [2]),
        ("date == day", [0]),
        ("day in ['2020-01-01T02:00:00+02:00']", [0]),
        ("price == '0.1'", [0]),
        ("price == 0.1", [0]),
        ("price > 1", [1]),
        ("price in [2.5]", [1]),
        ("price < a", [0]),
        ("nothing == 'x'", []),
        ("nothing != 'x'", [0, 1, 2]),
        ("nothing > 1", []),
        ("words is None", [2]),
        ("span > '1 second'", [1]),
        ("span in ['00:00:01']", [0]),
    ],
)
def test_rows_that_fulfil_a_condition_are_kept(text: str, kept: list[int]) -> None:
    """Null is as in pandas: not equal to anything, and neither above nor below."""
    expression = pickle.loads(pickle.dumps(Expression.parse(text)))
    mask = expression.mask(FRAME)
    assert mask.dtype == bool
    assert list(FRAME.index[mask]) == kept
    assert list(expression.mask(FRAME.iloc[:0])) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a >", "invalid syntax at character"),
        ("a && ok", "Write and, or, not."),
        ("a = 1", "at character"),
        ("__import__('os').system('x')", "the only calls are col"),
        ("col(a)", "the only calls are col"),
        ("a.__class__ == 1", "'a.__class__' at character 1 is none of what a filter takes"),
        ("[x for x in a]", "is none of what a filter takes"),
        ("lambda: a", "is none of what a filter takes"),
        ("a[0] == 1", "is none of what a filter takes"),
        ("a ** 9 ** 9 ** 9 > 1", "is none of what a filter takes"),
        ("f'{a}' == 'x'", "is none of what a filter takes"),
        ("(a := 1) > 2", "is none of what a filter takes"),
        ("a is ok", "is takes None alone"),
        ("a > None", "nothing is above or below None"),
        ("datetime(2020, 13, 1) < day", "month must be in 1..12"),
        ("datetime(10000000000000000000, 1, 1) < day", "too large"),
        ("ok / ok == 1", "not implemented for bool"),
        ("col('FBI Code') < span", "col('FBI Code') < span"),
        ("1 == 1", "names no column"),
        ('col("FBI Code") > 5', "is text and 5 is a number"),
        ("a == 'x'", "a is a number, and 'x' is none"),
        ("day > 'x'", "day is a date, and 'x' is none"),
        ("day == 5", "cannot be compared"),
        ("a", "is not a condition"),
        ("a and ok", "is not a condition"),
        ("None < a", "nothing is above or below None"),
        ("1 < None < a", "nothing is above or below None"),
        ("a > 1 and 1 is None", "1 is not a column"),
        ("None is None", "None is not a column"),
        ("None in [1]", "None is not a column"),
        ("a == [1, 2, 3]", "stands on the right of in alone"),
        ("a in [[1]]", "stands on the right of in alone"),
        ("a == 'nan'", "a is a number, and 'nan' is none"),
        ("a == '1_0'", "a is a number, and '1_0' is none"),
        ("day < 'today'", "day is a date, and 'today' is none"),
        ("day < ' NOW '", "is a date"),
        ("day < ''", "day is a date, and '' is none"),
        ("day < 'NaT'", "day is a date, and 'NaT' is none"),
        ("mixed == 'x'", "mixed is a boolean, and 'x' is none"),
        ("date == 5", "cannot be compared"),
        ("price == 'x'", "price is a decimal, and 'x' is none"),
        ("price > date", "cannot be compared"),
        ("span != '11'", "span is a duration, and '11' is none"),
        ("span > 'NaT'", "span is a duration, and 'NaT' is none"),
        ("words == 'x'", "words holds what cannot be compared"),
        ("ok + 'x' == 1", "'x' is not a number"),
        ("a in 5", "in takes a column on its left"),
        ("5 in [a]", "5 is not a column"),
        ("not " * 60 + "ok", "nested more than 50 deep"),
        ("(" * 300 + "a" + ")" * 300 + " > 1", "at character"),
        ("a == 1 or " * 2000 + "ok", "more than 10,000 characters"),
        ("a\0 == 1", "null bytes"),
    ],
)
def test_what_is_none_of_the_language_is_refused_with_its_place(text: str, told: str) -> None:
    """Nothing of it is ever evaluated."""
    with pytest.raises(BadExpression) as caught:
        Expression.parse(text).mask(FRAME)
    assert told in str(caught.value)


WORDS = st.sampled_from(
    [
        *("a", "ok", 'col("FBI Code")', "day", "mixed", "whole", "1", "'x'", "None", "True", "("),
        *(")", "[", "]", "and", "or", "not", "in", "is", "==", "!=", "<", ">", "+", "-", "*", "/"),
        *("%", "&", "|", "~", ",", "datetime(2020, 1, 1)", "col(", "datetime(", ".", ":=", "**"),
        *(
            "lambda",
            "if",
            "else",
            "for",
            "yield",
            "await",
            "f'{a}'",
            "\\",
            "\n",
            "\0",
            "é",
            "1e999",
        ),
    ]
)


@given(words=st.lists(WORDS, max_size=12), separator=st.sampled_from([" ", ""]))
@example(words=["'\\d'", "==", "a"], separator=" ")
def test_any_text_is_a_condition_or_refused(words: list[str], separator: str) -> None:
    """There is no other error, and no warning."""
    text = separator.join(words)
    try:
        mask: Any = Expression.parse(text).mask(FRAME)
    except (BadExpression, KeyError):  # a column that there is not is looked for before
        return
    assert mask.dtype == bool
    assert len(mask) == len(FRAME)


class Condition(NamedTuple):
    """A condition as text, and as a function of a row."""

    text: str
    holds: Callable[[dict[str, Any]], bool]


OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "f": st.floats(-3, 3, width=16) | st.just(float("inf")),
    "i": st.integers(-3, 3),
    "t": st.text("ab", max_size=2),
    "b": st.booleans(),
    "d": st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 3)),  # noqa: DTZ001
    "p": st.decimals(-3, 3, places=1),
}
DTYPES = {"f": "float64", "i": "Int64", "t": "str", "b": "object", "d": "datetime64[us]"}


def _written(value: Any) -> str:
    is_text = isinstance(value, datetime | Decimal)
    return "1e999" if value == float("inf") else repr(str(value) if is_text else value)


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    """Compare a column with a value of its type, with a list, or with null."""
    name = draw(st.sampled_from([*VALUES]))
    values = draw(st.lists(VALUES[name], min_size=1, max_size=2))
    written = ", ".join(map(_written, values))
    match draw(st.sampled_from([*OPERATORS, "in", "not in", "is None"])):
        case "is None":
            return Condition(f"{name} is None", lambda row: row[name] is None)
        case "in":
            return Condition(f"{name} in [{written}]", lambda row: row[name] in values)
        case "not in":
            return Condition(f"{name} not in [{written}]", lambda row: row[name] not in values)
        case sign:
            return Condition(
                f"{name} {sign} {_written(values[0])}",
                lambda row: (
                    sign == "!=" if row[name] is None else OPERATORS[sign](row[name], values[0])
                ),
            )


def _not(one: Condition) -> Condition:
    return Condition(f"not ({one.text})", lambda row: not one.holds(row))


def _both(pair: tuple[Condition, Condition]) -> Condition:
    one, other = pair
    return Condition(
        f"({one.text}) and ({other.text})", lambda row: one.holds(row) and other.holds(row)
    )


def _either(pair: tuple[Condition, Condition]) -> Condition:
    one, other = pair
    return Condition(
        f"({one.text}) | ({other.text})", lambda row: one.holds(row) or other.holds(row)
    )


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: (
        inner.map(_not) | st.tuples(inner, inner).map(_both) | st.tuples(inner, inner).map(_either)
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    max_size=6,
)


@given(rows=ROWS, condition=CONDITIONS)
def test_a_condition_keeps_the_rows_for_which_it_holds_in_python(
    rows: list[dict[str, Any]], condition: Condition
) -> None:
    """Row by row, whatever lies beside it: nulls, and columns without any value."""
    columns = {
        name: pd.Series([row[name] for row in rows], dtype=DTYPES.get(name, "object"))
        for name in VALUES
    }
    mask = Expression.parse(condition.text).mask(pd.DataFrame(columns))
    assert mask.tolist() == [condition.holds(row) for row in rows]
