"""What `run` returns, with its types."""

from __future__ import annotations

import enum
import importlib
import pickle
import stat
import sys
import sysconfig
import threading
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cloudpickle import cloudpickle
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from daskprs._arrow.arrow_pandas import frame_of
from daskprs._folders.job_folder import JobFolder
from daskprs._output.read_rows import read_rows
from daskprs._output.rows.own_classes import classes_come_from, name_class_of_program, row_pickle
from daskprs._output.rows.result_tables import column_of, one_frame
from daskprs._output.rows.typed_rows import decode
from daskprs._system.seal import NO_KEY, Seal, SealKey
from daskprs.errors import JournalError, ReturnTypeError
from tests.support.arrow_of_all_kinds import tables
from tests.support.canary import Canary
from tests.support.formatted import format_result
from tests.support.frames_of_all_kinds import frames
from tests.support.store_driver import BOTH, KEY, TYPED, driving
from tests.support.versions import IS_PANDAS_2


def kept(folder: Path, *results: Any) -> pd.DataFrame:
    """Return what `to_pandas` makes of what `run` returned, one mini-batch after the other."""
    with driving(folder / "job", None, TYPED) as driver:
        for index in reversed(range(len(results))):
            driver.commit(index, results[index])
        assert driver.store.publish() is None
    rows = read_rows(JobFolder(folder / "job"))
    assert rows is not None
    return rows


@given(frame=frames())
def test_a_frame_comes_back_with_its_types(frame: pd.DataFrame, tmp_path_factory: Any) -> None:
    """Every cell, column name and type; the index is left out."""
    file = tmp_path_factory.mktemp("typed") / "rows"
    rows = format_result(frame, TYPED)
    file.write_bytes(b"before" + rows.payload + b"behind")
    with file.open("rb") as opened:
        opened.seek(6)
        (piece,) = decode(opened, rows.typed.length, Seal(KEY))
        assert opened.read() == b"behind"
    assert piece.kind == "frame"
    back = one_frame([(0, piece)])
    assert back is not None
    assert_frame_equal(back, frame.reset_index(drop=True), check_exact=True)
    for name in frame.columns[[dtype.kind == "O" for dtype in frame.dtypes]]:
        assert [type(cell) for cell in back[name]] == [type(cell) for cell in frame[name]]


@given(table=tables(min_columns=1))
def test_a_table_comes_back_as_the_frame_that_pandas_makes_of_it(
    table: pa.Table, tmp_path_factory: Any
) -> None:
    """Integers beside nulls stay integers. What pandas cannot hold is an error that says so."""
    folder = tmp_path_factory.mktemp("typed")
    try:
        expected = table.to_pandas(integer_object_nulls=True)
    except pa.ArrowException:
        with pytest.raises(ReturnTypeError, match="Read the rows by to_arrow"):
            kept(folder, table)
    else:
        back = kept(folder, table)
        objects = [dtype.kind == "O" for dtype in expected.dtypes]
        for place in np.flatnonzero(objects):  # a NaN in a dict does not equal another one
            assert back.iloc[:, place].map(repr).equals(expected.iloc[:, place].map(repr))
        plain = ~np.array(objects)
        assert_frame_equal(back.loc[:, plain], expected.loc[:, plain], check_exact=True)
        assert list(back.columns) == list(expected.columns)


def test_a_slice_with_lists_of_nulls_becomes_a_frame() -> None:
    """Arrow casts no such slice, not even to its own schema."""
    lists = pa.chunked_array([pa.array([[None, None], []], pa.list_(pa.null()))])
    assert list(frame_of(pa.table({"a": lists}).slice(0, 1))["a"][0]) == [None, None]
    both = pa.concat_tables([pa.table({"a": lists[1:]}), pa.table({"a": lists[:1]})])
    assert [len(one) for one in frame_of(both.slice(1, 1))["a"]] == [2]


CELLS: dict[str, list[Any]] = {
    "numbers": [1, 2.5, np.nan, 2**60],
    "texts": ["x", None, ""],
    "categories": [pd.Categorical(["a"]), pd.Categorical(["b"], ["a", "b"])],
    "objects": [{"k": 1}, "x", None],
    "moments": [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="Asia/Tokyo")],
}
if not IS_PANDAS_2:  # whose NaT becomes a NaN beside moments with zones
    CELLS["moments"].append(pd.NaT)


