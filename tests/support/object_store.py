"""A store of objects on loopback: moto's server, which speaks the protocol of S3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
}
SIGNED = {
    "Content-Type": "application/octet-stream",
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0",
}
"""What the server wants to see; it does not look closely."""
START_S = 60.0
RUNS_ON = re.compile(r"Running on (http://127\.0\.0\.1:\d+)\n")
SENDS = """
import sys
from pathlib import Path
import s3fs
from daskprs._output.publish.open_uploads import OpenUploads

url, records, file, name = sys.argv[1:]
uploads = OpenUploads(url, records, timeout_s=4.0)
uploads.send(Path(file), name, lambda: False, uploads.until_s(0))
"""
"""A program that uploads a file, and leaves the upload open."""


class ObjectStore:
    """Puts and gets objects without any of the libraries under test.

    Attributes
    ----------
    environment
        What a process needs to use the store as S3.

    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.environment = {"AWS_ENDPOINT_URL": endpoint, **KEYS}

    def put(self, path: str, body: bytes = b"") -> None:
        """Put an object, or make a bucket."""
        self._ask("PUT", path, body)

    def get(self, path: str) -> bytes | None:
        """Return an object; None where there is none."""
        try:
            return self._ask("GET", path)
        except urllib.error.HTTPError as error:
            error.close()
            return None

    def names(self, bucket: str) -> list[str]:
        """Return the names of all objects of a bucket."""
        listed = self._ask("GET", f"{bucket}?list-type=2").decode()
        return [part.partition("</Key>")[0] for part in listed.split("<Key>")[1:]]

    def open_uploads(self, bucket: str) -> list[str]:
        """Return the paths of all uploads to a bucket that are not completed, with their ids."""
        listed = self._ask("GET", f"{bucket}?uploads").decode()
        keys, ids = (re.findall(f"<{one}>(.*?)</{one}>", listed) for one in ("Key", "UploadId"))
        return [f"{bucket}/{key}?uploadId={one}" for key, one in zip(keys, ids, strict=True)]

    def delete(self, path: str) -> None:
        """Delete an object, or abort an upload."""
        self._ask("DELETE", path)

    def is_up(self) -> bool:
        """Say whether it answers."""
        try:
            self._ask("GET", "")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        url = f"{self.endpoint}/{path}"
        request = urllib.request.Request(url, body, SIGNED, method=method)  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            found: bytes = answer.read()
        return found


def server_command(host: str, port: int) -> list[str]:
    """Return the command that starts a store; with the port 0, its log has the one it takes."""
    return [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]


@contextmanager
def object_store(log: Path) -> Iterator[ObjectStore]:
    """Yield a store of one's own."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            server_command("127.0.0.1", 0),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **KEYS},
        )
        try:
            assert poll_for(lambda: RUNS_ON.search(log.read_text()), START_S), log.read_text()
            store = ObjectStore(RUNS_ON.findall(log.read_text())[0])
            assert poll_for(store.is_up, START_S), log.read_text()
            yield store
        finally:
            process.kill()
            process.wait()
