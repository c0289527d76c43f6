"""The command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from daskprs._cli.commands import main

__all__ = ["main"]

# Drivers that are started as processes need none of the commands, so they are imported late.
__getattr__, __dir__ = lazy_exports(__name__, {".commands": "main"}, globals())
