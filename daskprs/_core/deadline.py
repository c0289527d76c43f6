"""The deadline: how many mini-batches still fit before the end of a job, or of a worker."""

from __future__ import annotations

MARGIN = 1.25
"""The share of its measured time that a mini-batch is given: half of them take longer than the
mean, and what is cut off has worked for nothing."""


def fitting(left_s: float, mini_batch_s: float | None, calls: int = 1) -> int:
    """Return how many mini-batches fit one after the other into the seconds that are left.

    Of several `calls` at a time, each takes as many times `mini_batch_s`, and has to fit as a
    whole.

    Parameters
    ----------
    left_s
        Seconds until the end.
    mini_batch_s
        Measured seconds for each mini-batch of a process; None before the first one. Then one is
        tried: nothing says that it does not fit.

    """
    if left_s <= 0:
        return 0
    if mini_batch_s is None:
        return 1
    return calls * int(min(left_s / (MARGIN * max(calls * mini_batch_s, 1e-9)), 1e9))
