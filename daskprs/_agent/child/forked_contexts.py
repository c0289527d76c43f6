"""Errors of CUDA in a process that was forked after its parent had used a GPU."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.foreign.raised import links_of, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._agent.protocol.messages import ScriptSpec

FORKED = (
    r"Cannot re-initialize CUDA in forked subprocess"
    r"|\bCUDA_ERROR_NOT_INITIALIZED\b|\bcudaErrorInitializationError\b"
    r"|\b(?:CUDA|cudaGetDeviceCount)\b.*\binitialization error"
)
"""The words of PyTorch, of CUDA's driver and runtime in CuPy, Numba and JAX, and of PyTorch below
its own check. The number of the error is 3."""
USES = (
    r"\.cuda\(|\bdevice=[\"']cuda\b|\.to\(\s*[\"']cuda\b|\btorch\.cuda\.(?!is_available\b)\w"
    r"|\btorch\.device\(\s*[\"']cuda\b|\b(?:cupy|cp)\.\w+\(|\bcuda\.\w+\(|\bjax\.devices?\w*\("
)
"""What makes a context, in a line of a script."""


def hint_at_spawn(error: BaseException, script: ScriptSpec) -> str:
    """Return how to start processes that use CUDA, if a forked one could not; else nothing."""
    if not any(
        re.search(FORKED, f"{names}: {message}", re.IGNORECASE)
        for names, _, message in links_of(error)
    ):
        return ""
    before = _line_before(printed(error, ""), script)
    return (
        "CUDA does not work in a process that was forked after its parent has used CUDA"
        f"{f', as {before} may have done' if before else ''}. If the script forks processes, let "
        'it start them by spawn: multiprocessing.get_context("spawn"), or '
        'multiprocessing_context="spawn" of a DataLoader. If a package of the job has used CUDA '
        'when it was imported once for all processes, set start_method="spawn"'
    )


def _line_before(traceback: str, script: ScriptSpec) -> str:
    """Return the first line of the script that uses CUDA and is not in the traceback."""
    for file, text in _texts(script):
        for number, line in enumerate(text.splitlines(), 1):
            words = line.strip()
            if re.search(USES, words.partition("#")[0]) and words not in traceback:
                return f"{file}, line {number} ({words})"
    return ""


def _texts(script: ScriptSpec) -> Iterator[tuple[str, str]]:
    if script.file is not None:
        with suppress(OSError, UnicodeError):
            yield Path(script.file).name, Path(script.file).read_text(encoding="utf-8")
    for file, cell, text in script.sources:
        yield cell or Path(file).name, text
