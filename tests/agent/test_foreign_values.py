"""Values between interpreters: what arrives is what was sent, with its types."""

from __future__ import annotations

import datetime as dt
import http
import pickle
import uuid
from collections import Counter, OrderedDict
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given

from daskprs._agent.foreign import values
from daskprs._agent.foreign.values import CannotTravel, build, dumped, loaded
from daskprs._arrow.exact_frames import labelled_table
from daskprs._output.spec import OutputSpec
from daskprs.errors import ReturnTypeError
from tests.support.formatted import format_result
from tests.support.frames_of_all_kinds import frames
from tests.support.versions import IS_PANDAS_2

TYPED = OutputSpec(text=False, typed=True)
VIENNA = ZoneInfo("Europe/Vienna")
VALUES: list[Any] = [
    *(
        None,
        True,
        2**70,
        -0.5,
        1 + 2j,
        "é\ud800",
        b"\0",
        bytearray(b"a"),
        range(3),
        Decimal("1.50"),
    ),
    *([1, [2]], (1, ("a",)), {"a": {1: 2}}, {1, 2}, frozenset("a"), OrderedDict(b=1, a=2)),
    *(dt.date(2020, 1, 2), dt.time(1, 2, 3), dt.timedelta(days=-1), Path("/a/b"), uuid.UUID(int=5)),
    dt.datetime(2020, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - without a zone
    *(dt.datetime(2020, 7, 1, tzinfo=dt.UTC), dt.datetime(2020, 7, 1, tzinfo=VIENNA)),
    *(np.int8(-1), np.float16(0.5), np.bool_(1), np.str_("a"), np.bytes_(b"b")),
    *(np.void(b"abc"), np.zeros(1, [("x", "i4"), ("y", "U1", 2)])[0]),
    *(np.datetime64("2020-01-01", "D"), np.datetime64("NaT", "us"), np.timedelta64(1, "h")),
    *(pd.NaT, pd.NA, pd.Timedelta("1s"), pd.Period("2020-01", "M"), pd.Interval(0.5, 1, "left")),
    *(pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp("1066-10-14", tz="UTC")),
    pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert(VIENNA),
]
ARRAYS: list[Any] = [
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.array([["a", "bc"]]),
    np.array([1.5, None, [1, 2], "a"], dtype=object),
    np.zeros((0, 3)),
    np.array(7.0),
    np.array([(1, "a")], dtype=[("x", "i4"), ("y", "U1")]),
    np.ma.MaskedArray([1, 2], [True, False]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    """Alone and within others, with the type that it had."""
    for sent in (value, [value], {"a": (value, 1)}):
        arrived = loaded(dumped(sent))
        assert repr(arrived) == repr(sent)
        assert type(arrived) is type(sent)


@pytest.mark.parametrize("array", ARRAYS, ids=repr)
def test_an_array_arrives_as_it_was(array: Any) -> None:
    """A script may write into the one that it gets."""
    arrived = loaded(dumped(array))
    assert repr(arrived) == repr(array)
    assert (arrived.dtype, type(arrived)) == (array.dtype, type(array))
    assert arrived.flags.writeable


@given(frames())
def test_a_frame_makes_the_same_rows_on_the_other_side(frame: pd.DataFrame) -> None:
    """What is kept of it is the same, byte for byte."""
    if IS_PANDAS_2:  # where NA among strings becomes NaN
        objects = [column for _, column in frame.items() if column.dtype == object]
        assume(not any(cell is pd.NA for column in objects for cell in column))
    arrived = loaded(dumped(frame))
    pd.testing.assert_frame_equal(arrived, frame, check_exact=True, check_index_type="equiv")
    assert [*map(repr, arrived.dtypes)] == [*map(repr, frame.dtypes)]
    if labelled_table(frame) is not None:
        sent, got = (format_result(one, TYPED).payload for one in (frame, arrived))
        assert got == sent


def test_labels_and_notes_of_frames_arrive() -> None:
    """Indexes of all kinds, columns of one name, a series, and tables of other libraries."""
    frame = pd.DataFrame([[1, 2.5], [3, 4.5]], columns=["a", "a"])
    frame.index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["one", None])
    frame.columns.name = "columns"
    frame.attrs["source"] = {"a": 1}
    arrived = loaded(dumped(frame))
    pd.testing.assert_frame_equal(arrived, frame)
    assert arrived.attrs == frame.attrs
    large = 2**60 + 1  # no float has it
    nulls = pd.MultiIndex.from_arrays([pd.array([large, None], "Int64"), ["x", None]])
    nulls = nulls.set_levels([nulls.levels[0].astype("int64"), nulls.levels[1]])
    assert loaded(dumped(nulls))[0] == (large, "x")
    pd.testing.assert_index_equal(loaded(dumped(nulls)), nulls)
    times = pd.date_range("2020", periods=2, tz="Europe/Vienna", name="t")
    series = pd.Series(["a", np.nan], times, name=("n", 1))
    pd.testing.assert_series_equal(loaded(dumped(series)), series, check_freq=False)
    table = pa.table({"a": pa.array([Decimal("1.5"), None]), "b": [[1], None]})
    assert loaded(dumped([table]))[0].equals(table, check_metadata=True)
    polars = pl.DataFrame({"a": [1, None], "b": ["x", "y"]}, schema_overrides={"b": pl.Categorical})
    assert loaded(dumped(polars)).equals(polars)
    assert loaded(dumped(polars["a"])).schema == {"a": pl.Int64}


def test_records_with_gaps_arrive_as_they_are() -> None:
    """The gaps between their fields are no fields."""
    kind = np.dtype([("a", "i1"), ("b", "f8"), ("c", "i2", (2,))], align=True)
    array = np.zeros(2, kind)
    array["b"], array["c"] = [1.5, 2.5], [[1, 2], [3, 4]]
    arrived = loaded(dumped(array))
    assert arrived.dtype == kind
    assert [arrived[name].tolist() for name in "abc"] == [array[name].tolist() for name in "abc"]


class _Odd:
    def __str__(self) -> str:
        return "odd!"


def test_an_object_of_another_class_arrives_as_its_text() -> None:
    """Its class has the name that it had, for messages, and no pickle can hold it."""
    arrived = loaded(dumped([_Odd()]))[0]
    assert (str(arrived), type(arrived).__qualname__) == ("odd!", "_Odd")
    assert type(arrived) is not _Odd
    with pytest.raises(ReturnTypeError, match=r"by python=, .* its class _Odd cannot leave"):
        format_result([arrived], TYPED)


def test_an_object_of_a_plain_kind_is_refused_with_what_to_return() -> None:
    """Lines of output have its text; the class itself is named only where it would be kept."""
    number, count, kind = loaded(dumped([http.HTTPStatus.OK, Counter("aab"), type(None)]))
    for sent, got in ((http.HTTPStatus.OK, number), (Counter("aab"), count), (type(None), kind)):
        text = format_result([got], OutputSpec(text=True, typed=False)).payload
        assert text == format_result([sent], OutputSpec(text=True, typed=False)).payload
    for got, said in (([number], r"int\(\.\.\.\) of it"), ([{"a": count}], r"Counter .* dict\(")):
        with pytest.raises(ReturnTypeError, match=said):
            format_result(got, TYPED)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        *(("A-JUN", "Y-JUN"), ("2A-DEC", "2Y-DEC"), ("H", "h"), ("15T", "15min"), ("N", "ns")),
        *(("S", "s"), ("L", "ms"), ("10U", "10us"), ("Q-JAN", "Q-JAN"), ("W-SAT", "W-SAT")),
    ],
)
def test_periods_go_by_the_newer_names_of_their_frequencies(
    older: str, newer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pandas before 2.2 reads these names itself, but for those of years."""
    assert values._new_frequency(older) == values._new_frequency(newer) == newer
    assert build("period", 50, newer) == pd.Period(ordinal=50, freq=newer)
    monkeypatch.setattr(pd, "__version__", "1.5.3")
    assert values._frequency_here(newer) == newer.replace("Y-", "A-")


def test_a_column_of_text_stays_one_where_all_of_it_is_null(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Old versions of pandas have objects there; what came as objects stays as it is."""
    frame = pd.DataFrame({"text": pd.array([None, "a"], "str"), "object": [None, None]})
    sent = dumped(frame)
    with monkeypatch.context() as old:
        old.setattr(values, "OLD_STRINGS", 99)
        held = loaded(sent)
        assert held["text"].dtype == object
        replies = [dumped(held.iloc[:rows].assign(new=None)) for rows in (0, 1, 2)]
    for rows, reply in enumerate(replies):
        expected = frame.iloc[:rows].assign(new=None)
        pd.testing.assert_frame_equal(loaded(reply), expected, check_index_type=False)


def test_strings_take_what_is_usual_where_the_other_side_had_no_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without pyarrow there, pandas keeps nullable strings in objects of Python."""
    kept = pd.Series(["a", None], dtype=pd.StringDtype("python"))
    assert loaded(dumped(kept)).dtype == kept.dtype
    with monkeypatch.context() as there:
        there.setattr(values, "find_spec", lambda _: None)
        sent = dumped(kept)
    pd.testing.assert_series_equal(loaded(sent), pd.Series(["a", None], dtype="string"))


def test_a_moment_twice_on_the_clock_keeps_its_hour() -> None:
    """Also for zones of pytz, which do without `fold`, and do not go to a time as it is."""
    local, two_hours = dt.datetime(2020, 10, 25, 2, 30), dt.timedelta(hours=2)  # noqa: DTZ001 - local
    for fold, offset in enumerate((two_hours, two_hours / 2)):
        for sent in (local.replace(tzinfo=VIENNA, fold=fold), _zoned(local, offset)):
            arrived = loaded(dumped(sent))
            assert (arrived.utcoffset(), arrived.fold) == (offset, fold)
    gap = dt.datetime(2020, 3, 29, 2, 30, tzinfo=VIENNA)
    assert repr(loaded(dumped(gap))) == repr(gap)


def _zoned(local: dt.datetime, offset: dt.timedelta) -> dt.datetime:
    """Return a time as pytz makes it: the zone has one offset."""

    class OneOffset(dt.tzinfo):
        zone = "Europe/Vienna"

        def utcoffset(self, _: Any) -> dt.timedelta:
            return offset

    return local.replace(tzinfo=OneOffset())


def test_what_cannot_travel_is_named() -> None:
    """An array of records that hold objects, a time zone without a name."""

    class Nowhere(dt.tzinfo):
        def utcoffset(self, _: Any) -> None:
            return None

    for value, said in (
        (np.zeros(1, [("a", object)]), "structured array"),
        (dt.datetime(2020, 1, 1, tzinfo=Nowhere()), "has no name"),
    ):
        with pytest.raises(CannotTravel, match=said):
            dumped(value)


def test_nothing_but_known_classes_is_loaded() -> None:
    """A message cannot call a function of the other side."""
    with pytest.raises(pickle.UnpicklingError, match="system is not known here"):
        loaded(b"cposix\nsystem\n(S'true'\ntR.")
