"""``--set jobs.x.mini_batch_size=20kb``: change values of a YAML file before it is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.errors import YamlError
from daskprs.yaml_files.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_CHARACTERS = 200
"""Characters of an override that a message shows."""


def overridden(content: Any, overrides: Iterable[str]) -> Any:
    """Return the content of a file with some values changed.

    Parameters
    ----------
    content
        Mappings, lists and scalars.
    overrides
        Each ``way.to.a.value=value``; the value is YAML, so that ``3`` is a number.

    Raises
    ------
    YamlError
        With every override whose path does not exist or whose value is not YAML.

    """
    wrong = []
    for word in overrides:
        way, equals, text = word.partition("=")
        try:
            if not equals or not way:
                msg = "write way.to.a.value=value"
                raise ValueError(msg)
            content = _set(content, way.split("."), Document(text, "value").content)
        except ValueError as error:
            shown = word if len(word) <= SHOWN_CHARACTERS else f"{word[:SHOWN_CHARACTERS]}..."
            wrong.append(f"--set {shown}: {error}")
    if wrong:
        raise YamlError("\n".join(wrong))
    return content


def _set(content: Any, way: list[str], value: Any) -> Any:
    """Return a copy with one value changed; create missing mappings on the path."""
    if not way:
        return value
    key, *rest = way
    match content:
        case dict() | None:
            known = content or {}
            return {**known, key: _set(known.get(key), rest, value)}
        case list() if key.isdecimal() and int(key) < len(content):
            at = int(key)
            return [*content[:at], _set(content[at], rest, value), *content[at + 1 :]]
        case list():
            msg = f"{key!r} is no number of an item: there are {len(content)}, from 0 on"
            raise ValueError(msg)
    msg = f"there is nothing below {content!r} that could be called {key!r}"
    raise ValueError(msg)
