"""Return codes: every end of a process is told in words."""

from __future__ import annotations

import signal

import pytest

from daskprs._core.outcomes import meaning_of, signal_of


@pytest.mark.parametrize(
    ("returncode", "named", "meant"),
    [
        (0, "", "ended the process"),
        (3, "", "ended the process"),
        (-9, " (SIGKILL)", "lack of memory"),
        (-11, " (SIGSEGV)", "native code crashed"),
        (-signal.SIGUSR1, " (SIGUSR1)", "a signal ended it"),
        (-44, " (signal 44)", "a signal ended it"),
    ],
)
def test_a_return_code_is_told_in_words(returncode: int, named: str, meant: str) -> None:
    """The name of the signal, and what mostly brings it about."""
    assert signal_of(returncode) == named
    assert meant in meaning_of(returncode)
