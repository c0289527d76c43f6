"""The names of what lies beside an output while a job makes it."""

from __future__ import annotations

CLAIM, PART, ATTEMPTS = ".daskprs-claim", ".part", ".attempts"
"""The ends of the names of a claim, of an unfinished output, and of attempts at its parts."""


def is_unfinished(name: str) -> bool:
    """Say whether a name is that of such a file or folder, which is gone after the job."""
    return name.startswith(".") and name.endswith((CLAIM, PART, ATTEMPTS))