@given(drawn=st.data())
def test_frames_of_any_types_are_put_together_as_pandas_does(
    drawn: st.DataObject, tmp_path_factory: Any
) -> None:
    """Whether Arrow holds some of them or not, and whatever type each one has."""
    names = drawn.draw(st.lists(st.sampled_from([*CELLS]), unique=True, min_size=1))
    frames = []
    for _ in range(drawn.draw(st.integers(1, 5))):
        cells = {name: drawn.draw(st.sampled_from(CELLS[name])) for name in names}
        columns = {
            name: cell if isinstance(cell, pd.Categorical) else [cell]
            for name, cell in cells.items()
        }
        frames.append(pd.DataFrame(columns))
    rows = kept(tmp_path_factory.mktemp("typed"), *frames)
    assert_frame_equal(rows, pd.concat(frames, ignore_index=True), check_exact=True)


def test_frames_of_all_mini_batches_make_one(tmp_path: Path) -> None:
    """In input order, with a new index; digits in strings stay strings."""
    first = pd.DataFrame({"id": ["007", "7"], "x": [1.5, 2]}, index=[5, 5])
    second = pd.DataFrame({"id": ["08"], "x": [np.nan]}, index=["z"])
    empty = pd.DataFrame({"id": pd.Series(dtype=float), "x": pd.Series(dtype=object)})
    rows = kept(tmp_path, first, empty, second)
    expected = pd.DataFrame({"id": ["007", "7", "08"], "x": [1.5, 2, np.nan]})
    assert_frame_equal(rows, expected)


def test_a_job_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    """Those of the first frame."""
    assert list(kept(tmp_path, pd.DataFrame({"a": [], "b": []})).columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("results", "dtype"),
    [
        ([[1, 2], [3]], "int64"),
        ([[1.5], (2.5, 3.5)], "float64"),
        ([[1, 2.5]], "object"),
        ([[1], [2.5]], "object"),
        ([["007"], ["7"]], "str"),
        ([["007", 7]], "object"),
        ([[True], [False]], "bool"),
        ([[{"a": 1}, [1, 2]], [None]], "object"),
        ([[2**70]], "object"),
        ([np.array([0.5, 1]), np.array([2.5])], "float64"),
        ([np.array([0.5], dtype="float32")], "float32"),
        ([np.array(["2020-01-01"], dtype="datetime64[ns]")], "datetime64[ns]"),
        ([np.array([{"a": 1}], dtype=object)], "object"),
        ([[], ["x"]], "str"),
    ],
)
@pytest.mark.parametrize("times", [1, 70])
def test_elements_make_one_column(
    tmp_path: Path, results: list[Any], dtype: str, times: int
) -> None:
    """Its type is the one that they all have, wherever mini-batches begin and end."""
    results = [_repeated(result, times) for result in results]
    rows = kept(tmp_path, *results)
    assert list(rows.columns) == ["result"]
    expected = [element for result in results for element in result]
    assert rows["result"].tolist() == [
        value.item() if dtype in {"float64", "float32"} and isinstance(value, np.generic) else value
        for value in expected
    ]
    wanted = pd.Series(["x"]).dtype if dtype == "str" else dtype
    assert rows["result"].dtype == wanted


def _repeated(result: Any, times: int) -> Any:
    return np.repeat(result, times) if isinstance(result, np.ndarray) else result * times


PLAIN = (st.integers(), st.floats(), st.booleans(), st.text(), st.binary())
WITH_SURROGATES = st.text(st.characters())


@given(values=st.lists(st.one_of(*PLAIN, WITH_SURROGATES), max_size=5), times=st.integers(1, 60))
def test_elements_of_a_generator_are_those_of_a_list(
    values: list[Any], times: int, tmp_path_factory: Any
) -> None:
    """Each with its class and its value, many of a kind or few."""
    values = [value for value in values for _ in range(times)]
    one, other = (
        kept(tmp_path_factory.mktemp("typed"), result) for result in (iter(values), [*values])
    )
    if not values:
        return
    assert_frame_equal(one, other, check_exact=True)
    assert [repr(value) for value in one["result"].astype(object)] == [*map(repr, values)]


@given(values=st.lists(st.integers() | st.floats(allow_nan=False) | st.text() | st.none()))
def test_a_column_of_elements_holds_the_elements(values: list[Any]) -> None:
    """None of them is changed to fit in with the others."""
    assert column_of(values)["result"].tolist() == values


