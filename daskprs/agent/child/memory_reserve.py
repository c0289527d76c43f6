"""Memory that an agent keeps for the moment when its script has left none."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from daskprs.agent.protocol.shared_page import SharedPage

RESERVE_BYTES = 16 << 20
"""Suffices to send a group of outcomes. It is address space only: no page of it is touched."""
NOTE = b"MemoryError: this agent process has no memory left. daskprs ends it.\n"
EXIT_NO_MEMORY = 1


class MemoryReserve:
    """Releases memory to report a MemoryError, and ends an agent that cannot even do that.

    Without an end, a thread that dies of a MemoryError leaves an agent that waits for ever.

    Parameters
    ----------
    page
        Where the supervisor finds the reason.

    """

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._held: bytes | None = None
        self.renew()

    def renew(self) -> None:
        """Take the memory again if it was released and there is enough of it."""
        if self._held is None:
            with suppress(MemoryError):
                self._held = bytes(RESERVE_BYTES)

    def release(self) -> None:
        """Give the memory to whatever comes next."""
        self._held = None

    def end(self) -> NoReturn:
        """End this process at once, with the reason in the page and in the log."""
        self._held = None
        try:
            self._page.lack_memory()
            os.write(2, NOTE)
        finally:
            os._exit(EXIT_NO_MEMORY)
