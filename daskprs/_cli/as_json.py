"""The flag ``--json``: what a command shows, as JSON on stdout, for programs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from os import PathLike
from typing import Any

import click

from daskprs._cli.exit_codes import echo

JSON = click.option("--json", "as_json", is_flag=True, help="Show it as JSON, for programs.")
"""The option of a command, which gets it as its parameter ``as_json``."""


def show_json(value: Any) -> None:
    """Show a value as indented JSON on stdout; errors go to stderr, as without the flag."""
    echo(json.dumps(json_value(value), indent=2, allow_nan=False))


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: paths and dates as text, named tuples and classes by field.

    What JSON has no value for, such as NaN, is null; scalars of NumPy are numbers.
    """
    named = _named_parts(value)
    if named is not None:
        return {str(name): json_value(one) for name, one in named.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(one) for one in value]
    return _plain(value.item() if hasattr(value, "item") else value)


def _named_parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value that has names for them; None for any other."""
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    named = value._asdict() if hasattr(value, "_asdict") else value
    return named if isinstance(named, Mapping) else None


def _plain(value: Any) -> Any:
    """Return a single value."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    is_one = value is None or isinstance(value, (bool, int, str))
    return value if is_one else os.fsdecode(value) if isinstance(value, PathLike) else str(value)
