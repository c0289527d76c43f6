"""Jobs on nodes that see nothing of the driver: neither its job folder nor its script."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import daskprs
from daskprs._lazy import task_agents
from tests.support.cases import mostly_long
from tests.support.separate_nodes import SeparateNodes, separate_nodes, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = """
import logging
import socket

import numbers_of_old
from daskprs import EntryScript

def run(mini_batch):
    print("here is", socket.gethostname())
    EntryScript().logger.info("rows %d", len(mini_batch))
    return mini_batch * numbers_of_old.FACTOR
"""
FRAME = pd.DataFrame({"number": range(1000), "half": [n / 2 for n in range(1000)]})


SCRATCH = Path(tempfile.gettempdir(), "dask-scratch-space")
"""Where Dask workers keep files: workers of other tests leave some when they are killed."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparateNodes]:
    """Yield two nodes."""
    if reason := why_not():
        pytest.skip(reason)
    log = tmp_path_factory.mktemp("nodes") / "log"
    SCRATCH.mkdir(exist_ok=True)
    with separate_nodes(log, [log.parents[1], SCRATCH], count=2, threads=2) as two:
        with Client(two.address, set_as_default=False) as one:
            one.wait_for_workers(2, timeout=60)
        yield two


@pytest.fixture
def client(nodes: SeparateNodes) -> Iterator[Client]:
    """Yield a client of both."""
    with Client(nodes.address, set_as_default=False) as one:
        yield one


def written(folder: Path, factor: int = 3) -> Path:
    """Write a script with a module of its own, and return its path."""
    folder.mkdir(exist_ok=True)
    (folder / "numbers_of_old.py").write_text(f"FACTOR = {factor}\n")
    (folder / "script.py").write_text(SCRIPT)
    return folder / "script.py"


def left_on(nodes: SeparateNodes) -> list[str]:
    """Return what is left of jobs on the nodes."""
    find = ["find", str(SCRATCH), "-path", "*daskprs-*/*"]
    return [line for node in nodes.nodes for line in node.call(*find).splitlines()]


@pytest.mark.long
def test_failed_rows_run_again_there(tmp_path: Path, client: Client) -> None:
    """Their rows travel, large ones from the spools of the nodes, and get their places here."""

    def job(bad: set[int], folder: str, **options: Any) -> daskprs.ParallelRunResult:
        def run(rows: pd.DataFrame) -> pd.DataFrame:
            if {*rows["number"]} & bad:
                raise ValueError
            return rows.assign(text="x" * 2000)

        return daskprs.parallel_run(
            FRAME,
            run,
            client=client,
            job_dir=tmp_path / folder,
            output=tmp_path / f"{folder}.csv",
            keep_rows=True,
            mini_batch_size="250 rows",
            on_error="isolate",
            run_max_try=1,
            progress=False,
            **options,
        )

    job({3, 300, 301}, "again")
    result, wanted = job(set(), "again", resume="failed"), job(set(), "serial")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "serial.csv").read_bytes()
    pd.testing.assert_frame_equal(result.to_pandas(), wanted.to_pandas())


