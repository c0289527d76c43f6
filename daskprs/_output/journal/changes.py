"""Check that a job is still the one that its journal was written for."""

from __future__ import annotations

import json
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from daskprs._system.user_key import user_key_file
from daskprs.errors import JobChanged, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


SHOWN = 10
LONGEST = 80
CODE = (".py", ".pyc", ".so")
"""Suffixes of importable files: a new one beside the script can change what the script does."""
NOTEBOOK = ".ipynb"
"""The suffix of a file that no script imports, and that its editor writes every few minutes."""
LOGS = ("*.log", "nohup.out")
CHECKPOINTS = ".ipynb_checkpoints"
"""The folder of copies that a notebook's editor writes."""
DIGESTS = {
    ("input", "content"): "the rows of the input have changed",
    ("script", "object"): "the function or object that is the script has changed",
}
"""Parts that are compared by a digest, which means nothing to people."""
ACCEPTABLE = ("input", "options", "script")
OF_ROWS_AS_TEXT = ("append_row_dataframe_header", "append_row_dataframe_sep")
"""Options of the form of text: rows in two forms would make one file."""
FORM = "form"
VARIABLES = ("options", "environment_variables")
NULLS = ("output", "errors")
OF_ALL_ROWS = {"content", "rows", "partitions"}
"""Fingerprint entries of a table as a whole; rows grouped by key are compared by key instead."""
PLACES = {"script": "in the script's folder", "input": "of the input"}


def check_unchanged(
    then: dict[str, Any] | None,
    now: dict[str, Any],
    accepted: Collection[str] = (),
    *,
    extend: bool = False,
    is_input: Callable[[str], bool] = lambda _: False,
) -> None:
    """Refuse to resume a job that has changed.

    Parameters
    ----------
    then
        The fingerprint that the job began with, as JSON values: for ``input``, ``script``,
        ``options`` and ``output``. Below ``files``, the fingerprint of each file's content by
        path. None: no earlier epoch left a result.
    now
        The fingerprint of the job as requested now.
    accepted
        Parts that may differ: results made with the old part are kept on purpose.
    extend
        The input may have more files, other rows of a key, more partitions.
    is_input
        Whether a file in the script's folder is input now: it may have been one of the script's.

    Raises
    ------
    JobChanged
        When files, options or other parts differ; the error names them.

    """
    if then is None:
        return
    now = json.loads(json.dumps(now))  # as it would have been written
    compared = _Comparison(extend=extend, is_input=is_input)
    then, now = _with_form_apart(then), _with_form_apart(now)
    changed = {
        part: found
        for part in sorted({*then, *now})
        if part not in accepted
        and (found := list(compared.differences(then.get(part), now.get(part), (part,))))
    }
    if changed:
        raise JobChanged(_message(changed, is_more=_is_only_more(then, now, changed)))


def input_differences(then: Any, now: Any) -> list[str]:
    """Return in words how the fingerprint of an input differs from that of earlier."""
    compared = _Comparison(extend=False, is_input=lambda _: True)
    return list(compared.differences(then, json.loads(json.dumps(now)), ("input",)))


