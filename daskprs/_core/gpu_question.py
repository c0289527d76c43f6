"""Whether a script uses GPUs: asked where the user has not said how many each process has.

A node with GPUs starts with the processes that its GPUs serve: a model that would be loaded once
for each core does not fit there. After the first mini-batch of one of them it is known whether the
script has to do with GPUs at all. If not, workers get a process for each thread, and GPUs are
hidden: with one process on a node of sixteen cores a job took 3 to 5 times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._core.actions import HideGpus

if TYPE_CHECKING:
    from daskprs._core.lease import GpuUse, LeaseReturned
    from daskprs._core.ledger_state import LedgerState, SlotRecord

SET = "Set gpus_per_process, or process_count_per_node, to decide it yourself"


class GpuQuestion:
    """Decides once for a job whether GPUs are hidden from its processes."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self._asks = state.limits.finds_gpu_use
        self._is_hidden = state.limits.gpus_per_process == 0
        """True from the beginning where an earlier run of the job has found it out."""

    @property
    def is_answered(self) -> bool:
        """Whether nothing more can be learned of what the script does with GPUs."""
        return not self._asks

    def asks(self, slot: SlotRecord) -> bool:
        """Return whether it matters what the processes of this slot do with GPUs."""
        return self._asks and bool(slot.resources.devices)

    def answer(self, returned: LeaseReturned) -> bool:
        """Take the GPU use of a process; return whether GPUs are hidden from now on."""
        use = returned.gpu_use
        if use is None or not self._asks:
            return False
        if self._is_hidden:
            if use.library or use.is_open:
                self._asks = False
                self._warn_late(returned.process, use)
            return False
        if self._has_no_more_work():
            return False
        if not use.library and not use.is_open:
            self._is_hidden = True
            self._state.remark(
                "notice",
                "the script has loaded no library that can use a GPU: each node gets as many "
                "processes as its Dask workers have threads (without a cluster, cores), and they "
                f"see no GPU. {SET}.",
            )
            self._state.actions.append(HideGpus())
            return True
        self._asks = False
        if not use.is_open:
            self._state.remark(
                "notice",
                f"the script has loaded {use.library}, but has used no GPU for its first "
                "mini-batch. Each node has only as many processes as its GPUs serve. If the script "
                "needs none, gpus_per_process=0 gives each node as many processes as cores.",
            )
        return False

    def _has_no_more_work(self) -> bool:
        """Return whether all mini-batches are known to be in leases, or done."""
        state = self._state
        is_drawn = state.expected is not None and state.tally.drawn >= state.expected
        return (is_drawn or state.backlog.exhausted) and not len(state.backlog)

    def _warn_late(self, process: str, use: GpuUse) -> None:
        did = f"loaded {use.library}" if use.library else "opened a GPU"
        self._state.remark(
            "warning",
            f"{process} has {did}, but GPUs are hidden from all processes that have "
            "started since the first mini-batch, which needed none. Set gpus_per_process=1 if the "
            "script uses GPUs.",
        )
