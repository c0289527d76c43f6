"""Works with a queue on a small disk that is full but for a little: run by `test_full_disk`.

Room for pages, or for inodes, is left from none to enough, so that each step of an action is once
the one that fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._serve.http_errors import Refusal
from daskprs._serve.job_queue import JobQueue
from daskprs._serve.served_job import LIVE, RequestedJob, ServedJob
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 4096
SPARES = range(10)
DISK = Path(sys.argv[1])
ELSEWHERE = Path(sys.argv[2])


@contextmanager
def full(kind: str, spare: int) -> Iterator[None]:
    """Leave some pages, or some inodes, on the disk."""
    filler = DISK / "filler"
    filler.mkdir()
    made = []
    try:
        while True:
            made.append(filler / str(len(made)))
            made[-1].write_bytes(bytes(PAGE) if kind == "pages" else b"")
    except OSError:
        made[-1].unlink(missing_ok=True)
    for path in made[-1 - spare : -1]:
        path.unlink()
    yield
    for path in filler.iterdir():
        path.unlink()
    filler.rmdir()


def asked(name: str, created: str, folder: Path) -> RequestedJob:
    """Return a light job, whose output lies elsewhere."""
    output = str(ELSEWHERE / name)
    words = ["light_job", os.devnull, output]
    return RequestedJob(
        folder.name, "first", created, "ours", {}, {}, {}, words, output, {}, {}, {}, []
    )


def accepted(act: Callable[[], object]) -> bool:
    """Do something; return whether the disk had room for it."""
    try:
        act()
    except Refusal as refusal:
        if refusal.code != "StorageUnavailable":
            raise
        return False
    return True


def statuses(folder: Path) -> dict[str, str]:
    """Return how the jobs are, as another service finds them."""
    queue = JobQueue(folder, 0)
    queue.open()
    jobs, _ = queue.listed(100, None, lambda _: True)
    found = {job.asked.name: queue.status(job).status for job in jobs}
    queue.close()
    return found


def play(folder: Path, kind: str, spare: int) -> tuple[bool, ...]:
    """Submit, resume and cancel a job; nothing is half done. Return what there was room for."""
    queue = JobQueue(folder, 0)
    queue.open()
    waiting, failed = queue.submit(asked), queue.submit(asked)
    queue.cancel(failed)
    new: list[ServedJob] = []
    with full(kind, spare):
        done = (
            accepted(lambda: queue.resume(failed)),
            accepted(lambda: queue.cancel(waiting)),
            accepted(lambda: new.append(queue.submit(asked))),
        )
        left = {path.name for path in folder.iterdir()}
    queue.close()
    expected = {
        failed.asked.name: "Queued" if done[0] else "Canceled",
        waiting.asked.name: "Canceled" if done[1] else "Queued",
        **{job.asked.name: "Queued" for job in new},
    }
    assert left == expected.keys(), (kind, spare, left)
    assert statuses(folder) == expected, (kind, spare, done)
    shutil.rmtree(folder)
    return done


def start(folder: Path, kind: str, spare: int) -> None:
    """Start a job as soon as there is room for it: it runs once, and is not given up before."""
    attempts, real = [], ServedJob.start

    def counted(job: ServedJob, *given: Any) -> object:
        attempts.append(job)
        return real(job, *given)

    queue = JobQueue(folder, 0)
    queue.open()
    name = queue.submit(asked).asked.name
    queue.close()
    queue = JobQueue(folder, 1)
    ServedJob.start = counted  # type: ignore[assignment, method-assign]
    with full(kind, spare):
        queue.open()
        job = queue.get(name)
        assert poll_for(lambda: len(attempts) > 1 or queue.status(job).status not in LIVE)
    assert poll_for(lambda: queue.status(job).status not in LIVE), (kind, spare, job.last_words())
    assert (ELSEWHERE / name / "done.txt").exists(), (kind, spare, job.last_words())
    queue.close()
    ServedJob.start = real  # type: ignore[method-assign]
    shutil.rmtree(folder)


subprocess.run(
    ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=400", "tmpfs", str(DISK)],  # noqa: S607
    check=True,
)
kinds = ("pages", "inodes")
found = [play(DISK / f"{kind}-{spare}", kind, spare) for kind, spare in product(kinds, SPARES)]
for action in zip(*found, strict=True):  # each had no room once, and room in the end
    assert not all(action), found
    assert any(action), found
for kind, spare in (("pages", 0), ("inodes", 1)):
    start(DISK / f"start-{kind}-{spare}", kind, spare)
