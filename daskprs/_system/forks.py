"""Forks of a process that has run a job: they inherit the state of Dask without its threads."""

from __future__ import annotations

import os

from daskprs.errors import UsageError

_dask_in: int | None = None


def note_dask() -> None:
    """Record that this process uses Dask from now on."""
    global _dask_in  # noqa: PLW0603 - it is of the process
    _dask_in = os.getpid()


def refuse() -> None:
    """Refuse a job in a fork of a process that has used Dask.

    Dask would give work to threads that the fork does not have, and wait for them forever.
    """
    if _dask_in not in (None, os.getpid()):
        msg = (
            f"parallel_run: process {os.getpid()} is a fork of process {_dask_in}, which has run "
            "a job, and Dask does not survive a fork. Start a fresh process for this job, such as "
            'by multiprocessing.get_context("spawn") or subprocess.'
        )
        raise UsageError(msg)
