"""``--set jobs.x.mini_batch_size=20kb``: values of a YAML file, changed before it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from daskprs.errors import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        When there is no such way, or the value is no YAML: for all of them in one go.

    """
    wrong = []
    for word in overrides:
        way, equals, text = word.partition("=")
        try:
            if not equals or not way:
                msg = "write way.to.a.value=value"
                raise ValueError(msg)
            content = _set(content, way.split("."), yaml.safe_load(text))
        except (ValueError, yaml.YAMLError) as error:
            wrong.append(f"--set {word}: {error}")
    if wrong:
        raise YamlError("\n".join(wrong))
    return content


def _set(content: Any, way: list[str], value: Any) -> Any:
    """Return a copy with one value changed; mappings on the way are made where there are none."""
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
