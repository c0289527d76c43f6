"""Errors of the SDK, as the errors of daskprs that stand for them after ``except``."""

from __future__ import annotations

from daskprs.azure.v1.absent import not_built_in_v2
from daskprs.errors import DaskprsError, UsageError

MlException = JobException = DaskprsError
UserErrorException = ValidationException = UsageError

__getattr__ = not_built_in_v2
