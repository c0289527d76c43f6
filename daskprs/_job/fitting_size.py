"""The size of a call of `run` that fits the memory, kept for the next job with the same script.

What fits depends on the script, on the memory that an agent may have, and on its share of a GPU. It
is kept in the job folder for a resume, and in the user's state folder for other jobs.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from daskprs._system.atomic_file import whole_file
from daskprs._system.user_key import user_key_file

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._core.limits import Limits
    from daskprs._job.request import CheckedCall

MOST_KEPT = 1000
"""Most sizes in the state folder; the oldest ones go first."""
KEPT_S = 30 * 86_400
"""Seconds for which a size counts there. Memory may have been short for another reason than the
script's need: a size that is too small would slow it for ever."""


def with_known_size(call: CheckedCall, limits: Limits) -> Limits:
    """Return limits with the size of a call of `run` that is known to fit, if any is.

    It was found with items that are independent of each other.
    """
    options = call.options
    if options.partition_keys or not (options.independent_rows or limits.isolates):
        return limits
    kept = _kept_for(call)
    for place in (call.folder.fitting_size, kept):
        with suppress(OSError, ValueError):
            if place == kept and time.time() - place.stat().st_mtime > KEPT_S:
                continue
            at_most = max(1, int(place.read_text()))
            return replace(limits, at_most=at_most, independent_rows=True)
    return limits


def known_size_told(at_most: int) -> str:
    """Return what people hear of a job that begins with a known size."""
    items = "row or file" if at_most == 1 else "rows or files"
    return (
        f"no call of run() gets more than {at_most} {items}: with more, an earlier job with "
        f"this script, or an earlier run of this job, ran out of memory. {_folder()} has the sizes "
        "of all scripts."
    )


def keep_size(call: CheckedCall) -> None:
    """Keep the size that the job has found, if it has, for other jobs."""
    with suppress(OSError):  # of no use to this job
        found = call.folder.fitting_size.read_text()
        place = _kept_for(call)
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as file:
            file.write(found.encode())
        kept = sorted(place.parent.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in kept[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


def _kept_for(call: CheckedCall) -> Path:
    options, script = call.options, call.script.fingerprint()
    # Not of all files beside the script, which may be data.
    own = script["files"].get(script["name"], script["files"])
    depends_on = {
        "script": (script["name"], own, script["object"]),
        "arguments": options.arguments,
        "memory": options.limits().agent_memory_bytes,
        "gpus": options.gpus_per_process,
        "machine": os.sysconf("SC_PHYS_PAGES"),
    }
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode())
    return _folder() / digest.hexdigest()[:32]


def _folder() -> Path:
    return user_key_file().parent / "sizes"
