"""What the script counts in its process: sums on the shared page, where a death leaves them."""

from __future__ import annotations

import threading
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from daskprs._agent.protocol.shared_page import MOST_COUNTED, NAME_BYTES

if TYPE_CHECKING:
    from daskprs._agent.protocol.shared_page import SharedPage


class ProcessCounts:
    """Adds up amounts by name; several calls of the script may count at the same time."""

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: Any, amount: Any, to: dict[str, float]) -> None:
        """Add an amount to the sum of the process, and to that of an attempt.

        Raise `ValueError` for a name or an amount that cannot be counted.
        """
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= NAME_BYTES:
            msg = f"context.count({name!r}, …): a name is text of 1 to {NAME_BYTES} bytes."
            raise ValueError(msg)
        if not isinstance(amount, Real) or not isfinite(amount) or amount < 0:
            msg = f"context.count({name!r}, {amount!r}): an amount is a number, 0 or more."
            raise ValueError(msg)
        with self._lock:
            if name not in self._sums and len(self._sums) == MOST_COUNTED:
                msg = (
                    f"context.count({name!r}, …): the process has counted {MOST_COUNTED} names, "
                    f"which are the most that there can be: {', '.join(self._sums)}."
                )
                raise ValueError(msg)
            total = self._sums.get(name, 0.0) + float(amount)
            if not isfinite(total):
                msg = f"context.count({name!r}, {amount!r}): the sum is too large."
                raise ValueError(msg)
            self._sums[name] = total
            to[name] = to.get(name, 0.0) + float(amount)
            self._page.show_counted(self._sums)
