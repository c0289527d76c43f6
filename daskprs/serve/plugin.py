"""The parts that the HTTP service adds to daskprs."""

from __future__ import annotations

from daskprs.plugins import Plugin

PLUGIN = Plugin(commands={"serve": "daskprs.serve.command:serve"})
