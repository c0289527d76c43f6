"""What comes back of leases, as workers put it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import LeaseReturned
from daskprs._core.outcomes import Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.outcomes import Outcome

SENT_TOGETHER = 3


def returned(
    lease_id: int, outcomes: Sequence[Outcome], process: str = "process000", **rest: Any
) -> LeaseReturned:
    """Return a lease with these outcomes, which its agent has sent a few at a time."""
    results = [
        Results(ColumnBatch(outcomes[start : start + SENT_TOGETHER]))
        for start in range(0, len(outcomes), SENT_TOGETHER)
    ]
    return LeaseReturned(lease_id, process, tuple(results), **rest)
