"""Loading mini-batches: on the spot, or one ahead while `run` works."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.agent.child.memory_reserve import MemoryReserve
from daskprs.agent.protocol.shared_page import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.agent.protocol.shared_page import SharedPage
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.source.source import Reader

WORTH_A_THREAD_S = 0.001
"""Seconds below which a load is not worth a thread; handing it over costs about a tenth."""


class Loaded(NamedTuple):
    """The result of loading one mini-batch: the data, or an error."""

    data: Any
    error: BaseException | None
    seconds: float


class Loader:
    """Loads one mini-batch at a time; at most one ahead of the one that runs."""

    def __init__(
        self, reader: Reader | None, page: SharedPage, reserve: MemoryReserve | None = None
    ) -> None:
        self.reader = reader
        """The reader; None until the script is imported, since it may need the script's modules."""
        self._page = page
        self._reserve = reserve or MemoryReserve(page)
        self._ahead = NOTHING
        self._orders: SimpleQueue[Callable[[], MiniBatch | None] | None] = SimpleQueue()
        self._heard: SimpleQueue[int] = SimpleQueue()
        self._results: SimpleQueue[Loaded] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lately_s = 0.0
        """Recent seconds of a load; a quick load among slow ones, such as a file's tail, halves
        it."""

    def start(self) -> None:
        """Start the thread; where the system refuses threads, nothing is loaded ahead.

        A thread started without free memory never begins, and `Thread.start` waits for it for
        ever. So this is called before the script is imported.
        """
        thread = threading.Thread(target=self._serve, name="loader", daemon=True)
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def take(self, position: int, mini_batch: MiniBatch) -> Loaded:
        """Return this mini-batch's data: wait for a load begun ahead, or load it now."""
        if self._ahead == position:
            loaded = self._results.get()
            self._ahead = NOTHING
        else:
            loaded = self._load(mini_batch)
        self._lately_s = max(loaded.seconds, self._lately_s / 2)
        return loaded

    @property
    def pays(self) -> bool:
        """Whether loads take long enough to be worth doing ahead, and there is a thread for it."""
        return self._lately_s > WORTH_A_THREAD_S and self._thread is not None

    def begin(self, position: int, mini_batch: MiniBatch) -> None:
        """Start to load this mini-batch on the loader's thread."""
        self._ahead = position
        self._page.loading(position)
        self._orders.put(lambda: mini_batch)

    def listen(self, position: int, wait: Callable[[], MiniBatch | None]) -> None:
        """Let the loader's thread wait for the mini-batch at a position, and load it."""

        def heard() -> MiniBatch | None:
            mini_batch = wait()
            if mini_batch is not None:
                self._page.loading(position)
            self._heard.put(NOTHING if mini_batch is None else position)
            return mini_batch

        self._orders.put(heard)

    def listened(self) -> None:
        """Wait until the thread stops listening; it then loads the received mini-batch, if any."""
        self._ahead = self._heard.get()

    def close(self) -> None:
        """End the thread, once it has finished its orders."""
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()

    def _serve(self) -> None:
        try:
            while (order := self._orders.get()) is not None:
                mini_batch = order()
                if mini_batch is not None:
                    loaded = self._load(mini_batch)
                    self._page.loading(NOTHING)
                    self._results.put(loaded)
        except MemoryError:
            self._reserve.end()

    def _load(self, mini_batch: MiniBatch) -> Loaded:
        begun = time.perf_counter()
        assert self.reader is not None, "nothing is loaded before the script is there"  # noqa: S101
        try:
            data, error = self.reader.load(mini_batch), None
        except BaseException as caught:  # noqa: BLE001 - whatever a reader raises fails this one only
            data, error = None, caught
        return Loaded(data, error, time.perf_counter() - begun)
