"""The file of a mini-batch that a script had in hand when it failed."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from daskprs._agent.foreign.raised import message_of
from daskprs.errors import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType


def hint_at_file(error: BaseException, files: Sequence[Any]) -> str:
    """Return a sentence with the file that a variable of the failed calls names; else empty.

    `files` are those of the mini-batch. If it has one, or the error names one of them, the sentence
    would say nothing new.
    """
    known = {one for one in files if type(one) is str}
    if len(known) < 2:  # noqa: PLR2004 - several
        return ""
    message = message_of(error)
    if any(one in message or PurePath(one).name in message for one in known):
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((one for frame in reversed(frames) for one in _named(frame, known)), "")


def _named(frame: FrameType, known: set[str]) -> Iterator[str]:
    if frame.f_code.co_filename.startswith(OURS):
        return
    for name, value in frame.f_locals.items():
        # Other objects may be slow to compare, or raise.
        text = str(value) if type(value) is str or isinstance(value, PurePath) else ""
        if text in known:
            yield f"The file at hand was {text!r} (variable {name})."
