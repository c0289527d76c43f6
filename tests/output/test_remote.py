"""An output folder that is a URL: what is there is this job's, or is left alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fsspec
import pandas as pd
import pytest

import daskprs
from daskprs._output.publish.remote import RemoteOutput, RemoteParts
from daskprs.errors import OutputError, ParallelRunFailed

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

    def fails(*_: object, **__: object) -> None:
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


def data_set(folder: Path, publication: str, *names: str) -> Path:
    """Make what a data set looks like, and return its folder."""
    folder.mkdir()
    files = [f"part-{place:05d}-{publication}.jsonl" for place in range(len(names))]
    for file, name in zip(files, names, strict=True):
        (folder / file).write_text(name)
    sizes = [
        {"path": file, "bytes": len(name), "crc32": ""}
        for file, name in zip(files, names, strict=True)
    ]
    told = {"daskprs_data_set": 1, "publication": publication, "files": sizes}
    (folder / "_manifest.json").write_text(json.dumps(told))
    return folder


def contents(url: str) -> list[str]:
    """Return the text of all part files under a URL; the manifest has to name them."""
    filesystem, place = fsspec.core.url_to_fs(f"{url}/rows")
    told = json.loads(filesystem.cat_file(f"{place}/_manifest.json"))
    found = sorted(path for path in filesystem.find(place) if not path.endswith(".json"))
    assert [path.rpartition("/")[2] for path in found] == [one["path"] for one in told["files"]]
    return [filesystem.cat_file(path).decode() for path in found]


def test_a_data_set_is_uploaded_the_manifest_last(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each upload that fails, the next try goes on; what is replaced is gone in the end."""
    record, old = tmp_path / "record", data_set(tmp_path / "old", "0" * 8, "a", "b", "c")
    remote = RemoteParts(url, "rows")
    remote.check(record, overwrite=False)
    remote.publish(old, record, overwrite=False)
    assert contents(url) == ["a", "b", "c"]
    new = data_set(tmp_path / "new", "1" * 8, "A", "B")
    filesystem = fsspec.core.url_to_fs(url)[0]
    real, uploads = type(filesystem).put_file, []

    def fails(self: object, lpath: str, rpath: str, **more: object) -> None:
        uploads.append(rpath)
        if len(uploads) in {1, 3, 5}:
            raise OSError("the line is down")
        real(self, lpath, rpath, **more)

    with monkeypatch.context() as patch:
        patch.setattr(type(filesystem), "put_file", fails)
        for _ in range(3):
            with pytest.raises(OutputError, match="the line is down"):
                RemoteParts(url, "rows").publish(new, record, overwrite=False)
            there = json.loads(filesystem.cat_file(f"{remote._place}/_manifest.json"))
            assert there["publication"] == "0" * 8
        RemoteParts(url, "rows").publish(new, record, overwrite=False)
    assert contents(url) == ["A", "B"]
    assert len(uploads) == 6
    again = RemoteParts(url, "rows")
    again.check(record, overwrite=False)
    again.publish(new, record, overwrite=False)
    assert again.done


def test_a_folder_that_a_store_has_marked_is_empty(tmp_path: Path) -> None:
    """The console of S3 makes an object without bytes of the name of a folder."""
    filesystem = fsspec.filesystem("memory")
    try:
        remote = RemoteParts("memory://marked", "rows")
        filesystem.store["/marked/rows/"] = filesystem.open("/other", "wb")
        assert "/marked/rows/" in filesystem.find("/marked/rows")
        remote.check(tmp_path / "record", overwrite=False)
    finally:
        filesystem.store.clear()


