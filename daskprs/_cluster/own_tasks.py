"""The tasks of a job itself: what `dask.annotate` says where the job is called is not for them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import dask

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def unannotated() -> Iterator[None]:
    """Submit tasks of the job in this block, without where and how the caller's tasks are to run.

    A lease is for one worker. With ``resources`` of the caller, too, it waits for ever on a worker
    that has none. Other annotations, such as a span, stay.
    """
    with dask.annotate(workers=[], allow_other_workers=False, resources={}, priority=0, retries=0):
        yield