def test_frames_beside_lists_are_an_error(tmp_path: Path) -> None:
    """They make no one frame, whatever the columns are called."""
    with pytest.raises(ReturnTypeError, match="mini-batch 1 is the first that differs"):
        kept(tmp_path, pd.DataFrame({"result": [1]}), [2])


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """A lock has no pickle; as text it could be written."""
    with pytest.raises(ReturnTypeError, match="lock that cannot be kept with its type"):
        kept(tmp_path, [threading.Lock()])


def test_objects_of_the_scripts_own_classes_need_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be imported, the error says what to do."""
    module = ModuleType("score_of_this_test")
    module.Hit = type("Hit", (), {"__module__": module.__name__})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        with driving(tmp_path / "job", None, TYPED) as driver:
            driver.commit(0, [module.Hit()])
        assert read_rows(JobFolder(tmp_path / "job"))["result"][0].__class__ is module.Hit
    with pytest.raises(JournalError, match=r"score_of_this_test.*make it importable"):
        read_rows(JobFolder(tmp_path / "job"))


def test_the_packages_of_an_environment_below_the_script_are_not_its_own() -> None:
    """`.venv` beside the script, which an inline job imports where it lies."""
    frame = pd.DataFrame({"n": [1], "none": [None]})
    classes_come_from(str(Path(sysconfig.get_path("purelib")).parent))
    try:
        made = row_pickle(frame)
    finally:
        classes_come_from(None)
    assert made == row_pickle(frame)


def test_a_script_in_the_root_folder_has_classes_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`/score.py` of an image, which an inline job imports where it lies."""
    module = ModuleType("score_in_root")
    module.__file__ = "/score_in_root.py"
    module.Hit = type("Hit", (), {"__module__": module.__name__})
    classes_come_from("/")
    try:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module.__name__, module)
            made = row_pickle(module.Hit())
    finally:
        classes_come_from(None)
    assert type(pickle.loads(made)).__name__ == "Hit"