def test_a_data_set_is_not_done_while_files_of_the_one_it_replaces_stay(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lists the folder would read the rows of both; the next try removes them."""
    old, new = data_set(tmp_path / "old", "0" * 8, "a", "b"), data_set(tmp_path / "new", "1" * 8)
    record = tmp_path / "record"
    RemoteParts(url, "rows").publish(old, record, overwrite=False)
    filesystem = fsspec.core.url_to_fs(url)[0]

    def denies(*_: object) -> None:
        raise PermissionError("Access Denied")

    remote = RemoteParts(url, "rows")
    with monkeypatch.context() as patch:
        patch.setattr(type(filesystem), "rm_file", denies)
        said = r"2 of the files .* part-00000-00000000\.jsonl: Access Denied\. .* resume the job"
        with pytest.raises(OutputError, match=said):
            remote.publish(new, record, overwrite=False)
    assert not remote.done
    remote.publish(new, record, overwrite=False)
    assert (remote.done, contents(url)) == (True, [])


@pytest.mark.usefixtures("inline")
def test_a_job_that_cannot_remove_the_earlier_data_set_has_published_its_own(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message does not say that nothing was published."""
    (tmp_path / "same.py").write_text("def run(rows):\n    return rows\n")

    def denies(*_: object) -> None:
        raise PermissionError("Access Denied")

    def job(name: str) -> None:
        daskprs.parallel_run(
            pd.DataFrame({"a": [1]}),
            tmp_path / "same.py",
            job_dir=tmp_path / name,
            output_dir=url,
            output_format="parquet",
            overwrite=True,
            progress=False,
        )

    job("first")
    with monkeypatch.context() as patch:
        patch.setattr(type(fsspec.core.url_to_fs(url)[0]), "rm_file", denies)
        with pytest.raises(ParallelRunFailed, match="the files of an earlier data set") as caught:
            job("second")
    assert "To go on, with the same script" in str(caught.value)
    assert "Nothing was published" not in str(caught.value)


def test_a_data_set_of_somebody_else_is_refused_until_it_may_be_replaced(
    tmp_path: Path, url: str
) -> None:
    """A folder with other files never is."""
    remote = RemoteParts(url, "rows")
    remote.publish(data_set(tmp_path / "a", "0" * 8, "a"), tmp_path / "one", overwrite=False)
    mine, record = data_set(tmp_path / "b", "1" * 8, "b"), tmp_path / "another"
    for refuse in (remote.check, lambda *given, **more: remote.publish(mine, *given, **more)):
        with pytest.raises(OutputError, match=r"exists\. Replace it by overwrite=True"):
            refuse(record, overwrite=False)
    remote.publish(mine, record, overwrite=True)
    assert contents(url) == ["b"]
    filesystem, place = fsspec.core.url_to_fs(f"{url}/rows")
    filesystem.rm_file(f"{place}/_manifest.json")
    with pytest.raises(OutputError, match="holds files and no data set"):
        remote.check(tmp_path / "third", overwrite=True)
    filesystem.pipe_file(f"{place}.txt", b"lines")
    with pytest.raises(OutputError, match=r"is a file, .* Use another append_row_file_name"):
        RemoteParts(url, "rows.txt").check(tmp_path / "third", overwrite=True)


def test_a_resume_may_replace_what_its_job_was_allowed_to_replace(tmp_path: Path, url: str) -> None:
    """And nothing that has come since."""
    made, record = tmp_path / "made", tmp_path / "record"
    made.write_bytes(b"rows\n")
    RemoteOutput(url, "rows.txt").publish(made, tmp_path / "another", overwrite=False)
    RemoteOutput(url, "rows.txt").begin(record, overwrite=True)
    RemoteOutput(url, "rows.txt").check(record, overwrite=False)
    made.write_bytes(b"other rows\n")
    RemoteOutput(url, "rows.txt").publish(made, tmp_path / "another", overwrite=True)
    with pytest.raises(OutputError, match="exists"):
        RemoteOutput(url, "rows.txt").check(record, overwrite=False)

    old, new = data_set(tmp_path / "old", "0" * 8, "a"), data_set(tmp_path / "new", "1" * 8, "A")
    RemoteParts(url, "rows").publish(old, tmp_path / "third", overwrite=False)
    RemoteParts(url, "rows").begin(tmp_path / "fourth", overwrite=True)
    RemoteParts(url, "rows").publish(new, tmp_path / "fourth", overwrite=False)
    assert contents(url) == ["A"]
    with pytest.raises(OutputError, match="exists"):
        RemoteParts(url, "rows").check(tmp_path / "third", overwrite=False)
