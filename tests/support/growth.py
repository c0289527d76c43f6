"""A job over files that come, change and go: it is gone on with in every way, without a cluster."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from daskprs._core.mini_batch import MiniBatch
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._output.journal.recovery import Resumption
from tests.support.store_driver import BOTH, driving, failed_outcome, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from daskprs._output.journal.recovery import Runs
    from daskprs._output.publish.remote import RemoteOutput
    from daskprs._output.spec import OutputSpec


def plan(names: Collection[str]) -> Iterator[MiniBatch]:
    """Yield a mini-batch for each file, in their order."""
    for index, name in enumerate(sorted(names)):
        yield MiniBatch(index, None, f"/in/{name}|1")


def serial(names: Collection[str]) -> bytes:
    """Return the bytes that a serial run over files writes."""
    texts = [
        frame_of(ord(name)).to_csv(sep=" ", header=False, index=False) for name in sorted(names)
    ]
    return "".join(texts).encode()


def target_of(base: Path) -> Path:
    """Return the output file."""
    return base / "out" / "rows.txt"


def drive(
    base: Path,
    names: Collection[str],
    runs: Runs = "all that is left",
    fails: Collection[str] = (),
    *,
    accepted: Collection[str] = (),
    seed: int = 0,
    publishes: bool = True,
    spec: OutputSpec = BOTH,
    new_executor: Callable[[Path], Executor] | None = None,
    remote: RemoteOutput | None = None,
) -> list[str]:
    """Do what is to be done of a job over files, as a job does it, and return the files it ran."""
    folder, uploads = JobFolder(base / "job"), None
    if remote is not None:
        remote.check(folder.upload, overwrite=False)
        uploads = remote.open_uploads(folder.uploads, 600.0)
    fingerprint = {
        "input": {"files": {f"/in/{name}": "1" for name in sorted(names)}},
        "output": {"text": True, "typed": True},
    }
    resumption = None
    if has_begun(folder):
        resumption = Resumption(lambda: plan(names), runs, accepted)
    with driving(
        folder.path,
        target_of(base),
        spec,
        fingerprint,
        resumption=resumption,
        new_executor=new_executor,
        uploads=uploads,
    ) as driver:
        todo = [one for one in plan(names) if driver.store.recovered(one) is None]
        random.Random(seed).shuffle(todo)  # noqa: S311 - any order will do
        for one in todo:
            name = sorted(names)[one.index]
            if name in fails:
                driver.store.attempt_failed(one, failed_outcome(one.index), final=True)
            else:
                driver.commit(one.index, frame_of(ord(name)), one.identity)
            driver.store.sync_if_due(float(one.index))
        if publishes:
            driver.store.write_failed()
            made = driver.store.publish()
            if remote is not None and made is not None:
                remote.publish(made, folder.upload, overwrite=False)
    return sorted(sorted(names)[one.index] for one in todo)
