"""A driver without a cluster: it opens a store, makes the results itself, and publishes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs._core.columnar import ColumnBatch
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Results, Status
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._folders.rows_seal import make_salt, rows_key
from daskprs._output.journal.recovery import Resumption
from daskprs._output.spec import OutputSpec, SpoolSpec
from daskprs._output.spool import AgentSpool, UnwritableError
from daskprs._output.store import ResultStore
from daskprs._system.seal import SealKey
from tests.support.formatted import format_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from daskprs._output.publish.open_uploads import OpenUploads
    from daskprs._output.rows.format_result import FormattedRows

TEXT = OutputSpec(text=True, typed=False)
KEY = SealKey(b"of these tests")
TYPED = OutputSpec(text=False, typed=True, key=KEY)
BOTH = OutputSpec(text=True, typed=True, key=KEY)
AGENT = "0-process000"
MOST = 1_000
"""Mini-batches in a plan that nobody has told otherwise."""
FINGERPRINT = {"input": {"files": ["a.csv", "b.csv"]}, "script": "abc", "options": {"sep": " "}}


def mini_batch(index: int, identity: str | None = None) -> MiniBatch:
    """Return a mini-batch that is what its number says."""
    return MiniBatch(index, None, identity or f"part {index}")


def outcome_of(index: int, rows: FormattedRows, attempt: int = 1) -> Outcome:
    """Return the outcome of an attempt that made these rows."""
    return Outcome(
        index,
        attempt,
        Status.RUN_DONE,
        total=rows.succeeded,
        succeeded=rows.succeeded,
        started=0.0,
        elapsed_s=0.0,
        run_s=0.0,
        cpu_s=0.0,
        text=rows.text,
        typed=rows.typed,
        header=rows.header,
    )


def failed_outcome(index: int) -> Outcome:
    """Return the outcome of an attempt at which the script raised."""
    failure = Failure("ValueError", "no")
    return Outcome(index, 1, Status.RUN_EXCEPTION, 1, 0, 0.0, 0.0, 0.0, 0.0, failure=failure)


class Driver:
    """A store that is open, with what the tests do to it, and with the spool of an agent."""

    def __init__(self, store: ResultStore, folder: JobFolder, spec: OutputSpec) -> None:
        self.store = store
        self.folder = folder
        self.spec = spec._replace(key=rows_key(folder))
        self.agents: list[AgentSpool] = []
        self.agent = self.new_agent(AGENT)

    def new_agent(self, name: str) -> AgentSpool:
        """Return the spool of one more agent."""
        text, typed = (
            str(folder(self.store.epoch) / name)
            for folder in (self.folder.spools, self.folder.typed_spools)
        )
        self.agents.append(AgentSpool(SpoolSpec(name, text, typed, synced=False)))
        return self.agents[-1]

    def commit(
        self,
        index: int,
        result: Any,
        identity: str | None = None,
        *,
        agent: AgentSpool | None = None,
    ) -> None:
        """Commit what `run` would have returned for a mini-batch; an agent has put it aside."""
        agent = agent or self.agent
        rows = format_result(result, self.spec, agent)
        unwritten = ""
        try:
            agent.flush()
        except UnwritableError as error:
            unwritten = str(error)
        made = Results(ColumnBatch([outcome_of(index, rows)]), rows.payload, agent.name, unwritten)
        self.store.commit([mini_batch(index, identity)], made)

    def commit_carried(self, index: int, result: Any) -> None:
        """Commit what came along with its outcome, from an agent that does not see the folder."""
        rows = format_result(result, self.spec)
        made = Results(ColumnBatch([outcome_of(index, rows)]), rows.payload)
        self.store.commit([mini_batch(index)], made)

    def has(self, index: int, identity: str | None = None) -> bool:
        """Say whether an earlier run has committed a mini-batch."""
        return self.store.recovered(mini_batch(index, identity)) is not None


@contextmanager
def driving(
    path: Path,
    target: Path | None,
    spec: OutputSpec = TEXT,
    fingerprint: dict[str, Any] | None = None,
    *,
    resume: bool = False,
    resumption: Resumption | None = None,
    overwrite: bool = False,
    labels: Path | None = None,
    new_executor: Callable[[Path], Executor] | None = None,
    uploads: OpenUploads | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Driver]:
    """Open the store of a job folder as a driver does, and close it in the end."""
    folder = JobFolder(path)
    folder.create()
    make_salt(folder)
    with locked(folder) as epoch:
        given = FINGERPRINT if fingerprint is None else fingerprint
        if resume:
            resumption = Resumption(lambda: map(mini_batch, range(MOST)))
        store = ResultStore(
            folder,
            epoch,
            spec,
            target,
            given,
            resumption=resumption,
            overwrite=overwrite,
            labels=labels,
            new_executor=new_executor,
            uploads=uploads,
            warn=warn,
        )
        driver = Driver(store, folder, spec)
        try:
            yield driver
        finally:
            for agent in driver.agents:
                agent.forget()
            store.close()


def frame_of(index: int) -> pd.DataFrame:
    """Return what `run` returns for a mini-batch: some rows, as many as it likes."""
    rows = range(index % 4 + 1)
    return pd.DataFrame({"mini_batch": index, "row": rows, "name": [f"{row:03d}" for row in rows]})


def serial(indexes: range | list[int]) -> bytes:
    """Return the bytes that a serial run writes."""
    texts = [frame_of(i).to_csv(sep=" ", header=False, index=False) for i in indexes]
    return "".join(texts).encode()