def _with_form_apart(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a job with the form of its text as a part that nothing accepts."""
    if "options" not in parts:
        return parts
    options = dict(parts["options"])
    form = {name: options.pop(name) for name in OF_ROWS_AS_TEXT if name in options}
    return {**parts, "options": options, FORM: form}


def _is_only_more(then: Any, now: Any, changed: Collection[str]) -> bool:
    """Say whether the input has only grown, and nothing else has changed."""
    compared = _Comparison(extend=True, is_input=lambda _: True)
    more = compared.differences(then.get("input"), now.get("input"), ("input",))
    return [*changed] == ["input"] and not list(more)


def _message(changed: dict[str, list[str]], *, is_more: bool) -> str:
    found = [difference for part in changed for difference in changed[part]]
    if len(found) > SHOWN:
        found[SHOWN:] = [f"and {len(found) - SHOWN} more"]
    ways = ""
    if is_more:
        ways = f"; or run only what is new by {Option('resume', 'extend')}"
    elif set(changed) <= set(ACCEPTABLE):
        (first, *more), all_ = changed, tuple(changed)
        accepting = Option("accept_changes", all_ if more else first)
        ways = f"; or, if the change is intended, keep what is done by {accepting}"
    lines = "".join(f"\n  {difference}" for difference in found)
    return (
        f"the job cannot go on, since what it has done was made with something else:{lines}\n"
        f"Put this back as it was, and go on{ways}; or begin anew, without "
        f"{Option('resume', value=True)} and with another {Option('job_dir')}."
    )


def is_log(path: str) -> bool:
    """Say whether a file beside a script is a log or a checkpoint, which grows or changes."""
    *folders, name = path.split("/")
    return CHECKPOINTS in folders or any(fnmatchcase(name, pattern) for pattern in LOGS)


class _Comparison:
    """Finds differences; with `extend`, growth of the input does not count."""

    def __init__(self, *, extend: bool, is_input: Callable[[str], bool]) -> None:
        self._extend = extend
        self._is_input = is_input
        self._by_content = False
        """Whether a mini-batch holds all rows of a key, wherever these lie."""

    def differences(self, then: Any, now: Any, where: tuple[str, ...]) -> Iterator[str]:
        """Yield the differences, in words."""
        if where == VARIABLES:
            yield from _variables(then or {}, now or {})
            return
        if isinstance(then, dict) and "keys" in then:
            self._by_content = self._extend
        if then == now and not isinstance(then, dict):
            return
        if where[-1] in OF_ALL_ROWS and self._extend:
            yield from self._all_rows(then, now, where)
        elif where[-1] == "files":
            yield from self._files(then, now, where[0])
        elif isinstance(then, dict) and isinstance(now, dict):
            for name in sorted({*then, *now}):
                yield from self.differences(then.get(name), now.get(name), (*where, name))
        elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
            for place, (one, other) in enumerate(zip(then, now, strict=True)):
                yield from self.differences(one, other, (*where, str(place)))
        else:
            yield _value(then, now, where)

    def _all_rows(self, then: Any, now: Any, where: tuple[str, ...]) -> Iterator[str]:
        if self._by_content:
            return
        if where[-1] != "partitions":
            yield _value(then, now, where)
        elif Counter(map(json.dumps, then)) - Counter(map(json.dumps, now)):
            yield "a partition of the input has changed, or is gone"

    def _files(self, then: Any, now: Any, part: str) -> Iterator[str]:
        """Name the files that differ; a long list of files has only a digest."""
        if not isinstance(then, dict) or not isinstance(now, dict):
            if then != now:
                yield f"the files {PLACES[part]} are not the same"
            return
        for path in sorted({*then, *now}):
            if self._is_apart(path, then, now, part):
                continue
            if path not in then:
                if not self._extend if part == "input" else path.endswith(CODE):
                    yield f"{PLACES[part]}, {path} is new"
            elif path not in now:
                yield f"{PLACES[part]}, {path} is gone"
            elif then[path] != now[path]:
                yield f"{PLACES[part]}, {path} has changed"
        if part == "input" and then == now and list(then) != list(now) and not self._extend:
            yield "the files of the input come in another order"

    def _is_apart(self, path: str, then: Any, now: Any, part: str) -> bool:
        """Say whether a path is a log, a notebook, or no longer one of the script's."""
        if "" in (then.get(path), now.get(path)):
            return True
        if part != "script":
            return False
        is_apart = path.endswith(NOTEBOOK) or is_log(path)
        return is_apart or (path not in now and self._is_input(path))


def _value(then: Any, now: Any, where: tuple[str, ...]) -> str:
    if (where[0], where[-1]) in DIGESTS:
        return DIGESTS[where[0], where[-1]]
    if where[:-1] == ("input", "partitions"):
        return f"partition {where[-1]} of the input has changed"
    if where == NULLS:
        how = "was given, and is not now" if then else "is given now, and was not"
        return f"{Option('on_error', 'null')} {how}"
    thing = " ".join(where)
    if where[0] in ("options", FORM):
        thing = f"{Option(where[1])}{''.join(f' of {name}' for name in where[2:])}"
    return f"{thing} was {_short(then)} and is {_short(now)}"


def _variables(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how environment variables differ, of whose values there are digests by some key."""
    for name in sorted({*then, *now}):
        one, other = then.get(name), now.get(name)
        if one == other:
            continue
        if other is None:
            yield f"the environment variable {name} was given, and is not given now"
        elif one is None:
            yield f"the environment variable {name} is given now, and was not"
        elif isinstance(one, list) and isinstance(other, list) and one[0] != other[0]:
            yield (
                f"the environment variable {name} may have changed: a digest of its value was made "
                f"by another key than that in {user_key_file()}"
            )
        else:
            yield f"the value of the environment variable {name} has changed"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
