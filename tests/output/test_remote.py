"""An output folder that is a URL: what is there is this job's, or is left alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fsspec
import pytest

from daskprs.errors import OutputError
from daskprs.output.publish.remote import RemoteOutput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield a folder in a store that shows whole objects only, and in one that does not."""
    if request.param == "memory":
        yield "memory://remote/out"
        fsspec.filesystem("memory").rm("/remote", recursive=True)
    else:
        yield f"file://{tmp_path}/remote/out"


def test_a_file_is_uploaded_once_and_known_again(tmp_path: Path, url: str) -> None:
    """Whether or not the job lived to write down that it was done."""
    made, record = tmp_path / "made", tmp_path / "record"
    made.write_bytes(b"rows\n")
    remote = RemoteOutput(url, "rows.txt")
    remote.check(record, overwrite=False)
    assert not remote.done
    remote.publish(made, record, overwrite=False)
    assert remote.done
    filesystem, place = fsspec.core.url_to_fs(f"{url}/rows.txt")
    assert filesystem.cat_file(place) == b"rows\n"
    assert len(filesystem.ls(place.rpartition("/")[0])) == 1
    stamp = filesystem.info(place).get("mtime") or filesystem.info(place)["created"]
    written = json.loads(record.read_text())
    del written["version"]
    record.write_text(json.dumps(written))  # as a death right after the upload leaves it
    again = RemoteOutput(url, "rows.txt")
    again.check(record, overwrite=False)
    again.publish(made, record, overwrite=False)
    assert stamp == (filesystem.info(place).get("mtime") or filesystem.info(place)["created"])
    made.write_bytes(b"rows\nmore\n")
    again.publish(made, record, overwrite=False)
    assert filesystem.cat_file(place) == b"rows\nmore\n"


def test_a_file_of_somebody_else_is_refused_until_it_may_be_replaced(
    tmp_path: Path, url: str
) -> None:
    """Also one that came while the job was at work, and one that has replaced the job's own."""
    made, record = tmp_path / "made", tmp_path / "record"
    made.write_bytes(b"rows\n")
    remote = RemoteOutput(url, "rows.txt")
    remote.check(record, overwrite=False)
    filesystem, place = fsspec.core.url_to_fs(f"{url}/rows.txt")
    filesystem.makedirs(place.rpartition("/")[0], exist_ok=True)
    filesystem.pipe_file(place, b"mine\n")
    with pytest.raises(OutputError, match=r"exists\. Replace it by overwrite=True"):
        remote.publish(made, record, overwrite=False)
    assert filesystem.cat_file(place) == b"mine\n"
    remote.publish(made, record, overwrite=True)
    assert filesystem.cat_file(place) == b"rows\n"
    filesystem.pipe_file(place, b"another's\n")
    with pytest.raises(OutputError, match="exists"):
        RemoteOutput(url, "rows.txt").check(record, overwrite=False)


def test_an_upload_that_fails_leaves_what_was_there_and_the_next_one_replaces_it(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the job's own, though what was to take its place is what was written down last."""
    made, record = tmp_path / "made", tmp_path / "record"
    made.write_bytes(b"rows\n")
    remote = RemoteOutput(url, "rows.txt")
    remote.publish(made, record, overwrite=False)
    filesystem, place = fsspec.core.url_to_fs(f"{url}/rows.txt")
    made.write_bytes(b"more\n")

    def fails(*_: object) -> None:
        raise OSError("the line is down")

    with monkeypatch.context() as patch:
        patch.setattr(type(filesystem), "put_file", fails)
        with pytest.raises(OutputError, match="the line is down"):
            remote.publish(made, record, overwrite=False)
    assert filesystem.cat_file(place) == b"rows\n"
    again = RemoteOutput(url, "rows.txt")
    again.check(record, overwrite=False)
    again.publish(made, record, overwrite=False)
    assert filesystem.cat_file(place) == b"more\n"


def test_what_nothing_here_can_reach_is_refused() -> None:
    """With what fsspec says about it."""
    with pytest.raises(OutputError, match="nonsense"):
        RemoteOutput("nonsense://x/y", "rows.txt")
