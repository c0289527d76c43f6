"""Strike a job that publishes a data set in a store of objects at every request, and go on.

A program of its own, since it forks: ``strike_uploads.py FOLDER ENDPOINT HOW FIRST STRIDE``. A job
publishes its data set, and then a larger one in its place. The driver of each run is struck at its
n-th request to the store, in one of the ways that `failing_store` knows. With ``gone`` it is
killed, and then the store aborts all uploads; with ``cleaned`` a person does. Says what went wrong,
and exits with 0 when nothing did.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import s3fs  # noqa: F401 - once, before the forks
from kill_at_every_step import COMPLETED, NOT_COMPLETED, in_a_child

from daskprs._folders.job_folder import JobFolder
from daskprs._output.dataset import ordered_parts
from daskprs._output.publish import open_uploads
from daskprs._output.publish.remote import RemoteParts
from daskprs.errors import DaskprsError
from tests.support.datasets import PARQUET, AtOnce
from tests.support.every_step import STRUCK, at_every_step
from tests.support.failing_store import HOW, FailingStore, Strike, failing_store
from tests.support.growth import drive, serial, target_of
from tests.support.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._output.journal.recovery import Runs

RUNS: list[tuple[Runs, str]] = [("all that is left", "bdf"), ("what is new", "abcdefg")]
"""How a run goes on, and its input."""
COMPLETED_ANEW = 4
"""The exit code of a driver that came to its end, and ran mini-batches."""
NAME = "rows"
SPEC = PARQUET._replace(format="jsonl", file_size_bytes=2_000)


class Stores(NamedTuple):
    """The store that the driver sees, and the one behind it."""

    failing: FailingStore
    store: ObjectStore
    bucket: str


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


def rows_of(get: Callable[[str], bytes | None], folder: str) -> bytes | None:
    """Return the rows of the data set, as a reader sees it who goes by the manifest."""
    told = get(f"{folder}/_manifest.json")
    if told is None:
        return None
    rows = []
    for one in json.loads(told)["files"]:
        content = get(f"{folder}/{one['path']}")
        assert content is not None, f"{one['path']} is not there"
        known = (one["bytes"], one["crc32"])
        assert (len(content), f"{zlib.crc32(content):08x}") == known, "another file"
        rows += [json.loads(line).values() for line in content.splitlines()]
    return "".join(" ".join(map(str, row)) + "\n" for row in rows).encode()


def content_of(path: str) -> bytes | None:
    """Return the content of a file; None where there is none."""
    return Path(path).read_bytes() if Path(path).exists() else None


def strike(base: Path, url: str, number: int, nth: int, how: str, stores: Stores) -> str:
    """Let a driver be struck: the old rows are there, or the new. Return the request."""
    before = None if number == 0 else serial(RUNS[number - 1][1])
    after = serial(RUNS[number][1])
    code = in_a_child(partial(struck_run, base, url, number, nth, how, stores.failing))
    requests = stores.failing.seen()
    if len(requests) >= nth:
        (base / f"{STRUCK}.{number}").touch()
    where = f"run {number}, {requests[nth - 1 : nth]}"
    codes = {COMPLETED, COMPLETED_ANEW, NOT_COMPLETED, -signal.SIGKILL}
    assert code in codes, f"{where}: exit code {code}"
    found = rows_of(stores.store.get, url.removeprefix("s3://") + f"/{NAME}")
    assert found in {before, after}, f"{where}: other rows, or none"
    assert found == after or code not in {COMPLETED, COMPLETED_ANEW}, f"{where}: no new rows"
    return where


def go_on(base: Path, url: str, number: int, where: str, stores: Stores) -> None:
    """Let a driver come through: its rows are there, and nothing else."""
    after, store = serial(RUNS[number][1]), stores.store
    is_made = rows_of(content_of, str(target_of(base))) == after
    stores.failing.strike(Strike())
    code = in_a_child(partial(run, base, url, number))
    assert code == COMPLETED or (code == COMPLETED_ANEW and not is_made), f"{where}: no resume"
    folder = url.removeprefix("s3://") + f"/{NAME}"
    assert rows_of(store.get, folder) == after, f"{where}: other rows"
    assert store.open_uploads(stores.bucket) == [], f"{where}: an upload is left open"
    assert not (base / "job" / "uploads").exists(), f"{where}: a record is left"
    told = json.loads(store.get(f"{folder}/_manifest.json") or b"")
    names = {f"{folder}/{one['path']}" for one in told["files"]} | {f"{folder}/_manifest.json"}
    there = {f"{stores.bucket}/{name}" for name in store.names(stores.bucket)}
    assert {name for name in there if name.startswith(folder)} == names, f"{where}: a file is left"


def aborted_by_the_store(stores: Stores) -> None:
    """Abort all uploads, as a rule of a bucket does."""
    for upload in stores.store.open_uploads(stores.bucket):
        stores.store.delete(upload)


def cleaned(base: Path) -> int:
    """Abort the uploads of the job folder, as a person does who does not go on with the job."""
    problem = open_uploads.abort_uploads(JobFolder(base / "job").uploads)
    assert problem == "", problem
    return 0


def play(base: Path, nth: int, how: str, stores: Stores) -> None:
    """Strike each run, perhaps the one that goes on, too, and go on."""
    for number in range(len(RUNS)):
        url = f"s3://{stores.bucket}/{base.name}"
        blow = how if how in HOW else "kill before"
        for _ in range(2 if how == "kill after" else 1):
            where = strike(base, url, number, nth, blow, stores)
        if how == "gone":
            aborted_by_the_store(stores)
        if how == "cleaned":
            stores.failing.strike(Strike())
            assert in_a_child(partial(cleaned, base)) == 0, f"{where}: not cleaned"
            assert stores.store.open_uploads(stores.bucket) == [], f"{where}: not cleaned"
        go_on(base, url, number, where, stores)


def main(base: Path, endpoint: str, how: str, first: int, stride: int) -> None:
    """Go through every step."""
    ordered_parts._threads = AtOnce  # type: ignore[assignment]
    open_uploads.PIECE_BYTES = 100
    store = ObjectStore(endpoint)
    os.environ.update(store.environment)
    bucket = f"struck-{secrets.token_hex(8)}"  # others may be struck in the same store
    store.put(bucket)
    with failing_store(endpoint) as failing:
        os.environ["AWS_ENDPOINT_URL"] = failing.endpoint

        stores = Stores(failing, store, bucket)
        at_every_step(base, how, first, stride, lambda *step: play(*step, how, stores))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
