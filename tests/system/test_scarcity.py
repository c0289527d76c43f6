"""The limit that an error is due to is named, with the next step."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

import pytest

from daskprs._cli.exit_codes import every_end
from daskprs._system.disk_space import no_room
from daskprs._system.scarcity import NO_THREAD, explain

if TYPE_CHECKING:
    from pathlib import Path


def limited(monkeypatch: pytest.MonkeyPatch, limit: int, allowed: int) -> None:
    """Let this process have one limit alone."""
    none = (resource.RLIM_INFINITY,) * 2
    one = {limit: (allowed, allowed)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: one.get(which, none))


def test_a_thread_may_lack_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says of it what it says of too many threads."""
    limited(monkeypatch, resource.RLIMIT_AS, 1 << 20)
    told = explain(RuntimeError(NO_THREAD))
    assert told.startswith("RLIMIT_AS allows 1 MB of addresses in a process, and ")
    assert "Raise it (ulimit -v)" in told


def test_a_file_that_may_not_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder needs no mending then; a file system has a limit, too, which is not ours."""
    error = OSError(errno.EFBIG, os.strerror(errno.EFBIG), "spool.1/a")
    assert no_room(tmp_path, error).endswith("mend the folder, and resume the job.")
    assert explain(error) == ""
    limited(monkeypatch, resource.RLIMIT_FSIZE, 102_400)
    told = "RLIMIT_FSIZE allows 102,400 bytes in a file. Raise it (ulimit -f)."
    assert explain(error) == told
    assert no_room(tmp_path, error).endswith(f"{told} Then resume the job.")


def test_a_command_without_memory_is_no_error_of_daskprs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such as at an import, before there is a job."""
    with pytest.raises(SystemExit), every_end():
        raise MemoryError
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("daskprs: Memory is exhausted. Look at ulimit -v")