def test_script_rows_and_logs_travel(
    tmp_path: Path, client: Client, nodes: SeparateNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is that of a serial run, the logs are complete, and nothing is left there.

    What `run` prints there is shown here.
    """
    result = daskprs.parallel_run(
        FRAME,
        written(tmp_path / "code"),
        client=client,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        keep_rows=True,
        mini_batch_size=1000,
        progress=False,
        show_output=True,
    )
    shown = capsys.readouterr().err.splitlines()
    assert sum("] here is node" in line for line in shown) == result.mini_batches.total
    assert result.stdout(0).startswith("here is node")
    expected = (FRAME * 3).to_csv(sep=" ", header=False, index=False)
    assert result.output_file is not None
    assert result.output_file.read_text() == expected
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME * 3)
    for number in (0, 1):
        stdout = list((result.logs_dir / "user" / "stdout" / str(number)).iterdir())
        told = {line for log in stdout for line in log.read_text().splitlines()}
        assert len(told) == 1
        assert told.pop().startswith("here is node")
    logs = (result.logs_dir / "user" / "entry_script_log").rglob("*.log.txt")
    said = sum(log.read_text().count("rows ") for log in logs)
    assert said == result.mini_batches.total
    assert left_on(nodes) == []


def run(data: Any, script: Any, folder: Path, client: Client, **options: Any) -> Any:
    """Run a job, and return its rows."""
    result = daskprs.parallel_run(
        data, script, job_dir=folder / "job", client=client, progress=False, **options
    )
    return result.to_pandas(ignore_index=True)


def test_an_edited_script_is_the_one_that_runs(tmp_path: Path, client: Client) -> None:
    """No module of an earlier job is taken for one of this, though it has the same name."""
    for factor in (3, 5):
        script = written(tmp_path / "code", factor)
        rows = run(FRAME, script, tmp_path / str(factor), client, mini_batch_size=4000)
        pd.testing.assert_frame_equal(rows, FRAME * factor)


def keyed(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "rows.parquet"
    (FRAME.assign(key=FRAME["number"] % 7)).to_parquet(path)
    return {"data": path, "partition_keys": "key"}


HELD = {
    "a frame": lambda _: {"data": FRAME, "mini_batch_size": 1000},
    "any objects": lambda _: {"data": FRAME.assign(of_all=[{1}] * 1000), "mini_batch_size": 9000},
    "keys": keyed,
    "keys of a frame": lambda _: {"data": FRAME, "partition_keys": "number"},
    "a collection": lambda _: {"data": dd.from_pandas(FRAME, npartitions=5)},
}
"""What only the driver has."""


@pytest.mark.parametrize("kind", mostly_long(HELD, suite=["any objects"]))
def test_what_the_driver_holds_travels_with_leases(
    tmp_path: Path, client: Client, kind: str
) -> None:
    """The rows are those of a run on this machine."""
    given = HELD[kind](tmp_path)
    data = given.pop("data")
    there = run(data, lambda rows: rows, tmp_path / "there", client, **given)
    here = run(data, lambda rows: rows, tmp_path / "here", None, **given)
    pd.testing.assert_frame_equal(there, here)


def test_much_data_travels_in_leases_of_some_megabytes(tmp_path: Path, client: Client) -> None:
    """Each takes a few mini-batches, whatever the ledger has given it; all arrive."""
    frame = pd.DataFrame(np.arange(4_000_000).reshape(-1, 4), columns=list("abcd"))
    rows = run(frame, lambda rows: rows.sum().to_frame().T, tmp_path, client)
    assert int(rows.to_numpy().sum()) == int(frame.to_numpy().sum())


def test_a_result_too_large_for_a_message_is_fetched(tmp_path: Path, client: Client) -> None:
    """Piece by piece, and its checksum is looked at."""
    size = 20 << 20
    result = daskprs.parallel_run(
        FRAME,
        lambda _: ["x" * size, "y"],
        client=client,
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
        keep_rows=True,
        progress=False,
    )
    assert result.output_file is not None
    assert result.output_file.read_bytes() == b"x" * size + b"\ny\n"
    assert list(result.to_pandas(ignore_index=True)["result"]) == ["x" * size, "y"]
    assert not list((tmp_path / "job").glob("spool.*"))


def test_a_path_that_only_the_driver_sees_is_an_error_that_says_so(
    tmp_path: Path, client: Client
) -> None:
    """Whether it is a table, or files that the script would open."""
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "one.txt").write_text("one")
    for name in ("rows.csv", "one.txt"):
        with pytest.raises(daskprs.ParallelRunFailed) as caught:
            run(tmp_path / name, lambda rows: rows, tmp_path / name.upper(), client)
        assert f"{name} is not visible from the node node" in str(caught.value)
        assert "s3://" in str(caught.value)


def test_files_that_a_script_would_write_out_of_sight_are_refused(
    tmp_path: Path, client: Client
) -> None:
    """Before anything runs there: nobody would ever find them."""
    with pytest.raises(daskprs.ParallelRunFailed, match="not visible from the node 198"):
        daskprs.parallel_run(
            FRAME,
            lambda rows: rows,
            client=client,
            job_dir=tmp_path / "job",
            output_action="summary_only",
            progress=False,
        )
    assert not list((tmp_path / "job" / "logs" / "user").rglob("*.txt"))
    assert not list((tmp_path / "job" / "output").iterdir())


def test_logs_of_a_resumed_job_do_not_touch_those_before(tmp_path: Path, client: Client) -> None:
    """Its processes have numbers of their own, though nodes know of none before."""

    def fails_at_first(rows: pd.DataFrame) -> pd.DataFrame:
        level = logging.getLogger().level
        print("level", level)
        if level == logging.DEBUG:
            raise ValueError(len(rows))
        return rows

    with pytest.raises(daskprs.ParallelRunFailed):
        run(FRAME, fails_at_first, tmp_path, client, logging_level="DEBUG")
    stdout = tmp_path / "job" / "logs" / "user" / "stdout"
    before = {path: path.read_text() for path in stdout.rglob("*.txt")}
    run(FRAME, fails_at_first, tmp_path, client, resume=True)
    after = {path: path.read_text() for path in stdout.rglob("*.txt")}
    assert before.items() < after.items()


READS = """
import os
import tempfile
from pathlib import Path
import sys
from pathlib import Path
from daskprs import EntryScript

def run(rows):
    folder = Path(EntryScript().side_inputs["model"])
    file = Path(EntryScript().side_inputs["words"])
    here, below = sys.argv[-2].removeprefix("--model="), sys.argv[-1]
    assert here == str(folder) == os.environ["WHERE"], (here, folder)
    return [(folder / "deep" / "weights").read_text() + file.read_text() + Path(below).read_text()]
"""


def test_side_inputs_are_sent_where_they_are_not_seen(tmp_path: Path, client: Client) -> None:
    """Files and folders, behind links too; the script is told where they are."""
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (tmp_path / "blob").write_text("w")
    (model / "deep" / "weights").symlink_to(tmp_path / "blob")
    (tmp_path / "words.txt").write_text("ords")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "script.py").write_text(READS)
    for name, one in (("there", client), ("here", None)):
        rows = run(
            FRAME,
            tmp_path / "code" / "script.py",
            tmp_path / name,
            one,
            side_inputs={"model": model, "words": tmp_path / "words.txt"},
            arguments=[f"--model={model}", model / "deep" / "weights"],
            environment_variables={"WHERE": str(model)},
        )
        assert list(rows["result"]) == ["wordsw"]


def _end_soon() -> None:
    task_agents.LINGER_S = 0.3


def test_workers_have_to_share_the_job_folder_of_a_collection(
    tmp_path: Path, client: Client
) -> None:
    """Without a common folder, partitions run in tasks of their own: there the script travels."""
    client.run(_end_soon)
    script = tmp_path / "square.py"
    script.write_text("def run(rows):\n    return rows[['number']] ** 2\n")
    data, schema = dd.from_pandas(FRAME, npartitions=4), {"number": "int64"}
    with client.as_current():
        lazy = daskprs.map_batches(data, script, schema=schema, job_dir=tmp_path / "job")
        with pytest.raises(daskprs.OptionError, match=r"cannot see the job folder .*job_dir"):
            lazy.compute()
        lazy = daskprs.map_batches(data, script, schema=schema, committed=False)
        made = lazy.compute()
    pd.testing.assert_frame_equal(made.reset_index(drop=True), FRAME[["number"]] ** 2)


@pytest.mark.long
def test_replicas_of_the_input_have_times_of_their_own(
    tmp_path: Path, client: Client, nodes: SeparateNodes
) -> None:
    """Each host holds its own to the time that it saw first, and to the size of the driver's."""
    path = tmp_path / "rows.csv"
    FRAME.to_csv(path, index=False)
    for number, node in enumerate(nodes.nodes):
        node.call("mkdir", "-p", str(tmp_path))
        body = path.read_text().replace("\n", "\\n")
        node.call("sh", "-ec", f"printf '{body}' > '{path}'; touch -d @{number} '{path}'")
    size = {"mini_batch_size": 1000}
    rows = run(path, lambda rows: rows, tmp_path / "same", client, **size)
    pd.testing.assert_frame_equal(rows, FRAME)

    def changes(rows: pd.DataFrame) -> pd.DataFrame:
        if os.stat(path).st_mtime < 2:  # noqa: PTH116 - a function travels by value
            os.utime(path, (2, 2))
            os._exit(1)  # those that come after have not seen it before
        return rows

    with pytest.raises(daskprs.ParallelRunFailed, match=r"INPUT_CHANGED: .*rows.csv"):
        run(path, changes, tmp_path / "other", client, process_count_per_node=1, **size)
    for node in nodes.nodes:
        node.call("sh", "-ec", f"echo 1,1 >> '{path}'")
    with pytest.raises(daskprs.ParallelRunFailed, match=r"INPUT_CHANGED: .*rows.csv"):
        run(path, lambda rows: rows, tmp_path / "longer", client, **size)
