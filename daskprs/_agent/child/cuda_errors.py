"""Errors of CUDA: those after which a process can use its device no more, and those of a fork.

The CUDA Runtime API documents each of the fatal ones with the sentence that the process must be
terminated and relaunched (section *Error handling*, ``enum cudaError``). Out of memory is none of
them. HIP reports the same errors with the same texts. A process that was forked after its parent
had used a GPU can use none.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.foreign.raised import links_of, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._agent.protocol.messages import ScriptSpec

FATAL = (
    # Name in the CUDA driver, name in the CUDA runtime, text.
    ("ILLEGAL_ADDRESS", "IllegalAddress", "an illegal memory access was encountered"),
    ("ASSERT", "Assert", "device-side assert triggered"),
    ("LAUNCH_FAILED", "LaunchFailure", "unspecified launch failure"),
    ("LAUNCH_TIMEOUT", "LaunchTimeout", "the launch timed out and was terminated"),
    ("ILLEGAL_INSTRUCTION", "IllegalInstruction", "an illegal instruction was encountered"),
    ("MISALIGNED_ADDRESS", "MisalignedAddress", "misaligned address"),
    ("INVALID_ADDRESS_SPACE", "InvalidAddressSpace", "global/shared address space"),
    ("INVALID_PC", "InvalidPc", "invalid program counter"),
    ("HARDWARE_STACK_ERROR", "HardwareStackError", "hardware stack error"),
    ("ECC_UNCORRECTABLE", "ECCUncorrectable", "uncorrectable ECC error encountered"),
    ("NVLINK_UNCORRECTABLE", "NvlinkUncorrectable", "uncorrectable NVLink error"),
    ("EXTERNAL_DEVICE", "ExternalDevice", "an async error has occurred in external entity"),
    ("CONTAINED", "Contained", "Invalid access of peer GPU memory"),
)
"""The errors after which CUDA asks for a new process.

PyTorch and CuPy's runtime print the text (``torch.AcceleratorError: CUDA error: device-side assert
triggered``, ``cudaErrorAssert: device-side assert triggered``); CuPy's driver, JAX, TensorFlow and
Numba print the driver's name (``CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was
encountered``, jax-ml/jax#25002; ``CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure``,
tensorflow/tensorflow#42608)."""
_NAMED = (
    rf"\bCUDA_ERROR_(?:{'|'.join(driver for driver, _, _ in FATAL)})\b"
    rf"|\bcudaError(?:{'|'.join(runtime for _, runtime, _ in FATAL)})\b"
)
_OF_DEVICE = r"\b(?:CUDA|HIP)"
_TEXT = "|".join(re.escape(text) for _, _, text in FATAL)
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


def is_fatal(error: BaseException) -> bool:
    """Return whether an exception, or one of its causes, is a fatal error of a device."""
    return any(_is_fatal(f"{names}: {message}") for names, _, message in links_of(error))


def _is_fatal(text: str) -> bool:
    if re.search(_NAMED, text):
        return True
    return all(re.search(one, text, re.IGNORECASE) for one in (_OF_DEVICE, _TEXT))


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
