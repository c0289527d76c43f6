"""Rules for the values of options; each returns the value in its one form, or refuses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daskprs.errors import OptionError

LONGEST_S = 259_200
"""Three days: the longest timeout that Azure's v2 schema takes."""
MOST_PERCENT = 100


def refused(name: str, value: Any, rule: str) -> OptionError:
    """Return the error that names the option, the rule and the value."""
    return OptionError(f"{name}={value!r}: must be {rule}.")


def check_number(least: int, *, optional: bool = False) -> Callable[[str, Any], Any]:
    """Return a rule for whole numbers."""

    def rule(name: str, value: Any) -> Any:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise refused(name, value, f"a whole number of at least {least}")
        return value

    return rule


def check_seconds(*, optional: bool = False) -> Callable[[str, Any], Any]:
    """Return a rule for timeouts."""

    def rule(name: str, value: Any) -> Any:
        if value is None and optional:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= LONGEST_S:
            raise refused(name, value, f"a number of seconds above 0, at most {LONGEST_S}")
        return value

    return rule


def check_percent(name: str, value: Any) -> Any:
    """Refuse what is no percentage."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST_PERCENT:
        raise refused(name, value, "a number from 0 to 100")
    return value


def check_one_of(*allowed: Any, any_case: bool = False) -> Callable[[str, Any], Any]:
    """Return a rule for a choice."""

    def rule(name: str, value: Any) -> Any:
        given = value.upper() if any_case and isinstance(value, str) else value
        for choice in allowed:
            if type(given) is type(choice) and given == choice:
                return choice
        shown = ", ".join("None" if choice is None else repr(choice) for choice in allowed)
        raise refused(name, value, f"one of {shown}")

    return rule


def check_separator(name: str, value: Any) -> Any:
    """Refuse what is not a single character; None is left to the reader."""
    if value is None and name == "delimiter":
        return None
    if not isinstance(value, str) or len(value) != 1 or value in '\r\n"':
        raise refused(name, value, "a single character, neither a quote nor a line break")
    return value


def check_file_name(name: str, value: Any) -> Any:
    """Refuse what is not the plain name of a file."""
    if not isinstance(value, str) or not value or "/" in value or value.startswith("."):
        raise refused(name, value, "a file name without a folder, not hidden")
    return value


def names(name: str, value: Any) -> tuple[str, ...] | None:
    """Return column names as a tuple; a single one may be given as text."""
    if value is None:
        return None
    given = (value,) if isinstance(value, str) else value
    fine = isinstance(given, Sequence) and all(isinstance(one, str) and one for one in given)
    if not fine or not given or len(set(given)) != len(given):
        raise refused(name, value, "one or more different column names")
    return tuple(given)


def strings(name: str, value: Any) -> tuple[str, ...]:
    """Return arguments as a tuple of text."""
    numbers = (int, float)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise refused(name, value, "a list of strings")
    if not all(isinstance(one, (str, *numbers)) or hasattr(one, "__fspath__") for one in value):
        raise refused(name, value, "a list of strings")
    return tuple(str(one) for one in value)


def variables(name: str, value: Any) -> dict[str, str] | None:
    """Return environment variables as a dict of text."""
    if value is None:
        return None
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    for key, text in pairs:
        if not isinstance(key, str) or not isinstance(text, str):
            raise refused(name, value, "a mapping of names to strings")
        if not key or "=" in key or "\0" in key + text:
            raise refused(name, value, "a mapping of names to strings")
    return dict(value)
