"""What may fail, and what the user reads when too much has."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs import ParallelRunFailed
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")

FRAME = pd.DataFrame({"number": range(20)})


def every_fifth_fails(mini_batch: pd.DataFrame) -> list[int]:
    """Return the number, unless it ends in 0 or 5."""
    number = int(mini_batch["number"].iloc[0])
    if number % 5 == 0:
        msg = f"{number} is one of those"
        raise ValueError(msg)
    return [number]


def half(mini_batch: pd.DataFrame) -> list[int]:
    """Return every other row."""
    return list(mini_batch["number"])[::2]


def run(script: Any, folder: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job over the numbers, one at a time."""
    given = {"mini_batch_size": 1, "process_count_per_node": 2, "run_max_try": 1}
    return daskprs.parallel_run(
        FRAME, script, job_dir=folder / "job", progress=False, **(given | options)
    )


@pytest.mark.processes
def test_by_default_one_failed_mini_batch_fails_the_job(tmp_path: Path) -> None:
    """The message begins with the script's own first error, and carries the result."""
    with pytest.raises(ParallelRunFailed, match=r"^ValueError: .* is one of those") as caught:
        run(every_fifth_fails, tmp_path)
    message = str(caught.value)
    assert "1 mini-batch failed, more than allowed_failed_count=0" in message
    assert f"daskprs report {tmp_path / 'job'} --text" in message
    assert f"resume=True, job_dir={str(tmp_path / 'job')!r}" in message
    result = caught.value.result
    assert result is not None
    assert result.status == "Failed"
    assert result.mini_batches.failed == 1
    assert (result.logs_dir / "job_result.txt").read_text().strip() == message


@pytest.mark.parametrize(("allowed", "completes"), [(3, False), (4, True), (-1, True)])
def test_allowed_failed_count_is_exact(tmp_path: Path, allowed: int, completes: bool) -> None:  # noqa: FBT001 - a case
    """Four mini-batches fail: three are too few to allow, four are enough."""
    if completes:
        result = run(every_fifth_fails, tmp_path, allowed_failed_count=allowed)
        assert result.mini_batches == (20, 16, 4)
        assert sorted(result.failed["mini_batch"]) == [0, 5, 10, 15]
        expected = [number for number in range(20) if number % 5]
        assert list(result.to_pandas()["result"]) == expected
    else:
        with pytest.raises(ParallelRunFailed, match=f"more than allowed_failed_count={allowed}"):
            run(every_fifth_fails, tmp_path, allowed_failed_count=allowed)


@pytest.mark.parametrize(("percent", "completes"), [(19.9, False), (20, True)])
def test_allowed_failed_percent_is_exact(tmp_path: Path, percent: float, completes: bool) -> None:  # noqa: FBT001 - a case
    """Four of twenty are 20 percent, not more."""
    options = {"allowed_failed_count": -1, "allowed_failed_percent": percent}
    if completes:
        assert run(every_fifth_fails, tmp_path, **options).status == "Completed"
    else:
        with pytest.raises(ParallelRunFailed, match="more than allowed_failed_percent"):
            run(every_fifth_fails, tmp_path, **options)


@pytest.mark.parametrize(("threshold", "completes"), [(9, False), (10, True)])
def test_items_that_a_mini_batch_does_not_return_count(
    tmp_path: Path,
    threshold: int,
    completes: bool,  # noqa: FBT001 - a case
) -> None:
    """Ten of twenty rows come back; no mini-batch fails for it."""
    options = {"error_threshold": threshold, "mini_batch_size": 32}
    if completes:
        result = run(half, tmp_path, **options)
        assert result.items == (20, 10, 10)
        assert result.mini_batches.failed == 0
    else:
        reason = (
            r"items failed, more than error_threshold=9[\s\S]*A resume keeps what they returned"
        )
        with pytest.raises(ParallelRunFailed, match=reason):
            run(half, tmp_path, **options)


