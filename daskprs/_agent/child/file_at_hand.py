"""The file of a mini-batch that a script had in hand when it failed."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import PosixPath, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from daskprs._agent.foreign.raised import message_of
from daskprs.errors import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

NOT_OF_SCRIPT = (OURS, f"{sysconfig.get_paths()['stdlib']}/", "<frozen ")


def hint_at_file(error: BaseException, files: Sequence[Any]) -> str:
    """Return a sentence with the file that a variable of the script held; else empty.

    `files` are those of the mini-batch. If it has one, or the error names one of them, the sentence
    would say nothing new. It says nothing, either, where variables of a call held several: a loop
    may be over that has left its last file there.
    """
    known = {one for one in files if type(one) is str}
    if len(known) < 2:  # noqa: PLR2004 - several
        return ""
    message = message_of(error)
    if any(one in message or PurePath(one).name in message for one in known):
        return ""
    for frame in reversed([frame for frame, _ in traceback.walk_tb(error.__traceback__)]):
        held = _held(frame, known)
        if len({*held.values()}) == 1:
            name, file = next(iter(held.items()))
            return f"When it failed, {name} was {file!r}"
        if held:
            break
    return ""


def _held(frame: FrameType, known: set[str]) -> dict[str, str]:
    """Return the variables of a frame, by name, that hold a file; none of Python's or of ours."""
    if frame.f_code.co_filename.startswith(NOT_OF_SCRIPT):
        return {}
    texts = {
        name: str(value)
        for name, value in frame.f_locals.items()
        # By its type alone: a proxy of a library may fail when it is asked for its class.
        if type(value) in (str, PosixPath, PurePosixPath)
    }
    return {name: text for name, text in texts.items() if text in known}
