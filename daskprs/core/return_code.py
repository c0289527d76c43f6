"""What the return code of a process says."""

from __future__ import annotations

import signal

NAMED = {
    signal.SIGKILL: "it was killed from outside, mostly by the system for lack of memory",
    signal.SIGSEGV: "native code crashed",
    signal.SIGBUS: "native code crashed",
    signal.SIGILL: "native code crashed",
    signal.SIGFPE: "native code crashed",
    signal.SIGABRT: "native code gave up (abort)",
    signal.SIGTERM: "it was told to end, by the script or from outside",
    signal.SIGINT: "it was told to end, by the script or from outside",
    signal.SIGHUP: "it was told to end, by the script or from outside",
}


def signal_of(returncode: int) -> str:
    """Return the signal that ended a process, in brackets; nothing where none did."""
    if returncode >= 0:
        return ""
    try:
        return f" ({signal.Signals(-returncode).name})"
    except ValueError:  # a real-time signal has no name
        return f" (signal {-returncode})"


def meaning_of(returncode: int) -> str:
    """Return what mostly brings such an end about, of a process that ought to have gone on."""
    if returncode >= 0:
        return "the script, or a library that it uses, ended the process (os._exit)"
    return NAMED.get(-returncode, "a signal ended it")  # type: ignore[call-overload,no-any-return]
