"""Whether a job is still the one that its journal was written for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daskprs.errors import JobChanged, Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Parts = tuple[str | Option, ...]

SHOWN = 10
LONGEST = 80
CODE = (".py", ".pyc", ".so")
"""A new file beside the script can change what it does if it can be imported."""
DIGESTS = {
    ("input", "content"): "the rows of the input have changed",
    ("script", "object"): "the function or object that is the script has changed",
}
"""What is compared by a digest, which says nothing to people."""
PLACES = {"script": "in the script's folder", "input": "of the input"}


def check_unchanged(written: Iterable[dict[str, Any]], now: dict[str, Any]) -> None:
    """Refuse to go on with a job that has become another one.

    Parameters
    ----------
    written
        What the epochs of the job were begun with, as JSON values: for ``input``, ``script``,
        ``options`` and ``output``. Below ``files``, paths with what their content is known by.
    now
        The same of what is asked for now.

    Raises
    ------
    JobChanged
        Naming the files, options and other parts that differ.

    """
    now = json.loads(json.dumps(now))  # as it would have been written
    for then in written:
        changed = list(_differences(then, now, ()))
        if changed:
            raise JobChanged(*_message(changed))


def _message(changed: list[Parts]) -> Iterator[str | Option]:
    yield "the job cannot go on, since what it has done was made with something else:"
    for parts in changed[:SHOWN]:
        yield "\n  "
        yield from parts
    if len(changed) > SHOWN:
        yield f"\n  and {len(changed) - SHOWN} more"
    yield "\nPut this back as it was, and go on; or begin anew, without "
    yield Option("resume", value=True)
    yield " and with another "
    yield Option("job_dir")
    yield "."


def _differences(then: Any, now: Any, where: tuple[str, ...]) -> Iterator[Parts]:
    if then == now and not isinstance(then, dict):
        return
    if where[-1:] == ("files",):
        yield from _files(then, now, where[0])
    elif isinstance(then, dict) and isinstance(now, dict):
        for name in sorted({*then, *now}):
            yield from _differences(then.get(name), now.get(name), (*where, name))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, (*where, str(place)))
    else:
        yield _value(then, now, where)


def _files(then: Any, now: Any, part: str) -> Iterator[Parts]:
    """Name the files that differ; of more than anybody would read there is only a digest."""
    if not isinstance(then, dict) or not isinstance(now, dict):
        if then != now:
            yield (f"the files {PLACES[part]} are not the same",)
        return
    for path in sorted({*then, *now}):
        if "" in (then.get(path), now.get(path)):
            continue  # a log that the job itself writes
        if path not in then:
            if part == "input" or path.endswith(CODE):
                yield (f"{PLACES[part]}, {path} is new",)
        elif path not in now:
            yield (f"{PLACES[part]}, {path} is gone",)
        elif then[path] != now[path]:
            yield (f"{PLACES[part]}, {path} has changed",)
    if part == "input" and then == now and list(then) != list(now):
        yield ("the files of the input come in another order",)


def _value(then: Any, now: Any, where: tuple[str, ...]) -> Parts:
    if (where[0], where[-1]) in DIGESTS:
        return (DIGESTS[where[0], where[-1]],)
    told = f" was {_short(then)} and is {_short(now)}"
    if where[0] == "options":
        return Option(where[1]), "".join(f" of {name}" for name in where[2:]), told
    return (" ".join(where), told)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
