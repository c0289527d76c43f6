"""An environment variable that a script asks for and that its process does not have."""

from __future__ import annotations

import os
import traceback

LOOKS_UP = os._Environ.__getitem__.__code__  # noqa: SLF001 - of os.environ, whose class has no other name


def hint_at_variable(error: BaseException) -> str:
    """Return how a process gets a variable that `os.environ` lacks; empty for other errors."""
    if not isinstance(error, KeyError):
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or frames[-1].f_code is not LOOKS_UP or not error.args:
        return ""
    return (
        "The processes of the script do not have this environment variable. Set it where the job "
        f"is started, and name it: secrets=[{os.fsdecode(error.args[0])!r}]"
    )
