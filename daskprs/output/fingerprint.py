"""Whether a job is still the one that its journal was written for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daskprs.errors import JobChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHOWN = 5
LONGEST = 80


def check_unchanged(written: Iterable[dict[str, Any]], now: dict[str, Any]) -> None:
    """Refuse to go on with a job that has become another one.

    Raises
    ------
    JobChanged
        Naming the parts that differ.

    """
    now = json.loads(json.dumps(now))  # as it would have been written
    for then in written:
        changed = list(_differences(then, now, ""))
        if changed:
            more = f"; and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            msg = (
                "the journal of this job was written for something else. What differs: "
                f"{'; '.join(changed[:SHOWN])}{more}. Use another job_dir, or put things back as "
                "they were."
            )
            raise JobChanged(msg)


def _differences(then: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for name in sorted({*then, *now}):
            yield from _differences(then.get(name), now.get(name), f"{where}.{name}".strip("."))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{place}]")
    elif then != now:
        yield f"{where} was {_short(then)} and is {_short(now)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
