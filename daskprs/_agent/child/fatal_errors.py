"""Fatal errors of devices: after one of them, its process can use the device no more.

The CUDA Runtime API documents each of them with the sentence that the process must be terminated
and relaunched (section *Error handling*, ``enum cudaError``). Out of memory is none of them. HIP
reports the same errors with the same texts.
"""

from __future__ import annotations

import re

from daskprs._agent.foreign.raised import links_of

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


def is_fatal(error: BaseException) -> bool:
    """Return whether an exception, or one of its causes, is a fatal error of a device."""
    return any(_is_fatal(f"{names}: {message}") for names, _, message in links_of(error))


def _is_fatal(text: str) -> bool:
    if re.search(_NAMED, text):
        return True
    return all(re.search(one, text, re.IGNORECASE) for one in (_OF_DEVICE, _TEXT))
