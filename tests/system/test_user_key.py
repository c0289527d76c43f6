"""The key of a user: one for all processes, on whatever file system the home is."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._system import user_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a state directory of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    user_key.user_key.cache_clear()
    yield
    user_key.user_key.cache_clear()


def no_links(*_: Any) -> None:
    """Answer as a file system without hard links does."""
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False])
def test_the_key_is_kept_for_later_processes(
    monkeypatch: pytest.MonkeyPatch,
    has_links: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Only the user can read it, and nothing else is left beside it."""
    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    key, file = user_key.user_key(), user_key.user_key_file()
    assert file.read_bytes() == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    user_key.user_key.cache_clear()
    assert user_key.user_key() == key


def test_a_key_that_another_process_writes_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hard links it is written in place, and is not taken for one that was cut off."""
    monkeypatch.setattr(user_key, "WRITTEN_WITHIN_S", 60.0)
    key, file = bytes(range(user_key.KEY_BYTES)), user_key.user_key_file()
    file.parent.mkdir()
    with file.open("xb", buffering=0) as theirs:
        rest = threading.Timer(0.1, theirs.write, (key,))
        rest.start()
        assert user_key.user_key() == key
        rest.join()
    assert file.read_bytes() == key


def test_a_key_that_a_crash_has_cut_off_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process has used it."""
    monkeypatch.setattr(user_key, "WRITTEN_WITHIN_S", 0.1)
    file = user_key.user_key_file()
    file.parent.mkdir()
    file.write_bytes(b"cut")
    assert user_key.user_key() == file.read_bytes()
    assert len(user_key.user_key()) == user_key.KEY_BYTES


def test_a_key_that_cannot_be_kept_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what follows from it, and what to do."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert user_key.user_key() == user_key.user_key()
    (record,) = caplog.records
    told = record.getMessage()
    assert f"cannot be kept in {tmp_path}/file/daskprs/key: Not a directory." in told
    assert "cannot resume a job that has environment variables. Set XDG_STATE_HOME" in told


@pytest.mark.attack
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_the_key_of_another_user_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """As with the home of that user, by su: its owner could seal what is loaded here."""
    theirs = user_key.user_key()
    os.chown(user_key.user_key_file(), 54321, -1)
    user_key.user_key.cache_clear()
    assert user_key.user_key() != theirs
    assert "daskprs/key: it belongs to another user." in caplog.text