def test_a_package_in_a_folder_of_the_path_below_the_script_is_none_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `pip install --target`; a script in `/` has each such folder below it."""
    packages = tmp_path / "packages"
    (packages / "hits-1.0.dist-info").mkdir(parents=True)
    for file in packages / "hit_of_package.py", tmp_path / "hit_of_script.py":
        file.write_text("class Hit: pass\n")
    # The last one cannot be looked into, as a folder of another user.
    for folder in tmp_path, packages, tmp_path / ("x" * 300):
        monkeypatch.syspath_prepend(folder)
    classes_come_from(str(tmp_path))
    try:
        for name in "hit_of_package", "hit_of_script":
            made = row_pickle(importlib.import_module(name).Hit())
            assert (b"readers_or_new" in made) == (name == "hit_of_script")
            del sys.modules[name]
    finally:
        classes_come_from(None)


def test_a_row_of_a_tensor_is_stored_without_the_other_rows() -> None:
    """As in `return list(model(batch))`; of the same values, in the same order in memory."""
    torch: Any = pytest.importorskip("torch")
    batch = torch.rand(100, 3, 9, 9).to(memory_format=torch.channels_last)
    for row in (batch[7], batch[7].clone().requires_grad_()[1:]):
        body = row_pickle(row)
        assert len(body) < 5000
        there = pickle.loads(body)
        assert torch.equal(there, row)
        assert there.stride() == row.clone().stride()
        assert (there.dtype, there.requires_grad) == (row.dtype, row.requires_grad)
    assert len(row_pickle(batch)) < 110_000
    row = batch[7]
    row.label = "a"
    assert pickle.loads(row_pickle(row)).label == "a"


def read(file: Path, seal: Seal) -> list[Any]:
    """Return the pieces in a file."""
    with file.open("rb") as rows:
        return list(decode(rows, file.stat().st_size, seal))


@pytest.mark.attack
@pytest.mark.parametrize(
    "key", [SealKey(b"another user's"), NO_KEY], ids=["another key", "a folder without one"]
)
def test_pickles_of_others_are_not_loaded(tmp_path: Path, key: SealKey) -> None:
    """Neither those that are forged, nor those that were changed; plain rows can be read."""
    canary, file = tmp_path / "canary", tmp_path / "rows"
    evil = Canary(canary)
    made = format_result(iter([1, evil, "a"]), TYPED).payload
    forged = format_result([evil], TYPED._replace(key=key or KEY)).payload
    changed = format_result([{"n": 5}], TYPED).payload.replace(b"K\x05", b"K\x06")
    for body, seal in ((forged, Seal(key and KEY)), (changed, Seal(KEY))):
        file.write_bytes(body)
        with pytest.raises(JournalError, match="not one of your key"):
            read(file, seal)
    for cut in (1, 20, len(made) // 2, len(made) - 3):
        file.write_bytes(made[:-cut])
        with pytest.raises(JournalError):
            read(file, Seal(SealKey(b"another")))
    assert not canary.exists()
    file.write_bytes(made)
    assert [piece.value for piece in read(file, Seal(KEY))][::2] == [[1], ["a"]]
    assert canary.exists()  # the owner's own objects are loaded


def test_lists_of_few_values_come_back_as_they_were(tmp_path: Path) -> None:
    """Also where one of them has no form but a pickle."""
    for values in ([1, "a", None, 2.5, b"b", True, "\ud800"], [1, 2**70, (1, 2)], [{1: "a"}, [2]]):
        (tmp_path / "rows").write_bytes(format_result(values, TYPED).payload)
        (piece,) = read(tmp_path / "rows", Seal(KEY))
        assert piece.value == values
        assert [*map(type, piece.value)] == [*map(type, values)]


def test_a_slice_of_arrow_is_kept_without_the_rows_beside_it(tmp_path: Path) -> None:
    """As an element, or in one; Arrow itself pickles the memory of all rows with each."""
    table = pa.table({"a": [[float(row)] * 10 for row in range(1000)]})
    column = table["a"].chunk(0)
    rows = [{"array": column.slice(at, 1), "table": table.slice(at, 1)} for at in range(50)]
    body = format_result(rows, TYPED).payload
    assert len(body) < 100_000
    (tmp_path / "rows").write_bytes(body)
    (piece,) = read(tmp_path / "rows", Seal(KEY))
    assert piece.value == rows


def test_only_the_owner_reads_typed_rows(tmp_path: Path) -> None:
    """The job folder is private, and so are all rows in it."""
    with driving(tmp_path / "job", tmp_path / "rows.txt", BOTH) as driver:
        driver.commit(0, [1])
        driver.commit_carried(1, [2])
        files = [path for path in (tmp_path / "job").rglob("*.1/*") if path.is_file()]
        modes = {(path.parent.name, stat.filemode(path.stat().st_mode)) for path in files}
    assert modes == {("spool.1", "-rw-------"), ("typed.1", "-rw-------")}


def test_a_job_that_kept_none_says_so(tmp_path: Path) -> None:
    """Not an empty frame."""
    with driving(tmp_path / "job", tmp_path / "rows.txt") as driver:
        driver.commit(0, ["a"])
    assert read_rows(JobFolder(tmp_path / "job")) is None


MARK = """
SEEN = []
class Mark(enum.Enum):
    GOOD = 1
    def seen(self):
        return SEEN
"""


def mark_of_new_program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an enumeration of this program, as another process of it has defined it."""
    known = "_DYNAMIC_CLASS_TRACKER_BY_ID"
    monkeypatch.setattr(cloudpickle, known, weakref.WeakValueDictionary())
    names: dict[str, Any] = {"__name__": "__main__", "enum": enum}
    exec(MARK, names)  # noqa: S102 - the text above
    monkeypatch.setattr(sys.modules["__main__"], "Mark", names["Mark"], raising=False)
    return names["Mark"]


def test_a_class_of_the_program_is_one_class_in_all_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resume from another kernel adds rows to those of the first; the reader may be a third.

    What agents do to its globals makes no other class of it.
    """
    bodies = []
    for _ in range(2):
        mark = mark_of_new_program(monkeypatch)
        name_class_of_program(mark)
        mark.seen.__globals__["SEEN"].append(len(bodies))
        bodies.append(row_pickle(mark.GOOD))
    mark = mark_of_new_program(monkeypatch)
    name_class_of_program(mark)
    assert all(pickle.loads(body) is mark.GOOD for body in bodies)
    mark_of_new_program(monkeypatch)
    monkeypatch.delattr(sys.modules["__main__"], "Mark")
    first, second = (pickle.loads(body) for body in bodies)
    assert first is second


def test_a_class_of_an_inline_job_is_that_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the job has a copy of it, and its reader has sent no script."""
    copy = mark_of_new_program(monkeypatch)
    mark = mark_of_new_program(monkeypatch)
    body = row_pickle(copy.GOOD)
    mark_again = mark_of_new_program(monkeypatch)
    assert mark is not mark_again
    assert pickle.loads(body) is mark_again.GOOD
