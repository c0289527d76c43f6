"""The parts that the HTTP service adds to daskprs."""

from __future__ import annotations

from daskprs._plugins import Plugin

PLUGIN = Plugin(commands={"serve": "daskprs._serve.command:serve"})
