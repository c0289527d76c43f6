"""Downloads: parts, what the caller has already, names, and files that change meanwhile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from daskprs._serve.sent_file import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.services import LightService

CONTENT = b"0123456789"
LARGE = 40 * CHUNK_BYTES
EPOCH = "Thu, 01 Jan 1970 00:00:00 GMT"
LATER = "Fri, 01 Jan 2100 00:00:00 GMT"


@pytest.fixture(scope="module")
def folder(service: LightService) -> Path:
    """Return the output folder of a job."""
    name = service.invoke(service.data("one", "write ten 0123456789")).json()["name"]
    assert service.ended(name) == "Completed"
    service.client.base_url = httpx.URL(f"{service.url}/jobs/{name}/outputs/")
    return service.home / "jobs" / name / "output"


@pytest.fixture
def large(folder: Path) -> Iterator[Path]:
    """Yield a file that is larger than what waits between the service and a caller."""
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(LARGE)
    yield path
    path.unlink()


@pytest.mark.parametrize(
    ("asked", "status", "content", "told"),
    [
        (None, 200, CONTENT, None),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("Bytes = 4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", 206, CONTENT, "bytes 0-9/10"),
        ("bytes=9-99", 206, b"9", "bytes 9-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-4", 200, CONTENT, None),
        ("bytes=-", 200, CONTENT, None),
        ("bytes=0-1,3-4", 200, CONTENT, None),
        ("lines=0-1", 200, CONTENT, None),
        (f"bytes={'9' * 30}-", 200, CONTENT, None),
        ("bytes=\u0663-".encode(), 200, CONTENT, None),
    ],
)
def test_a_part_is_fetched_by_its_range(
    service: LightService,
    folder: Path,
    asked: str | bytes | None,
    status: int,
    content: bytes | None,
    told: str | None,
) -> None:
    """A range that is malformed, or one of several, means the whole file."""
    assert folder.is_dir()
    headers = [(b"Range", asked if isinstance(asked, bytes) else asked.encode())] if asked else []
    answer = service.client.get("ten", headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers.get("content-range") == told
    if content is None:
        assert answer.json()["error"]["code"] == "RangeNotSatisfiable"
    else:
        assert answer.content == content
        assert answer.headers["content-length"] == str(len(content))
        assert answer.headers["accept-ranges"] == "bytes"


def test_a_file_that_the_caller_has_is_not_sent_again(service: LightService, folder: Path) -> None:
    """It knows the file by its tag, or by its time; a part goes with the file that it is of."""
    first = service.client.get("ten")
    tag, modified = first.headers["etag"], first.headers["last-modified"]
    assert service.client.head("ten").headers["content-length"] == "10"
    ranged = {"Range": "bytes=1-1"}
    for headers, status in [
        ({"If-None-Match": tag}, 304),
        ({"If-None-Match": f'"other", W/{tag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"other"'}, 200),
        ({"If-None-Match": '"other"', "If-Modified-Since": LATER}, 200),
        ({"If-Modified-Since": modified}, 304),
        ({"If-Modified-Since": EPOCH}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({**ranged, "If-Range": tag}, 206),
        ({**ranged, "If-Range": modified}, 206),
        ({**ranged, "If-Range": '"other"'}, 200),
        ({**ranged, "If-Range": EPOCH}, 200),
    ]:
        answer = service.client.get("ten", headers=headers)
        assert answer.status_code == status, headers
        assert answer.headers["etag"] == tag
        head = service.client.head("ten", headers=headers)
        assert head.status_code == (304 if status == 304 else 200)
        assert head.content == b""
    os.utime(folder / "ten", (0, 0))
    assert service.client.get("ten", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a b.csv", 'attachment; filename="a b.csv"'),
        ("ü.csv", "attachment; filename=\"_.csv\"; filename*=UTF-8''%C3%BC.csv"),
        ('a".exe', "attachment; filename=\"a_.exe\"; filename*=UTF-8''a%22.exe"),
        ("a\rSet-Cookie: x", "attachment; filename=\"a_Set-Cookie_ x\"; filename*=UTF-8''a%0D"),
        ("100%.csv", "attachment; filename=\"100_.csv\"; filename*=UTF-8''100%25.csv"),
    ],
)
@pytest.mark.attack
def test_a_download_has_its_name_and_no_other_header(
    service: LightService, folder: Path, name: str, told: str
) -> None:
    """Whatever a job calls its files."""
    folder.joinpath("in").mkdir(exist_ok=True)
    folder.joinpath("in", name).write_bytes(b"")
    answer = service.client.get(f"in/{quote(name)}")
    assert answer.content == b""
    assert answer.headers["content-disposition"].startswith(told)
    assert "set-cookie" not in answer.headers


def test_what_is_added_meanwhile_is_not_sent(service: LightService, large: Path) -> None:
    """The answer has the length that it told, so that the next one begins where it should."""
    kept = httpx.Client(base_url=service.client.base_url, headers=service.client.headers)
    with kept, kept.stream("GET", "large") as answer:
        chunks = answer.iter_raw()
        come = len(next(chunks))
        with large.open("ab") as file:
            file.write(b"more")
        come += sum(len(chunk) for chunk in chunks)
        assert come == int(answer.headers["content-length"]) == LARGE
        assert kept.get("ten").content == CONTENT


def test_a_file_that_becomes_shorter_is_not_taken_for_whole(
    service: LightService, large: Path
) -> None:
    """The connection ends, and the service goes on."""
    with service.client.stream("GET", "large") as answer:
        assert answer.status_code == 200
        os.truncate(large, 1)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            answer.read()
    assert service.client.get("large").content == b"\0"
