"""The protocol of the slots that the driver's loop is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs._core.actions import LeaseFailed, LeaseWithdrawn, LedgerEvent, SlotId
    from daskprs._core.events import AgentChanged, Progress, ProgressReported, SlotState
    from daskprs._core.lease import Lease, LeaseReturned
    from daskprs._core.mini_batch import MiniBatch


class Slots(Protocol):
    """The slots that work on leases, as they come and go."""

    def open(self, tell: Callable[[LedgerEvent], None]) -> None:
        """Begin to offer slots; `tell` is called with events of slots, threads and leases."""

    def close(self) -> None:
        """Take the job off the slots."""

    def turn(self, work_s: float) -> None:
        """Do what is due; `work_s` is the remaining work in seconds."""

    def submit(self, lease: Lease, slot: SlotId) -> None:
        """Send a lease to its slot."""

    def withdraw(self, lease_id: int, *, rest: bool = False) -> None:
        """Ask a lease back that has not begun; the answer is an event.

        With `rest`, one that has begun returns soon with what of it has not.
        """

    def ended(
        self, within_s: float, is_over: Callable[[], bool]
    ) -> Iterator[tuple[SlotId, LeaseReturned | LeaseFailed | LeaseWithdrawn]]:
        """Yield the leases that have ended; wait for the first one.

        `is_over` says whether the end of the job has come, so that no result is waited for.
        """

    def settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        """Let go what only these mini-batches needed: they are done for good."""

    def hide_gpus(self) -> None:
        """Offer slots without GPUs: the script uses none."""

    def stopped(self, timeout_s: float) -> Iterator[AgentChanged | None]:
        """Shut down the agents; yield their events, and None regularly while there are none."""

    def states(self) -> tuple[SlotState, ...]:
        """Return the states of all slots."""

    def obstacles(self, standing: Progress) -> tuple[str, ...]:
        """Return the reasons that keep slots from work, in clauses for people."""

    def show(self, progress: ProgressReported, *, is_last: bool = False) -> None:
        """Show the progress where the slots are."""
