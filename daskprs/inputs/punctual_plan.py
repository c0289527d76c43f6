"""A plan that gives its first mini-batch in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.core.mini_batch import MiniBatch


def punctual(plan: Iterator[MiniBatch], timeout_s: float) -> Iterator[MiniBatch]:
    """Pass a plan on, unless its first mini-batch took too long to make."""
    begun = time.monotonic()
    for first in plan:
        took_s = time.monotonic() - begun
        if took_s > timeout_s:
            msg = (
                f"the first mini-batch took {took_s:.0f} s to make, more than "
                f"first_task_creation_timeout={timeout_s:g} s."
            )
            raise DaskprsError(msg)
        yield first
        yield from plan
