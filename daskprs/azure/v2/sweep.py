"""The module of sweeps, which are not built: each name says what to write instead."""

from __future__ import annotations

from daskprs.azure.v1.absent import not_built_in_v2

__getattr__ = not_built_in_v2
