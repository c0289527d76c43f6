"""The agent's answers to its supervisor, as plain bytes, since the script can forge any of them.

The entry script runs in the agent's process and can write to its socket. A pickle of the script's
would run code in the Dask worker, so nothing of an agent is unpickled there. An answer is the
length of its head as four bytes, the head, and the rows that travel with outcomes. The head is a
msgpack array: a name and plain values. `parsed` checks the type and the bounds of every value.
"""

from __future__ import annotations

import operator
import struct
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgpack

from daskprs._agent.protocol.messages import InitDone, InitRaised, Noted, Outcomes, Started, Stopped
from daskprs._agent.protocol.shared_page import MOST_COUNTED, NAME_BYTES
from daskprs._core.columnar import ColumnBatch
from daskprs._core.outcomes import UNKNOWN, Extent, Failure, Outcome, Printed, Results, Status
from daskprs._core.pieces import FailedItems, FailedRows, PiecesEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Answer = Started | InitDone | InitRaised | Outcomes | Noted | Stopped

_HEAD = struct.Struct("!I")
_ARRAY_MASK, _ARRAY = 0xF0, 0x90
_NAME_MASK, _NAME = 0xE0, 0xA0
"""The first bytes of an array and of a short text of msgpack; their other bits are a length."""
MOST = 2**63 - 1
"""The largest number in an answer: journals and tables hold 64 bits."""
_CRC = 2**32 - 1
MOST_PACKAGES, MOST_CHARS = 10, 1000
_OF_AN_AGENT = {
    str(status): status
    for status in (
        Status.RUN_DONE,
        Status.LOAD_EXCEPTION,
        Status.RUN_EXCEPTION,
        Status.RUN_TIMEOUT,
        Status.RUN_NULL_RETURN,
        Status.INPUT_CHANGED,
        Status.THROTTLED,
    )
}
"""The statuses that an agent may report; all others come from its supervisor."""


class NoAnswer(ValueError):  # noqa: N818 - it says what it is
    """Bytes that no agent of daskprs sends."""


# ---- in the agent ----


