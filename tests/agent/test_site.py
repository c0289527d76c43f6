"""The job folder of a node: shared while anybody lives there, and removed by whoever is last."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.node import site
from daskprs._agent.node.site import NodeFolder
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path

DIES = """
import os, sys
from pathlib import Path
from daskprs._agent.node.site import NodeFolder
folder = NodeFolder(Path(sys.argv[1]), "crashed")
(folder.job.scratch / "result").write_bytes(bytes(10))
os._exit(1)
"""


def archive(tmp_path: Path, text: str) -> tuple[bytes, str]:
    """Return an archive with one module in it, and its checksum."""
    code = tmp_path / "code"
    code.mkdir(exist_ok=True)
    (code / "module.py").write_text(text)
    body = subprocess.run(["tar", "-C", code, "-c", "."], capture_output=True, check=True).stdout  # noqa: S607
    return body, hashlib.sha256(body).hexdigest()


def test_the_last_worker_removes_the_folder(tmp_path: Path) -> None:
    """The one before it leaves all as it is, and so does a worker that comes when it is in use."""
    first = NodeFolder(tmp_path, "job")
    (first.job.snapshot / "code").mkdir(parents=True)
    second = NodeFolder(tmp_path, "job")
    assert first.id == second.id
    first.close()
    assert second.job.scratch.is_dir()
    second.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_has_left_the_next_job_removes(tmp_path: Path) -> None:
    """The folders of those that live stay."""
    living = NodeFolder(tmp_path, "living")
    crash = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert crash.returncode == 1
    assert (tmp_path / "crashed" / "scratch" / "result").exists()
    with_it = NodeFolder(tmp_path, "next")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["living", "next"]
    for folder in (living, with_it):
        folder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """What did not arrive as it was sent is not unpacked."""
    folder = NodeFolder(tmp_path / "node", "job")
    body, sha256 = archive(tmp_path, "FACTOR = 1\n" * 1000)
    half = len(body) // 2
    folder.receive("digest", 0, body[:half])
    assert not folder.unpack("digest", sha256)
    assert not folder.snapshot("digest").exists()
    folder.receive("digest", 0, body[:half])
    folder.receive("digest", half, body[half:])
    assert folder.unpack("digest", sha256)
    assert (folder.snapshot("digest") / "module.py").read_text() == "FACTOR = 1\n" * 1000
    assert os.listdir(folder.job.snapshot) == ["digest"]  # noqa: PTH208 - names
    folder.close()


def copied(folder: NodeFolder, copy: dict[str, bytearray]) -> None:
    """Copy all news, as the driver does."""
    while pieces := folder.news({log: len(body) for log, body in copy.items()}):
        for log, offset, body in pieces:
            whole = copy.setdefault(log, bytearray())
            whole.extend(bytes(max(0, offset + len(body) - len(whole))))
            whole[offset : offset + len(body)] = body


def test_logs_are_told_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long ones, empty ones, and what is appended later; none keeps the others waiting."""
    monkeypatch.setattr(site, "NEWS_BYTES", 1000)
    monkeypatch.setattr(site, "NEWS_OF_ONE_BYTES", 300)
    folder = NodeFolder(tmp_path, "job")
    logs = [folder.job.stdout(0, name) for name in ("a", "b", "c", "d")]
    for number, log in enumerate(logs):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"line\n" * 200 * number)
    copy: dict[str, bytearray] = {}
    copied(folder, copy)
    with logs[0].open("ab") as log:
        log.write(b"last words")
    assert [piece.body for piece in folder.news({n: len(b) for n, b in copy.items()})] == [
        b"last words"
    ]
    copied(folder, copy)
    assert copy == {str(log.relative_to(folder.job.logs)): log.read_bytes() for log in logs}
    folder.close()


def test_of_a_log_that_grows_too_fast_head_and_tail_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand where they stood; the middle would be cut out of the log in any case."""
    monkeypatch.setattr(site, "LIMIT_BYTES", 1000)
    monkeypatch.setattr(site, "NEWS_OF_ONE_BYTES", 100)
    folder = NodeFolder(tmp_path, "job")
    log = folder.job.stdout(0, "a")
    log.parent.mkdir(parents=True)
    body = os.urandom(5000)
    log.write_bytes(body)
    copy: dict[str, bytearray] = {}
    copied(folder, copy)
    whole = copy[str(log.relative_to(folder.job.logs))]
    assert len(whole) == 5000
    assert (whole[:500], whole[4500:]) == (body[:500], body[4500:])
    assert whole[500:4500] == bytes(4000)
    folder.close()


@pytest.mark.attack
@pytest.mark.parametrize("how", ["link", "owner", "open", "replaceable"])
def test_a_planted_scratch_folder_is_refused(tmp_path: Path, how: str) -> None:
    """Its name is known to all users of the machine: nothing is written into it."""
    root = tmp_path / "scratch" / "daskprs-0"
    root.parent.mkdir()
    real = tmp_path / "elsewhere"
    real.mkdir()
    if how == "link":
        root.symlink_to(real)
    else:
        root.mkdir(0o700)
    if how == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives folders to another user")
        os.chown(root, 54321, 54321)
    if how == "open":
        root.chmod(0o770)
    if how == "replaceable":
        root.parent.chmod(0o777)
    with pytest.raises(JobFolderError, match=r"cannot be used: .*--local-directory"):
        NodeFolder(root, "job")
    assert not [*real.iterdir(), *root.iterdir()]
    if how == "replaceable":  # as /tmp is
        root.parent.chmod(0o1777)
        NodeFolder(root, "job").close()
