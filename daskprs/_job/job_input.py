"""The input of a job: what is done before its plan is known, and the plan."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from daskprs._agent.child.missing_keys import delimiter_in
from daskprs._agent.protocol.messages import INLINE
from daskprs._inputs.source.sizes import bare_bytes
from daskprs._output.journal.recovery import RUNS
from daskprs._report.humanize import counted
from daskprs.errors import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from daskprs._cluster.staged_work import StagedWork
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.collections.source import CollectionSource
    from daskprs._inputs.costs import Costs, CostSource
    from daskprs._inputs.keys.partition_keys import ShuffledKeySource
    from daskprs._inputs.source.source import TableSource
    from daskprs._job.job_cluster import JobCluster
    from daskprs._job.request import CheckedCall
    from daskprs._output.store import ResultStore
    from daskprs._report.listeners import Listeners

SIZED_AT_MOST = 10_000
"""Number of mini-batches up to which their sizes are looked up before they run, in milliseconds."""
USES_OF_INDEX = {"index", "loc", "reindex"}
"""What a script uses that looks at the labels of rows."""
TOKENLESS = (
    "the collection has no deterministic token, so a resume computes all of it to compare it. "
    "Futures have none, and a Delayed has one if it is pure: delayed(function, pure=True)."
)


class JobInput:
    """Does for a source what needs the job's cluster, where the source asks for it.

    It is the `InputWork` that `Source.begin` gets. The plan is known after that.
    """

    def __init__(
        self,
        call: CheckedCall,
        cluster: JobCluster,
        job: ExitStack,
        listeners: Listeners,
        ask: Callable[[CostSource, TableSource], Iterator[Costs]],
    ) -> None:
        self.scratch: Path = call.folder.scratch
        self.known_before: dict[str, Any] = {}
        """The facts about the input that an earlier run learnt after it wrote its fingerprint."""
        self.staged: StagedWork[Any] | None = None
        """The partitions of the input that workers hold, if they hold any."""
        self.failed_before: Callable[[MiniBatch], bool] | None = None
        """Whether an earlier run could not make a mini-batch, where that can be."""
        self._ask = ask
        """Asks a function of the script for the costs of the rows of blocks."""
        self._call = call
        self._cluster = cluster
        self._job = job
        self._listeners = listeners
        self._growing: CollectionSource | None = None
        """The source, if its plan grows while the job runs."""
        job.callback(call.source.let_go)

    # ---- what a source asks for ----

    def costs(self, blocks: TableSource) -> Iterator[Costs]:
        """Yield the costs of the rows of each block, by the function of the script."""
        return self._ask(cast("CostSource", self._call.source), blocks)

    def bring_together(self, source: ShuffledKeySource) -> None:
        """Bring the rows of each key together on the workers."""
        options = self._call.options
        source.drop_earlier(self.scratch)
        if options.start_method == INLINE:
            source.prepare(self.scratch)
            return
        client, limits = self._cluster.keep(self._job), options.limits()
        from daskprs._cluster.key_exchange import KeyExchange

        exchange = KeyExchange(
            client,
            options.environment_variables,
            options.process_count_per_node,
            limits.load_timeout_s,
            limits.no_workers_timeout_s,
        )
        self._job.callback(exchange.close)
        source.bring_together(self.scratch, exchange.run)
        source.workers = exchange.workers
        self.staged = exchange.staged

    def follow(self, source: CollectionSource) -> None:
        """Take the plan of a collection as it grows; a resume computes what it must compare."""
        self._growing = source
        self.failed_before = source.failed_before
        if not source.has_token:
            self._listeners.say("info", TOKENLESS)
        options = self._call.options
        if not options.resume:
            return
        if unknown := list(source.unknown()):
            if not source.table.is_same:
                what = (
                    f"{len(unknown)} partitions are computed to compare them with those of before"
                )
                why = "other tasks than before make them" if source.has_token else TOKENLESS
                self._listeners.say("warning", f"{what}: {why}")
            with self._cluster.connected() as client:
                from daskprs._cluster.partition_feed import PartitionFeed

                with closing(PartitionFeed(source, self._call.job_id)) as feed:
                    feed.describe(client, unknown, options.limits().no_workers_timeout_s)
        self.known_before = source.compare(extends=RUNS[options.resume] == "what is new")

    # ---- what the job asks for ----

    def plan(self, store: ResultStore) -> Iterator[MiniBatch | None]:
        """Return the plan; one that grows has None where the next mini-batch is not known yet."""
        if self._growing is not None:
            from daskprs._cluster.partition_feed import PartitionFeed

            self.staged = feed = PartitionFeed(self._growing, self._call.job_id, store.is_settled)
            return feed.plan()
        plan = self._call.source.mini_batches
        if self.staged is not None:
            self.staged.settle(filter(store.is_settled, plan()))
        return plan()

    def unmet_need(self) -> str:
        """Return what the input waits for that no worker has; '' where that is not known."""
        need: Callable[[], str] | None = getattr(self.staged, "unmet_need", None)
        return "" if need is None else need()

    def notes(self) -> Iterator[str]:
        """Yield what a person may have meant otherwise (after `begin`)."""
        on_rows = self._note_on_index(), self._note_on_labels()
        yield from filter(None, (self._note_on_size(), self._note_on_delimiter(), *on_rows))

    def _note_on_size(self) -> str:
        """Return a note on a size in bytes that looks like a number of rows."""
        source, size = self._call.source, self._call.options.mini_batch_size
        amount = 0 if self._call.options.mini_batch_cost else bare_bytes(size)
        if source.unit != "row" or not amount:
            return ""
        rows, so_many = cast("TableSource", source).usual_rows(), ""
        if rows is not None:
            about = f"about {counted(round(rows), 'row')}" if rows >= 1 else "less than one row"
            so_many = f", {about} of this table"
        noun = "row" if amount == 1 else "rows"
        return (
            f"{Option('mini_batch_size', size)} is a number of bytes{so_many}. Write "
            f"'{amount} {noun}' for so many rows, or '{amount} B' for bytes without this note."
        )

    def _note_on_index(self) -> str:
        """Return a note on a frame with labels if the script looks at the index of its rows."""
        if not (self._call.has_labels and USES_OF_INDEX & self._call.script.names):
            return ""
        return (
            "the index of a mini-batch in run() is 0, 1, …, and not that of the frame. If run() "
            "needs the labels, call with frame.reset_index(): they are a column then."
        )

    def _note_on_labels(self) -> str:
        """Return a note on labels of a frame that the output does not have."""
        is_known = self._growing is None
        if self._call.output.unlabelled is None or not (is_known and self._call.has_labels):
            return ""
        return (
            "the output has no column for the index of the frame. To keep the index, call with "
            f"frame.reset_index(), or keep it for to_pandas() by {Option('keep_rows', value=True)}."
        )

    def _note_on_delimiter(self) -> str:
        """Return a note on a table whose only column looks like several."""
        columns = getattr(self._call.source, "columns", None)
        if self._call.options.delimiter is not None or columns is None or len(columns) != 1:
            return ""
        delimiter = delimiter_in(str(columns[0]))
        if not delimiter:
            return ""
        # Its import of pandas takes a third of a second.
        from daskprs._inputs.delimited.source import DelimitedSource

        if not isinstance(self._call.source, DelimitedSource):
            return ""
        return (
            f"the table has one column, {columns[0]!r}. If these are several, give the "
            f"{Option('delimiter')} {delimiter!r}."
        )

    def sizes(self, expected: int | None, store: ResultStore) -> dict[int, int] | None:
        """Return the sizes of the mini-batches to be run, where finding them out costs little."""
        if expected is None or expected > SIZED_AT_MOST or self._growing is not None:
            return None
        left = (one for one in self._call.source.mini_batches() if not store.is_settled(one))
        sizes = {one.index: one.size for one in left}
        known = {index: size for index, size in sizes.items() if size is not None}
        return known if len(known) == len(sizes) else None

    def finish(self, store: ResultStore) -> None:
        """Keep what has become known of the labels of rows with the partitions."""
        source, call = self._growing, self._call
        if source is None:
            return
        if source.form.keep_labels:
            store.keep_labels(source.finish_labels())
        if call.output.unlabelled is not None and not call.options.output_partition_by:
            store.note_unlabelled(source.numbered_rows())