def dumped(answer: Answer) -> bytes:
    """Return an answer as bytes."""
    payload = b""
    values: tuple[Any, ...] = answer
    if isinstance(answer, Outcomes):
        outcomes, payload, spool, unwritten = answer.results
        columns = tuple(zip(*outcomes, strict=True))
        values = answer.lease_id, columns, spool, unwritten, answer.halted
    head = msgpack.packb(
        (type(answer).__name__, *values), default=_plain, unicode_errors="surrogatepass"
    )
    return b"".join((_HEAD.pack(len(head)), head, payload))


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python."""
    return value.item()


# ---- in the supervisor ----


def parsed(body: bytes | bytearray) -> Answer:
    """Return the answer in these bytes; raise `NoAnswer` where an agent would not send them."""
    try:
        (size,) = _HEAD.unpack_from(body)
        view = memoryview(body)
        name, *values = msgpack.unpackb(
            view[_HEAD.size : _HEAD.size + size], use_list=False, unicode_errors="surrogatepass"
        )
        payload = bytes(view[_HEAD.size + size :])
        if name == Outcomes.__name__:
            return _outcomes(payload, *values)
        _check(payload == b"", "bytes behind a message")
        return _FORMS[name](*values)
    except NoAnswer:
        raise
    except Exception as error:  # the script may have written any bytes
        msg = f"{type(error).__name__}: {error}"
        raise NoAnswer(msg[:200]) from error


def check_beginning(body: bytes | bytearray) -> None:
    """Raise `NoAnswer` if no answer begins with these bytes, some six at least."""
    array, name = body[_HEAD.size : _HEAD.size + 2]
    if array & _ARRAY_MASK != _ARRAY or name & _NAME_MASK != _NAME:
        msg = f"no message begins with {bytes(body[:20])!r}"
        raise NoAnswer(msg)


def _started(protocol: Any) -> Started:
    return Started(*_ints("protocol", (protocol,)))


def _init_done(elapsed_s: Any, import_s: Any, packages: Any) -> InitDone:
    _check(type(packages) is tuple and len(packages) <= MOST_PACKAGES, "packages")
    _check(all(type(one) is str and one.isidentifier() for one in packages), "packages")
    _check(sum(map(len, packages)) <= MOST_CHARS, "packages")
    _seconds("seconds", (elapsed_s, import_s))
    return InitDone(elapsed_s, import_s, packages)


def _init_raised(failure: Any) -> InitRaised:
    return InitRaised(_failure("failure", failure))


def _stopped(failure: Any) -> Stopped:
    return Stopped(None if failure is None else _failure("failure", failure))


def _noted(text: Any) -> Noted:
    _check(type(text) is str and len(text) <= MOST_CHARS, "text")
    return Noted(text)


def _outcomes(
    payload: bytes, lease_id: Any, columns: Any, spool: Any, unwritten: Any, halted: Any
) -> Outcomes:
    (lease_id,) = _ints("lease_id", (lease_id,))
    _texts("halted", (halted,))
    _check(type(columns) is tuple and len(columns) in (0, len(Outcome._fields)), "columns")
    _check(type(spool) is str and type(unwritten) is str, "spool")
    made: dict[str, Sequence[Any]] = {}
    for name, column in zip(Outcome._fields, columns, strict=bool(columns)):
        _check(type(column) is tuple and len(column) == len(columns[0]) > 0, name)
        made[name] = _COLUMNS[name](name, column)
    if made:
        for is_done, failure in zip(map(_is_done, made["status"]), made["failure"], strict=True):
            _check(is_done == (failure is None), "failure")
    carried = 0
    for form in ("text", "typed") if made else ():
        offsets = [one.offset for one in made[form] if one is not None]
        _check(bool(spool) or offsets.count(None) == len(offsets), "offset")
        if None in offsets:
            carried += sum(one.length for one in made[form] if one and one.offset is None)
    _check(carried == len(payload), f"{len(payload)} bytes of rows, and {carried} announced")
    outcomes = ColumnBatch.of_columns(Outcome, [*made.values()])
    return Outcomes(lease_id, Results(outcomes, payload, spool, unwritten), halted)


_FORMS: dict[str, Callable[..., Answer]] = {
    "Started": _started,
    "InitDone": _init_done,
    "InitRaised": _init_raised,
    "Noted": _noted,
    "Stopped": _stopped,
}


# ---- values ----

_is_done = partial(operator.is_, Status.RUN_DONE)


def _check(is_right: bool, what: str) -> None:  # noqa: FBT001 - the condition
    if not is_right:
        msg = f"{what} is none of an agent's"
        raise NoAnswer(msg)


def _ints(name: str, column: tuple[Any, ...], most: int = MOST, least: int = 0) -> tuple[int, ...]:
    _check({*map(type, column)} == {int} and min(column) >= least and max(column) <= most, name)
    return column


def _seconds(name: str, column: tuple[Any, ...]) -> tuple[float, ...]:
    _check({*map(type, column)} <= {int, float} and all(map(isfinite, column)), name)
    return column


def _waits(name: str, column: tuple[Any, ...]) -> tuple[float | None, ...]:
    if column.count(None) < len(column):
        some = tuple(one for one in column if one is not None)
        _check(min(_seconds(name, some)) >= 0, name)
    return column


def _flags(name: str, column: tuple[Any, ...]) -> tuple[bool, ...]:
    _check({*map(type, column)} == {bool}, name)
    return column


def _texts(name: str, column: tuple[Any, ...]) -> tuple[str | None, ...]:
    _check({*map(type, column)} <= {str, type(None)}, name)
    return column


def _statuses(name: str, column: tuple[Any, ...]) -> list[Status]:
    _check(_OF_AN_AGENT.keys() >= {*column}, name)
    return [_OF_AN_AGENT[one] for one in column]


def _extents(name: str, column: tuple[Any, ...]) -> Sequence[Extent | None]:
    some = [one for one in column if one is not None]
    if not some:
        return column
    lengths, checksums, offsets = zip(*some, strict=True)
    _ints(name, lengths)
    _ints(name, checksums, _CRC)
    _ints(name, offsets if None not in offsets else (*{*offsets} - {None}, 0))
    return [None if one is None else Extent._make(one) for one in column]


def _where_given(value: Callable[[str, Any], Any]) -> Callable[[str, Any], Sequence[Any]]:
    """Return what makes values of a column; most of them are None, and most often all of them."""

    def values(name: str, column: tuple[Any, ...]) -> Sequence[Any]:
        if column.count(None) == len(column):
            return column
        return [None if one is None else value(name, one) for one in column]

    return values


def _printed(name: str, places: Any) -> Printed:
    (first, beyond), (first_of_stderr, beyond_of_stderr) = places
    _ints(name, (first, beyond, first_of_stderr, beyond_of_stderr), least=UNKNOWN)
    return Printed(*places)


def _failure(name: str, values: Any) -> Failure:
    kind, message, traceback, retryable, where, fatal = values
    texts = {*map(type, (kind, message, traceback, where))}
    flags = {*map(type, (retryable, fatal))}
    _check(texts == {str} and flags == {bool}, name)
    return Failure(kind, message, traceback, retryable, where, fatal)


def _end(name: str, values: Any) -> PiecesEnd:
    end = PiecesEnd(*values)
    _ints(name, (end.failed_at,))
    _flags(name, (end.passed_before, end.passed_after))
    _check(end.is_independent in (True, False, None), name)
    _check(type(end.edges) is tuple, name)
    _places(name, end.edges)
    return end


def _names(name: str, names: Any) -> tuple[str, ...]:
    _check(type(names) is tuple and {*map(type, names)} <= {str}, name)
    return tuple(names)


def _failed_rows(name: str, values: Any) -> FailedRows:
    items, rows, returned = values
    _ints(name, (returned,))
    _check(type(rows) is bytes and type(items) is tuple, name)
    failed = tuple(FailedItems(*one) for one in items)
    for each in failed:
        _ints(name, (each.start, each.stop, each.attempts))
        texts = each.status, each.kind, each.message, each.traceback, each.host, each.process
        _check({*map(type, texts)} == {str}, name)
        if each.cut is not None:
            _check(type(each.cut) is tuple and len(each.cut) == 2, name)  # noqa: PLR2004 - a pair
            _places(name, each.cut)
    return FailedRows(failed, rows, returned)


def _places(name: str, places: tuple[Any, ...]) -> None:
    for one in places:
        _check(type(one) is tuple and len(one) == 3, name)  # noqa: PLR2004 - see `Place`
        _ints(name, one)


def _no_process(name: str, column: tuple[Any, ...]) -> tuple[Any, ...]:
    # Its supervisor names the process of a stage.
    _check({*column} == {None if name == "stage_node" else ""}, name)
    return column


def _counts(name: str, column: tuple[Any, ...]) -> tuple[int | None, ...]:
    if column.count(None) < len(column):
        _ints(name, column)
    return column


def _amounts(name: str, counted: Any) -> tuple[Any, ...]:
    _check(type(counted) is tuple and 0 < len(counted) <= MOST_COUNTED, name)
    names, amounts = zip(*counted, strict=True)
    _check({*map(type, names)} == {str} and len({*names}) == len(names), name)
    _check(max(map(len, names)) <= NAME_BYTES, name)
    _check(min(_seconds(name, amounts)) >= 0, name)
    return tuple(counted)


_COLUMNS: dict[str, Callable[[str, tuple[Any, ...]], Sequence[Any]]] = {
    **dict.fromkeys(("index", "attempt", "total", "succeeded", "peak_bytes"), _ints),
    **dict.fromkeys(("started", "elapsed_s", "run_s", "cpu_s", "load_s"), _seconds),
    "status": _statuses,
    "text": _extents,
    "typed": _extents,
    "header": _texts,
    "failure": _where_given(_failure),
    "empty": _flags,
    "printed": _where_given(_printed),
    "pieces": _where_given(_end),
    "failed_rows": _where_given(_failed_rows),
    **dict.fromkeys(("stage_process", "stage_node"), _no_process),
    "columns": _where_given(_names),
    "failed_before": _counts,
    "usage": _where_given(_amounts),
    "wait_s": _waits,
}
