"""An attempt at pieces of a mini-batch: one call of `run` for each of them, and one outcome."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs._agent.child.failed_input import rows_as_bytes
from daskprs._agent.child.included_columns import taken_columns
from daskprs._agent.protocol.shared_page import Phase
from daskprs._core.outcomes import Failure, Status
from daskprs._core.pieces import FailedItems, FailedRows, PiecesEnd, size_of
from daskprs._inputs.source.batch_format import joined_pieces, piece_of, rows_in
from daskprs._output.rows.format_result import RowWriter
from daskprs._output.rows.result_tables import one_frame
from daskprs._output.rows.typed_rows import decode
from daskprs._output.spool import UnwritableError
from daskprs._system.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daskprs._agent.child.attempt_run import AttemptRun
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome
    from daskprs._core.pieces import Pieces, Range
    from daskprs._inputs.source.included import Included
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import AgentSpool

TOLERANCE = 1e-4
"""Largest relative, and largest absolute, difference of two floats that count as equal: models
compute larger batches in another order."""
NULL_RETURN = Failure(
    "RUN_NULL_RETURN",
    "run() returned None. Return a DataFrame, a list, a tuple, an array, a Series, an Arrow table "
    "or a generator; an empty list says that nothing succeeded.",
)
"""The failure of an attempt at which `run` has returned None."""
Ended = tuple[Failure, Status]
"""The failure of an attempt, and how it ends with it."""
DEPENDENT: Ended = (
    Failure("ValueError", "the rows of the mini-batch are not independent of each other"),
    Status.RUN_EXCEPTION,
)
"""That of an attempt whose rows are not those of a mini-batch as a whole."""


def with_failed_rows(
    outcome: Outcome, attempt: AttemptRun, data: Any, found: tuple[FailedItems, ...] = ()
) -> Outcome:
    """Return the outcome of a success without some items: those found, and those named."""
    failed = tuple(sorted([*found, *attempt.named.values()]))
    count = sum(one.stop - one.start for one in failed)
    # A file that was fetched for `run` is known by its address.
    paths = getattr(attempt.mini_batch.piece, "paths", None)
    items = data if paths is None else [*paths]
    rows = b"" if items is None else rows_as_bytes(items, failed)
    return outcome._replace(
        succeeded=min(outcome.succeeded, outcome.total - count),
        failed_rows=FailedRows(failed, rows, outcome.succeeded),
    )


class PiecesRun:
    """Runs pieces of a mini-batch.

    `write_run` calls `run` with `attempt.data`, and writes what it returns; it returns False for
    None. `ended` returns an exception of the script as data, and how the attempt ends with it.
    """

    def __init__(
        self,
        attempt: AttemptRun,
        pieces: Pieces,
        output: OutputSpec,
        included: Included | None,
        write_run: Callable[[RowWriter, AttemptRun, MiniBatch, Range], Awaitable[bool]],
        ended: Callable[[BaseException], Ended],
    ) -> None:
        self._attempt = attempt
        self._pieces = pieces
        self._output = output
        self._included = included
        self._write_run = write_run
        self._ended = ended
        self._data, attempt.data = attempt.data, None
        self._is_independent: bool | None = None
        self._has_passed = False
        """Whether a call has returned."""
        self._left_out: list[FailedItems] = []
        """The items that have failed, with their places, where none have rows of nulls."""

    async def tried_out(self) -> Outcome:
        """Find out whether the first range fails; the rows are dropped."""
        first, *others = self._ranges
        ended = await self._tried(RowWriter(self._output), first)
        if ended is None:
            await self._check(first)
            end = PiecesEnd(is_independent=self._is_independent)
            return self._attempt.finished(Status.RUN_DONE, pieces=end)
        passed_after = False
        for position, range_ in enumerate(() if ended[0].fatal else others, 1):
            self._attempt.turn_to(position)  # it may end the process, and is not what failed first
            passed_after = await self._tried(RowWriter(self._output), range_) is None
            if passed_after:
                await self._check(range_)
                break
        end = PiecesEnd(0, passed_after=passed_after, is_independent=self._is_independent)
        return self._failed(ended, end)

    async def made(self, spool: AgentSpool | None, *, counts_inputs: bool) -> tuple[Outcome, bytes]:
        """Run all ranges; return the outcome, and the rows where they are not in the spool."""
        attempt, pieces, nulls = self._attempt, self._pieces, self._attempt.nulls
        gaps = () if pieces.kept is None else pieces.kept.gaps
        # The end of a gap is found as failed items are: as if none had failed there.
        ends = [FailedItems(stop, stop, "", "", "", "", 0) for _, stop in gaps]
        left_out = sorted([*pieces.failed, *ends])
        with RowWriter(self._output, spool, attempt.mini_batch.index) as writer:
            for position, range_ in enumerate(self._ranges):
                while left_out and left_out[0].start < range_[0]:
                    self._leave_out(writer, left_out.pop(0))
                self._attempt.turn_to(position)
                ended = await self._tried(writer, range_)
                if ended is not None:
                    writer.discard()
                    return self._failed(ended, PiecesEnd(position, self._has_passed)), b""
            await self._check_ranges()
            if self._is_independent is False:
                writer.discard()
                return self._failed(
                    DEPENDENT, PiecesEnd(0, self._has_passed, is_independent=False)
                ), b""
            for items in left_out:
                self._leave_out(writer, items)
            if nulls is not None:
                nulls.finish(writer)
            rows = writer.finish()
        left_out = self._left_out if nulls is None else nulls.left_out
        failed = tuple(one for one in left_out if one.start < one.stop)
        made = rows.succeeded - (0 if nulls is None else nulls.count)
        made += 0 if pieces.kept is None else pieces.kept.returned
        outcome = attempt.done(rows, attempt.total if counts_inputs else made)
        if failed or attempt.named:
            outcome = with_failed_rows(outcome, attempt, self._data, failed)
        edges = tuple(one.cut[1] for one in left_out if one.cut and one.start == one.stop)
        end = PiecesEnd(is_independent=self._is_independent, edges=edges)
        return outcome._replace(pieces=end), rows.payload

    def _leave_out(self, writer: RowWriter, items: FailedItems) -> None:
        """Note the place of items that have failed; write rows of nulls if the output has them."""
        nulls = self._attempt.nulls
        if nulls is None:
            self._left_out.append(items._replace(cut=2 * (writer.place(),)))
            return
        beside: Callable[[Any], Any] = lambda rows: rows  # noqa: E731 - of one line
        if self._included is not None and items.start < items.stop:
            data = piece_of(self._data, items.start, items.stop)
            part = self._part((items.start, items.stop))
            beside = taken_columns(self._included, data, part, items.start)[0].beside
        nulls.leave_out(writer, items, beside)

    @property
    def _ranges(self) -> tuple[Range, ...]:
        ranges = self._pieces.ranges
        return ((0, rows_in(self._data)),) if ranges is None else ranges

    async def _tried(self, writer: RowWriter, range_: Range) -> Ended | None:
        """Call `run` for a range, at once or in steps; return how it has failed."""
        start, stop = range_
        step = self._pieces.at_most or stop - start
        for first in range(start, stop, step):
            self._attempt.enter(Phase.RUNNING)
            ended = await self._called(writer, (first, min(first + step, stop)))
            if ended is not None:
                return ended
        return None

    def _part(self, range_: Range) -> MiniBatch:
        """Return the mini-batch as it is for a range."""
        mini_batch, (start, stop) = self._attempt.mini_batch, range_
        first = mini_batch.row_lower_bound
        return mini_batch._replace(
            items=stop - start,
            size_bytes=None,
            row_lower_bound=None if first is None else first + start,
        )

    async def _called(self, writer: RowWriter, range_: Range) -> Ended | None:
        attempt, part = self._attempt, self._part(range_)
        try:
            attempt.data = piece_of(self._data, *range_)
            if not await self._write_run(writer, attempt, part, range_):
                return NULL_RETURN, Status.RUN_NULL_RETURN
        except UnwritableError:  # a full disk is the fault of no row
            raise
        except BaseException as error:  # noqa: BLE001 - a person's code may raise anything
            return self._ended(error)
        self._has_passed = True
        return None

    def _failed(self, ended: Ended, end: PiecesEnd) -> Outcome:
        failure, status = ended
        return self._attempt.finished(status, failure=failure, pieces=end)

    async def _check_ranges(self) -> None:
        """Compare items that have passed: the trials may have passed for single items only.

        Single items that stand apart run together as if nothing were between them. They have not
        passed so: a failure may be want of memory, say, and then nothing is known.
        """
        ranges, attempt = self._ranges, self._attempt
        if not self._pieces.checks or not ranges:
            return
        attempt.turn_to(len(ranges))  # no range is to blame for a process that dies now
        largest = max(ranges, key=size_of)
        if size_of(largest) > 1:
            await self._check(largest)
            return
        kept = self._data, attempt.mini_batch, attempt.named
        self._data, attempt.named = joined_pieces(self._data, ranges), {}
        attempt.mini_batch = _without_others(attempt.mini_batch, ranges)
        try:
            await self._check((0, len(ranges)), if_failed=None)
        finally:
            self._data, attempt.mini_batch, attempt.named = kept

    async def _check(self, range_: Range, *, if_failed: bool | None = False) -> None:
        """Compare the rows of a range that has passed with those of its halves.

        `if_failed` is what a call says that fails.
        """
        start, stop = range_
        middle = (start + stop) // 2
        if not self._pieces.checks or middle == start:
            return
        results = []
        for ranges in ([range_], [(start, middle), (middle, stop)]):
            with RowWriter(self._output._replace(text=False, typed=True)) as writer:
                for one in ranges:
                    if await self._tried(writer, one) is not None:
                        self._is_independent = if_failed
                        return
                results.append(writer.finish().payload)
        self._is_independent = not _difference(*results)


def _without_others(mini_batch: MiniBatch, ranges: tuple[Range, ...]) -> MiniBatch:
    """Return a mini-batch as if it had only the items of some ranges."""
    piece = mini_batch.piece
    if (paths := getattr(piece, "paths", None)) is not None:
        piece = piece._replace(paths=tuple(joined_pieces([*paths], ranges)))
    return mini_batch._replace(piece=piece)


def _difference(one: bytes, other: bytes) -> str:
    """Return how typed rows differ; empty if they are the same but for the last digits of floats.

    Counts, columns and types count, and values; the index does not. Of categories, the values
    count: a polars or Arrow column has those that are in it, and fewer of them in a half.
    """
    first, second = map(_frame, (one, other))
    for place, dtypes in enumerate(zip(first.dtypes, second.dtypes, strict=False)):
        if any(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes):
            for frame in (first, second):
                frame.isetitem(place, frame.iloc[:, place].to_numpy(object))
    try:
        pd.testing.assert_frame_equal(first, second, rtol=TOLERANCE, atol=TOLERANCE)
    except Exception as error:  # noqa: BLE001 - objects of a person's code may not be comparable
        return str(error) or type(error).__name__
    return ""


def _frame(rows: bytes) -> pd.DataFrame:
    pieces = decode(io.BytesIO(rows), len(rows), Seal(is_trusted=True))
    frame = one_frame((0, piece) for piece in pieces)
    return pd.DataFrame() if frame is None else frame.reset_index(drop=True)
