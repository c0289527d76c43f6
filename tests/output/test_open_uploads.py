"""Whatever strikes a publication in a store of objects, readers see the old data set or the new."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._output.dataset.ordered_parts import OrderedParts
from daskprs._output.journal.commits import CommitTable
from daskprs._output.publish import open_uploads
from daskprs._output.publish.open_uploads import OpenUploads
from daskprs._output.spec import OutputSpec
from tests.support.cases import mostly_long
from tests.support.failing_store import HOW
from tests.support.object_store import SENDS, ObjectStore, object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).with_name("strike_uploads.py")
SHORT = {"kill before": (4, 12), "kill after": (17, 10), "500": (9, 9), "gone": (16, 45)}
"""Which request is struck first, and at which stride others are; `make test-long` takes all."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Yield a store that takes pieces of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_UPLOAD_PART_MIN_SIZE", "1")
        with object_store(tmp_path_factory.mktemp("store") / "log") as one:
            yield one


def strike(store: ObjectStore, folder: Path, how: str, first: int, stride: int) -> int:
    """Strike a job at its requests, and return how many it went through."""
    words = [str(folder), store.endpoint, how, str(first), str(stride)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env={**os.environ, **store.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.long
def test_after_a_failed_upload_no_process_tries_for_a_while(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Each part has a process of its own, and each would wait until the library gives up.

    A store that takes the request and does not answer has failed, too, in half of a part's time.
    """
    file, records = tmp_path / "rows", tmp_path / "uploads"
    file.write_bytes(b"rows")

    def send(name: str, **others: str) -> dict[str, str]:
        words = [sys.executable, "-c", SENDS, "s3://later/set", str(records), str(file), name]
        subprocess.run(words, env={**os.environ, **store.environment, **others}, check=True)
        told: dict[str, str] = json.loads((records / f"{name}.json").read_text())
        return told

    store.put("later")
    error = send("one", AWS_ENDPOINT_URL="no endpoint")["error"]
    assert send("two") == {"url": "s3://later/set/two", "error": error}
    assert store.open_uploads("later") == []
    (records / open_uploads.FAILED).unlink()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        error = send("three", AWS_ENDPOINT_URL=hangs)["error"]
    assert re.fullmatch(r"TimeoutError: the store has not done it in \d s: create_.*_upload", error)
    assert OpenUploads("s3://later/set", str(records)).failure() == error


def test_uploads_that_could_be_aborted_later_are_no_complaint(tmp_path: Path) -> None:
    """The store was away when the driver began, and back when it published."""
    records = tmp_path / "uploads"
    records.mkdir()
    (records / "old.json").write_text('{"url": "nowhere://set/old"}')
    part, table = tmp_path / ".set.part", CommitTable()
    uploads = OpenUploads("nowhere://set", str(records))
    spec = OutputSpec(text=False, typed=True, format="parquet")
    parts = OrderedParts(part, spec, table, lambda _: tmp_path, {}, uploads=uploads)
    assert "1 uploads are left open" in parts.complaint
    parts.finish(table)
    parts.put(tmp_path / "set")
    shutil.rmtree(records)  # published
    parts.close()
    assert parts.complaint == ""


class Pages:
    """A store that lists one open upload a page."""

    def __init__(self, names: list[str]) -> None:
        self.left = [(name, str(number)) for number, name in enumerate(names)]

    def split_path(self, url: str) -> tuple[str, str, None]:
        """Return bucket and key."""
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **words: str) -> dict[str, Any]:
        """List a page, or abort an upload."""
        if method == "abort_multipart_upload":
            self.left.remove((words["Key"], words["UploadId"]))
            return {}
        after = words.get("KeyMarker", ""), words.get("UploadIdMarker", "")
        (key, number), *more = [one for one in self.left if one > after]
        markers = {"NextKeyMarker": key, "NextUploadIdMarker": number}
        listed = [{"Key": key, "UploadId": number}]
        return {"IsTruncated": bool(more), "Uploads": listed, **(markers if more else {})}


def test_all_pages_of_open_uploads_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of S3 has 1,000 uploads, and those of a large data set may be behind it."""
    pages = Pages(["set/a", "set/b", "set/b", "set/c"])
    monkeypatch.setattr(open_uploads, "_filesystem", lambda _: pages)
    assert OpenUploads("s3://bucket/set", str(tmp_path / "none")).tidy_up({"a", "b"}) == ""
    assert pages.left == [("set/c", "3")]


@pytest.mark.long
@pytest.mark.parametrize(
    "how", mostly_long(["kill after", "gone", "kill before", "500"], suite=["gone"])
)
def test_a_reader_by_the_manifest_sees_the_old_data_set_or_the_new(
    store: ObjectStore, tmp_path: Path, how: str
) -> None:
    """A resume finishes the publication without a call of `run`, and leaves no upload open."""
    assert strike(store, tmp_path, how, *SHORT[how]) > 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [*HOW, "gone", "cleaned"])
def test_the_same_at_any_request(store: ObjectStore, tmp_path: Path, how: str) -> None:
    """None is left out."""
    assert strike(store, tmp_path, how, 1, 1) > 20