def test_a_job_of_which_nothing_succeeds_is_failed(tmp_path: Path) -> None:
    """Whatever the thresholds say."""
    with pytest.raises(ParallelRunFailed, match="not one of 20 rows succeeded"):
        run(lambda _: [], tmp_path, allowed_failed_count=-1)


def test_none_is_a_failed_attempt_and_says_what_to_return(tmp_path: Path) -> None:
    """The message names the types."""
    with pytest.raises(ParallelRunFailed, match=r"run\(\) returned None"):
        run(lambda _: None, tmp_path)


@pytest.mark.parametrize(
    "returned", mostly_long(["text", b"bytes", {"a": 1}, {1}, 5], suite=["text"])
)
def test_what_cannot_be_rows_is_refused_once(tmp_path: Path, returned: Any) -> None:
    """Trying again would not mend it."""
    with pytest.raises(ParallelRunFailed, match="ReturnTypeError") as caught:
        run(lambda _: returned, tmp_path, run_max_try=3)
    result = caught.value.result
    assert result is not None
    assert set(result.failed["mini_batch"]) <= set(range(20))
    table = pd.read_csv(result.logs_dir / "sys" / "job_report" / "processed_mini-batches.csv")
    assert (table["Picked Count"] == 1).all()


@pytest.mark.processes
def test_a_failed_attempt_is_tried_again(tmp_path: Path) -> None:
    """Twice it fails, the third attempt counts."""

    def third_time(mini_batch: pd.DataFrame) -> list[int]:
        number = int(mini_batch["number"].iloc[0])
        tries = tmp_path / f"tries.{number}"
        with tries.open("a") as file:
            file.write("x")
        if number == 7 and len(tries.read_text()) < 3:
            msg = "not yet"
            raise RuntimeError(msg)
        return [number]

    result = run(third_time, tmp_path, run_max_try=3)
    assert list(result.to_pandas()["result"]) == list(range(20))
    table = pd.read_csv(result.logs_dir / "sys" / "job_report" / "processed_mini-batches.csv")
    seven = table[table["Mini-batch Id"] == 7]
    assert list(seven["Status"]) == ["RUN_EXCEPTION", "RUN_EXCEPTION", "RUN_DONE"]
    assert list(seven["Picked Count"]) == [1, 2, 3]


def test_the_message_begins_with_an_error_that_no_retry_has_mended(tmp_path: Path) -> None:
    """The error of the first mini-batch comes first and is mended; others come to stay."""

    def sometimes(mini_batch: pd.DataFrame) -> list[int]:
        number = int(mini_batch["number"].iloc[0])
        tried = tmp_path / "tried"
        if number == 0 and not tried.exists():
            tried.touch()
            msg = "reset by peer"
            raise ConnectionError(msg)
        if number in (5, 6):
            msg = f"no {number}"
            raise KeyError(msg)
        if number == 7:
            raise TypeError
        return [number]

    with pytest.raises(ParallelRunFailed, match=r"^KeyError: 'no [56]'\n") as caught:
        run(
            sometimes,
            tmp_path,
            process_count_per_node=1,
            run_max_try=2,
            allowed_failed_count=-1,
            allowed_failed_percent=10,
        )
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("In mini-batch ")
    counted = lines.index("Errors of the mini-batches that failed: 2 × KeyError, 1 × TypeError.")
    assert lines[counted + 1].startswith("The job is Failed: 3 of 20 mini-batches failed")
    assert "Mended by a retry: 1 × ConnectionError; first: ConnectionError: reset by peer" in lines
    assert (tmp_path / "job" / "logs" / "job_result.txt").read_text().splitlines() == lines


