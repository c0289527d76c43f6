"""A program that runs one job, and comes to the moment where it is told to: ``caller.py SPEC``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import moments
import pandas as pd

import daskprs
from daskprs._cluster import part_writers
from daskprs._cluster.cluster_slots import ClusterSlots
from daskprs._driver.dispatch import Dispatcher
from daskprs._job.publisher import Publisher
from daskprs._output.journal.journal import Journal
from daskprs._output.store import ResultStore

SCRIPT = Path(__file__).with_name("struck_script.py")
AFTER_COMMITS = 2
"""Where the driver is struck in or about a commit, it is not the first one."""
COMPLETED, FAILED, CANCELED = 0, 42, 43
COROUTINES_SCRIPT = SCRIPT.with_name("struck_coroutines.py")
FRAME, COLLECTION, KEYED, ISOLATED, STAGES, FAR_STAGES, COROUTINES = (
    *("frame", "collection", "keyed", "isolated", "stages", "far stages", "coroutines"),
)
"""Inputs: a frame, a dask DataFrame, one whose rows are brought together by key, a frame with bad
rows, which cost only themselves, a frame that passes through functions before and after `run`,
which have processes of their own, on the same node or also on one without a GPU, and one whose rows
wait in coroutines, several in a process."""
CALLS = 4
"""Coroutines at the same time of a process."""
SIZE = 6
"""Rows of a mini-batch with a bad one; the others have one row."""
DATA_SET = "data_set"
"""The action of a job that appends rows to a data set, in place of lines of text."""
LOADS = {"load": 1, "deal": 1, "gather": 2}
"""Moments that come when a cell is unpickled, and how often it was."""
PARTITION_S = 0.02


def frame_of(spec: dict[str, Any]) -> pd.DataFrame:
    """Return the input: the same in each call, since a resume compares it."""
    count, at = spec["rows"], spec["at"]
    place = {moment: [""] * count for moment in (*LOADS, "run", "search", "before", "after")}
    if spec["moment"] in place:
        place[spec["moment"]][at] = spec["moment"]
    return pd.DataFrame(
        {
            "number": range(count),
            "seconds": spec["seconds"],
            **{
                name: [moments.Watched(moment, loads) for moment in place[name]]
                for name, loads in LOADS.items()
            },
            "run": place["run"],
            "search": place["search"],
            "before": place["before"],
            "after": place["after"],
            "bad": [bad_rows(spec).get(number, "") for number in range(count)],
        }
    )


def bad_rows(spec: dict[str, Any]) -> dict[int, str]:
    """Return what bad rows do: one of a mini-batch, which is a quarter of it at most."""
    numbers = range(SIZE - 2, spec["rows"], SIZE + 1) if spec["data"] == ISOLATED else ()
    return {number: "raises" if number % 2 == 0 else "dies" for number in numbers}


def mini_batches(spec: dict[str, Any]) -> int:
    """Return how many mini-batches there are."""
    return -(-spec["rows"] // SIZE) if spec["data"] == ISOLATED else int(spec["rows"])


def collection_of(frame: pd.DataFrame) -> Any:
    """Return a dask DataFrame of the same rows, of which each is a partition that takes a while."""
    with dask.config.set({"dataframe.convert-string": False}):
        collection = dd.from_pandas(frame, npartitions=len(frame))
        return collection.map_partitions(_slowly, meta=frame[:0])


def _slowly(rows: pd.DataFrame) -> pd.DataFrame:
    time.sleep(PARTITION_S)
    return rows


def serial_lines(spec: dict[str, Any]) -> list[str]:
    """Return what a serial run returns."""
    good = (number for number in range(spec["rows"]) if number not in bad_rows(spec))
    return [f"{number} squared is {number**2}" for number in good]


def wait_in_the_driver(folder: Path, moment: str) -> None:
    """Let the driver come to its moment: around a commit, or when the output is published."""
    commits = 0
    commit, write, replace = ResultStore.commit, Journal.write, Path.replace

    def committed(store: ResultStore, *given: Any) -> None:
        nonlocal commits
        commits += 1
        if moment == "returned" and commits > AFTER_COMMITS:
            moments.reach(folder, moment)
        commit(store, *given)
        if moment == "committed" and commits > AFTER_COMMITS:
            moments.reach(folder, moment)

    def written(journal: Journal) -> None:
        if moment == "commit" and commits > AFTER_COMMITS and journal._unwritten:
            whole = b"".join(journal._unwritten)
            with Path(f"/proc/self/fd/{journal._fd}").open("r+b") as file:
                file.seek(journal._end)
                file.write(whole[: len(whole) // 2])
            moments.reach(folder, moment)
        write(journal)

    def replaced(path: Path, target: Any) -> Path:
        if moment == "publish" and path.parent == folder / "out":
            moments.reach(folder, moment)
        return replace(path, target)

    ResultStore.commit = committed  # type: ignore[method-assign]
    Journal.write = written  # type: ignore[method-assign]
    Path.replace = replaced  # type: ignore[method-assign,assignment]


def tell_moments(folder: Path) -> None:
    """Let the driver say what it is at, in a file that can be read while it is stopped."""
    now = moments.Now(folder)
    at_work, close = Dispatcher.run, ClusterSlots.close
    commit, publish = ResultStore.commit, Publisher.publish

    def works(dispatcher: Dispatcher) -> Any:
        now.tell(moments.AT_WORK)
        return at_work(dispatcher)

    def closes(slots: ClusterSlots) -> None:
        now.tell(moments.SHUTDOWN)
        close(slots)

    def commits(store: ResultStore, *given: Any) -> None:
        now.tell(moments.COMMIT)
        commit(store, *given)
        now.tell(moments.AT_WORK)

    def publishes(publisher: Publisher, *given: Any) -> str:
        now.tell(moments.PUBLISH)
        why_not = publish(publisher, *given)
        now.tell(moments.ENDING)
        return why_not

    now.tell(moments.OPENING)
    Dispatcher.run = works  # type: ignore[method-assign]
    ClusterSlots.close = closes  # type: ignore[method-assign]
    ResultStore.commit = commits  # type: ignore[method-assign]
    Publisher.publish = publishes  # type: ignore[method-assign]


def main(spec: dict[str, Any]) -> int:
    """Run the job, or what is left of it."""
    folder = Path(spec["folder"])
    if spec["moment"]:
        wait_in_the_driver(folder, spec["moment"])
    else:
        tell_moments(folder)
    part_writers.SMALL_BYTES = 0  # workers write these parts, too
    own_files, is_set = spec["action"] == "summary_only", spec["action"] == DATA_SET
    agents = {moments.FOLDER: str(folder), "PYTHONPATH": str(SCRIPT.parent)}
    data = frame_of(spec)
    is_collection = spec["data"] in (COLLECTION, KEYED)
    size: Any = None if is_collection else 1
    script, own = SCRIPT, {}
    if spec["data"] == ISOLATED:
        # A row that is killed from outside runs again before it is found.
        size, own = f"{SIZE} rows", {"on_error": "isolate", "run_max_try": 2}
    elif spec["data"] in (STAGES, FAR_STAGES):
        own = {"preprocess": "before", "postprocess": "after", "preprocess_processes": 2}
        if spec["data"] == FAR_STAGES:
            own["gpus_per_process"] = 1
    elif spec["data"] == COROUTINES:
        script, own = COROUTINES_SCRIPT, {"concurrency_per_process": CALLS}
        agents[moments.CALLS] = str(CALLS)
    try:
        daskprs.parallel_run(
            collection_of(data) if is_collection else data,
            script,
            client=spec["address"],
            job_dir=spec["job_dir"],
            output_dir=folder / "out",
            mini_batch_size=size,
            partition_keys="number" if spec["data"] == KEYED else None,
            output_action="summary_only" if own_files else "append_row",
            **({"output_format": "parquet", "output_file_size": 1_000} if is_set else {}),
            keep_rows=not own_files,
            environment_variables=agents | {"DASKPRS_CHAOS_ACTION": spec["action"]},
            progress=False,
            report="never",  # its process may write into the folder while that is removed
            resume=spec["resume"],
            **(spec["options"] | own),
        )
    except daskprs.ParallelRunCanceled:
        return CANCELED
    except (daskprs.DaskprsError, OSError) as error:  # a full disk, before the job has begun
        print(error)
        return FAILED
    return COMPLETED


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
