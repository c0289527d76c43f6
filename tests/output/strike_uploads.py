"""Strike a job that publishes a data set in a store of objects at every request, and go on.

A program of its own, since it forks: ``strike_uploads.py FOLDER ENDPOINT HOW FIRST STRIDE``. A job
publishes its data set, and then a larger one in its place. The driver of each run is struck at its
n-th request to the store, in one of the ways that `failing_store` knows. Says what went wrong, and
exits with 0 when nothing did.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import s3fs  # noqa: F401 - once, before the forks
from kill_at_every_step import COMPLETED, NOT_COMPLETED, in_a_child

from daskprs.errors import DaskprsError
from daskprs.output.dataset import ordered_parts
from daskprs.output.publish import open_uploads
from daskprs.output.publish.remote import RemoteParts
from tests.support.datasets import PARQUET, AtOnce
from tests.support.every_step import STRUCK, at_every_step
from tests.support.failing_store import FailingStore, Strike, failing_store
from tests.support.growth import drive, serial, target_of
from tests.support.object_store import ObjectStore

if TYPE_CHECKING:
    from daskprs.output.journal.recovery import Runs

RUNS: list[tuple[Runs, str]] = [("all that is left", "bdf"), ("what is new", "abcdefg")]
"""How a run goes on, and its input."""
COMPLETED_ANEW = 4
"""The exit code of a driver that came to its end, and ran mini-batches."""
BUCKET, NAME = "outputs", "rows"
SPEC = PARQUET._replace(format="jsonl", file_size_bytes=2_000)


def run(base: Path, url: str, number: int) -> int:
    """Do a run, and say how it ended. Any error but one of words is a failure."""
    runs, names = RUNS[number]
    try:
        ran = drive(base, names, runs, spec=SPEC, remote=RemoteParts(url, NAME))
    except DaskprsError:
        return NOT_COMPLETED
    return COMPLETED_ANEW if ran else COMPLETED


def struck_run(base: Path, url: str, number: int, nth: int, how: str, store: FailingStore) -> int:
    """Do a run, and be struck at its n-th request."""
    store.strike(Strike(nth, how, os.getpid()))
    return run(base, url, number)


def rows_of(store: ObjectStore, folder: str) -> bytes | None:
    """Return the rows of the data set, as a reader sees it who goes by the manifest."""
    told = store.get(f"{folder}/_manifest.json")
    if told is None:
        return None
    rows = []
    for one in json.loads(told)["files"]:
        content = store.get(f"{folder}/{one['path']}")
        assert content is not None, f"{one['path']} is not there"
        known = (one["bytes"], one["crc32"])
        assert (len(content), f"{zlib.crc32(content):08x}") == known, "another file"
        rows += [json.loads(line).values() for line in content.splitlines()]
    return "".join(" ".join(map(str, row)) + "\n" for row in rows).encode()


def strike(
    base: Path, nth: int, number: int, how: str, failing: FailingStore, store: ObjectStore
) -> None:
    """Let a driver be struck, and another one come through: the old rows are there, or the new."""
    folder = f"{BUCKET}/{base.name}-{how.replace(' ', '-')}/{NAME}"
    url = f"s3://{folder.removesuffix('/' + NAME)}"
    before = None if number == 0 else serial(RUNS[number - 1][1])
    after = serial(RUNS[number][1])
    code = in_a_child(partial(struck_run, base, url, number, nth, how, failing))
    requests = failing.seen()
    if len(requests) >= nth:
        (base / f"{STRUCK}.{number}").touch()
    where = f"run {number}, {requests[nth - 1 : nth]}"
    assert code in {COMPLETED_ANEW, NOT_COMPLETED, -signal.SIGKILL}, f"{where}: exit code {code}"
    found = rows_of(store, folder)
    assert found in {before, after}, f"{where}: other rows, or none"
    assert found == after or code != COMPLETED_ANEW, f"{where}: Completed, and the old rows"
    is_finished = (target_of(base) / "_manifest.json").exists() and found == after
    failing.strike(Strike())
    code = in_a_child(partial(run, base, url, number))
    assert code == COMPLETED or (code == COMPLETED_ANEW and not is_finished), f"{where}: no resume"
    assert rows_of(store, folder) == after, f"{where}: other rows"
    assert store.open_uploads(BUCKET) == [], f"{where}: an upload is left open"
    assert not (base / "job" / "uploads").exists(), f"{where}: a record is left"
    told = json.loads(store.get(f"{folder}/_manifest.json") or b"")
    names = {f"{folder}/{one['path']}" for one in told["files"]} | {f"{folder}/_manifest.json"}
    there = {f"{BUCKET}/{name}" for name in store.names(BUCKET)}
    assert {name for name in there if name.startswith(folder)} == names, f"{where}: a file is left"


def main(base: Path, endpoint: str, how: str, first: int, stride: int) -> None:
    """Go through every step."""
    ordered_parts._threads = AtOnce  # type: ignore[assignment]
    open_uploads.PIECE_BYTES = 100
    store = ObjectStore(endpoint)
    os.environ.update(store.environment)
    store.put(BUCKET)
    with failing_store(endpoint) as failing:
        os.environ["AWS_ENDPOINT_URL"] = failing.endpoint

        def play(folder: Path, nth: int) -> None:
            for number in range(len(RUNS)):
                strike(folder, nth, number, how, failing, store)

        at_every_step(base, how, first, stride, play)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