@pytest.mark.processes
def test_every_init_that_fails_ends_the_job_soon(tmp_path: Path) -> None:
    """Processes that started later repeat the error, so six starts are too many."""
    script = tmp_path / "script.py"
    script.write_text("import nosuchmodule\n\ndef run(mini_batch):\n    return []\n")
    with pytest.raises(ParallelRunFailed, match=r"^ModuleNotFoundError: .*nosuchmodule") as caught:
        run(script, tmp_path)
    assert "init" in str(caught.value)
    errors = (tmp_path / "job" / "logs" / "job_error.txt").read_text()
    assert "import or init()" in errors
    tracebacks = list((tmp_path / "job" / "logs" / "user" / "error").rglob("*.txt"))
    assert any(f'File "{script}", line 1' in path.read_text() for path in tracebacks)
    assert 3 <= len(tracebacks) <= 4


def test_an_init_whose_connection_is_refused_is_tried_more_often(tmp_path: Path) -> None:
    """Two processes fail in the same way, and the third finds the server up."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n\n"
        f"starts = Path({str(tmp_path / 'starts')!r})\n\n"
        "def init():\n"
        "    with starts.open('a') as file:\n"
        "        file.write('x')\n"
        "    try:\n"
        "        if len(starts.read_text()) < 3:\n"
        "            raise ConnectionRefusedError(111, 'refused')\n"
        "    except OSError as error:\n"
        "        raise RuntimeError('the model server is down') from error\n\n"
        "def run(mini_batch):\n"
        "    return list(mini_batch['number'])\n"
    )
    result = run(script, tmp_path, process_count_per_node=1)
    assert result.mini_batches == (20, 20, 0)
    assert len((tmp_path / "starts").read_text()) == 3


@pytest.mark.processes
def test_one_agent_at_work_outweighs_all_that_do_not_come_up(tmp_path: Path) -> None:
    """It is at its first mini-batch while the other slot repeats an error that both had before."""
    script = tmp_path / "script.py"
    node = tmp_path / "job" / "logs" / "sys" / "node" / "0" / "_main.txt"
    script.write_text(
        "import time\n"
        "from pathlib import Path\n\n"
        f"home, log = Path({str(tmp_path)!r}), Path({str(node)!r})\n\n"
        "def wait_for(there):\n"
        "    until = time.monotonic() + 60\n"
        "    while not there() and time.monotonic() < until:\n"
        "        time.sleep(0.01)\n\n"
        "def number_of_this_start():\n"
        "    for number in range(100):\n"
        "        try:\n"
        "            (home / f'start.{number}').touch(exist_ok=False)\n"
        "        except FileExistsError:\n"
        "            continue\n"
        "        return number\n\n"
        "def init():\n"
        "    number = number_of_this_start()\n"
        "    if number < 2:\n"
        "        wait_for((home / 'start.1').exists)\n"
        "    elif number == 2:\n"
        "        return\n"
        "    else:\n"
        "        wait_for(lambda: log.exists() and 'ready after' in log.read_text())\n"
        "    raise ValueError('boom')\n\n"
        "def run(mini_batch):\n"
        "    wait_for((home / 'start.4').exists)\n"
        "    return list(mini_batch['number'])\n"
    )
    result = run(script, tmp_path, mini_batch_size=80)
    assert result.mini_batches == (2, 2, 0)


def test_all_rows_of_a_mini_batch_that_cannot_be_read_have_failed(tmp_path: Path) -> None:
    """They could be counted, though not read; the table of failures says which part it is."""
    table = tmp_path / "table.csv"
    table.write_text("a\n" + "1\n" * 9 + "x\n")
    with pytest.raises(ParallelRunFailed, match="line 11: column 'a' holds 'x'") as caught:
        daskprs.parallel_run(
            table, half, dtypes={"a": "int64"}, job_dir=tmp_path / "job", progress=False
        )
    result = caught.value.result
    assert result is not None
    assert result.items == (10, 0, 10)
    assert list(result.failed["label"]) == ["table.csv, bytes 0-22"]
    assert "line 11" in (result.logs_dir / result.failed["log"][0]).read_text()


def a_file_cut_short(folder: Path) -> list[int]:
    """Write three compressed files, and return the numbers in the first and the last."""
    folder.mkdir()
    for name, first in (("a", 0), ("b", 10_000), ("c", 20_000)):
        lines = "".join(f"{number}\n" for number in range(first, first + 10_000))
        body = gzip.compress(f"number\n{lines}".encode())
        (folder / f"{name}.csv.gz").write_bytes(body[: len(body) // 2] if name == "b" else body)
    return [*range(10_000), *range(20_000, 30_000)]


def numbers(mini_batch: pd.DataFrame) -> list[int]:
    """Return all of them."""
    return list(mini_batch["number"])


def test_a_file_that_is_cut_short_is_failed_work_of_that_file(tmp_path: Path) -> None:
    """Within the budgets the job goes on with the others; the file, line and length are named."""
    whole = a_file_cut_short(tmp_path / "in")
    length = (tmp_path / "in" / "b.csv.gz").stat().st_size
    result = daskprs.parallel_run(
        tmp_path / "in",
        numbers,
        allowed_failed_count=1,
        error_threshold=1,
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert list(result.to_pandas()["result"]) == whole
    assert result.mini_batches == (3, 2, 1)
    assert result.items == (20_001, 20_000, 1)
    (error,) = result.failed["error"]
    ends = f"the gzip stream ends early, after {length} bytes"
    assert error.startswith(f"LoadError: {tmp_path / 'in' / 'b.csv.gz'}, line ")
    assert ends in error


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ({}, "1 mini-batch failed, more than allowed_failed_count=0"),
        ({"allowed_failed_count": -1, "error_threshold": 0}, "more than error_threshold=0"),
    ],
)
def test_a_file_that_is_cut_short_counts_against_the_budgets(
    tmp_path: Path, budgets: dict[str, int], reason: str
) -> None:
    """The whole mini-batches of it have been run by then, and the message begins with the file."""
    a_file_cut_short(tmp_path / "in")
    with pytest.raises(ParallelRunFailed, match=r"^LoadError: .*b\.csv\.gz, line \d+: ") as caught:
        daskprs.parallel_run(
            tmp_path / "in",
            numbers,
            mini_batch_size="4 KB",
            job_dir=tmp_path / "job",
            progress=False,
            **budgets,
        )
    assert reason in str(caught.value)


def test_a_stream_with_a_wrong_checksum_fails_the_job_whatever_the_budgets(tmp_path: Path) -> None:
    """Any of its rows may be another than it was: none may be published."""
    text = "number\n" + "".join(f"{number}\n" for number in range(200_000))
    body = bytearray(gzip.compress(text.encode()))
    body[-6] ^= 1
    (tmp_path / "a.csv.gz").write_bytes(body)
    with pytest.raises(ParallelRunFailed, match="incorrect data check"):
        daskprs.parallel_run(
            tmp_path / "a.csv.gz",
            numbers,
            allowed_failed_count=-1,
            job_dir=tmp_path / "job",
            progress=False,
        )


@pytest.mark.parametrize("kind", ["frame", "text", "keys"])
def test_the_result_of_no_rows_has_no_columns(tmp_path: Path, kind: str) -> None:
    """Those of the input may be others than those of the frames of `run`, which made none."""
    empty = pd.DataFrame({"a": pd.Series([], dtype="int64"), "b": pd.Series([], dtype="float64")})
    (tmp_path / "empty.csv").write_text("a,b\n")
    data = tmp_path / "empty.csv" if kind == "text" else empty
    options = {"partition_keys": "a"} if kind == "keys" else {}
    done = daskprs.parallel_run(data, half, job_dir=tmp_path / "job", progress=False, **options)
    (tmp_path / "job" / "epoch.2").touch()  # of a driver that was refused before it began
    result = done.to_pandas()
    assert result.shape == (0, 0)
