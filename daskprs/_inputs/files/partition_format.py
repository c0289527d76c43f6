"""Values that paths carry: ``{user}/{season}/{genre}.wav``, and folders called ``key=value``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._inputs.source.input_file import InputFile

Values = tuple[tuple[str, Any], ...]
_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")
_DATE_PARTS = {
    "yyyy": ("%Y", r"\d{4}"),
    "MM": ("%m", r"\d{2}"),
    "dd": ("%d", r"\d{2}"),
    "HH": ("%H", r"\d{2}"),
    "mm": ("%M", r"\d{2}"),
    "ss": ("%S", r"\d{2}"),
}
_WILDCARD = re.compile(r"(\*\*|\*)")
_WILDCARDS = {"**": ".*", "*": "[^/]*"}
_DATE_TOKEN = re.compile("|".join(_DATE_PARTS))


class PartitionFormat:
    """A pattern that each path must end with.

    ``{name}`` stands for text without a slash, ``{name:yyyy/MM/dd}`` for a date, ``*`` for any
    text without a slash and ``**`` for any text.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._dates: dict[str, str] = {}
        self.names: list[str] = []
        expression, at = "", 0
        for field in _FIELD.finditer(pattern):
            expression += _plain(pattern[at : field.start()]) + self._group(field)
            at = field.end()
        if not self.names or len(set(self.names)) != len(self.names):
            shown = Option("partition_format", pattern)
            raise OptionError(shown, ": must hold fields such as {user}, each once.")
        rest = _plain(pattern[at:])
        self._expression = re.compile(f"(?:.*/)?{expression.lstrip('/')}{rest}", re.DOTALL)

    def values(self, file: InputFile) -> Values:
        """Return the values that a path carries, in the order of the pattern.

        A path that does not match is an `InputError`: no file is ever dropped.
        """
        match = self._expression.fullmatch(file.path)
        if match is None:
            msg = f"{file.path} does not match "
            raise InputError(msg, Option("partition_format", self.pattern), ".")
        return tuple(
            (name, self._value(name, match[f"f{place}"], file))
            for place, name in enumerate(self.names)
        )

    def _group(self, field: re.Match[str]) -> str:
        name, date = field[1], field[2]
        place = len(self.names)
        self.names.append(name)
        if date is None:
            return f"(?P<f{place}>[^/]+)"
        if _DATE_TOKEN.search(date) is None:
            msg = f": {date!r} is not a date; the parts of a date are {', '.join(_DATE_PARTS)}."
            raise OptionError(Option("partition_format", self.pattern), msg)
        literal = date.replace("%", "%%")
        self._dates[name] = _DATE_TOKEN.sub(lambda part: _DATE_PARTS[part[0]][0], literal)
        expression = _DATE_TOKEN.sub(lambda part: _DATE_PARTS[part[0]][1], re.escape(date))
        return f"(?P<f{place}>{expression})"

    def _value(self, name: str, text: str, file: InputFile) -> Any:
        if name not in self._dates:
            return text
        try:
            return datetime.strptime(text, self._dates[name]).replace(tzinfo=UTC)
        except ValueError as error:
            msg = f"{file.path}: {text!r} is not a date for {name} of {self.pattern!r}: {error}."
            raise InputError(msg) from error


def _plain(text: str) -> str:
    """Return the expression for text between fields."""
    parts = (part for part in _WILDCARD.split(text) if part)
    return "".join(_WILDCARDS.get(part) or re.escape(part) for part in parts)


def hive_values(file: InputFile) -> Values:
    """Return the values of the folders called ``key=value`` above a file.

    Names and values are decoded: writers of such folders encode slashes and the like by ``%``.
    """
    if "=" not in file.relative:
        return ()
    pairs = (folder.partition("=") for folder in file.relative.split("/")[:-1])
    values = [(_decoded(name), _decoded(value)) for name, equals, value in pairs if name and equals]
    if len(dict(values)) != len(values):
        msg = f"{file.path} lies in two folders of the same key."
        raise InputError(msg)
    return tuple(values)


def _decoded(text: str) -> str:
    return unquote(text, errors="surrogateescape") if "%" in text else text


def check_keys(keys: Sequence[str], names: Sequence[str]) -> None:
    """Refuse partition keys that no path carries."""
    for key in keys:
        if key not in names:
            raise OptionError(Option("partition_keys"), f": {key!r} is none of {', '.join(names)}.")
