"""Containers of Azure's blob storage in a script: folders of datastores that are known by name.

The names are those of the package ``azure-storage-blob``, which scripts import. A container is the
datastore of its name, or of ``account/container``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self  # the hints alone need it


_PART = re.compile(r"\..*\.[0-9]+\.part")
"""The names of blobs that are being written."""


class UnknownContainer(ValueError):  # noqa: N818 - it says what is wrong
    """A container that has no folder here, or a blob outside of its container."""


try:  # where azure-core is installed, scripts catch its errors
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceExistsError,
        ResourceNotFoundError,
    )
except ImportError:

    class AzureError(Exception):  # type: ignore[no-redef]
        """The base of the errors of Azure's clients."""

    class HttpResponseError(AzureError):  # type: ignore[misc, no-redef]
        """The base of the next three, of which the first is never raised here."""

    class ClientAuthenticationError(HttpResponseError):  # type: ignore[misc, no-redef]
        """Nothing here needs authorization."""

    class ResourceNotFoundError(HttpResponseError):  # type: ignore[misc, no-redef]
        """A blob that does not exist."""

    class ResourceExistsError(HttpResponseError):  # type: ignore[misc, no-redef]
        """A blob that exists, and is not to be overwritten."""


class DefaultAzureCredential:
    """A credential, which a folder does not ask for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


ManagedIdentityCredential = AzureCliCredential = DefaultAzureCredential
ClientSecretCredential = EnvironmentCredential = ChainedTokenCredential = DefaultAzureCredential
WorkloadIdentityCredential = CertificateCredential = DefaultAzureCredential


class BlobProperties(NamedTuple):
    """A blob in a list."""

    name: str
    size: int
    container: str


class BlobServiceClient:
    """An account: its containers are datastores that are known by name."""

    def __init__(self, account_url: str = "", *_: Any, **__: Any) -> None:
        self.account_name = (urlsplit(account_url).hostname or "").partition(".")[0]

    @classmethod
    def from_connection_string(cls, conn_str: str, *_: Any, **__: Any) -> Self:
        """Return the account that a connection string names."""
        return cls(f"https://{_account_in(conn_str)}")

    def get_container_client(self, container: str) -> ContainerClient:
        """Return a container."""
        return ContainerClient(container_name=container, account_name=self.account_name)

    def get_blob_client(self, container: str, blob: str, **_: Any) -> BlobClient:
        """Return a blob."""
        return self.get_container_client(container).get_blob_client(blob)


class ContainerClient:
    """A container: the folder of the datastore that has its name.

    An `UnknownContainer` says that no datastore of this name is known.
    """

    def __init__(
        self,
        account_url: str = "",
        container_name: str = "",
        *_: Any,
        account_name: str | None = None,
        **__: Any,
    ) -> None:
        account = BlobServiceClient(account_url).account_name
        self.account_name = account if account_name is None else account_name
        self.container_name = container_name
        self._root = _root_of(container_name, self.account_name)

    @classmethod
    def from_connection_string(cls, conn_str: str, container_name: str, **_: Any) -> Self:
        """Return a container of the account that a connection string names."""
        return cls(container_name=container_name, account_name=_account_in(conn_str))

    @classmethod
    def from_container_url(cls, container_url: str, **_: Any) -> Self:
        """Return the container that a URL names."""
        name = urlsplit(container_url).path.strip("/")
        return cls(container_url, container_name=unquote(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the block; nothing has to be closed."""

    def exists(self, **_: Any) -> bool:
        """Return whether the folder exists."""
        return self._root.is_dir()

    def get_blob_client(self, blob: str, **_: Any) -> BlobClient:
        """Return a blob."""
        return BlobClient(container_name=self.container_name, blob_name=blob, container=self)

    def list_blobs(self, name_starts_with: str | None = None, **_: Any) -> Iterator[BlobProperties]:
        """Yield the blobs whose names begin so, in the order of their names."""
        files = (
            one for one in self._root.rglob("*") if one.is_file() and not _PART.match(one.name)
        )
        for path in sorted(files, key=lambda one: one.relative_to(self._root).as_posix()):
            name = path.relative_to(self._root).as_posix()
            if name.startswith(name_starts_with or ""):
                yield BlobProperties(name, path.stat().st_size, self.container_name)

    def list_blob_names(self, name_starts_with: str | None = None, **_: Any) -> Iterator[str]:
        """Yield the names of the blobs that begin so, in their order."""
        return (one.name for one in self.list_blobs(name_starts_with))

    def upload_blob(self, name: str, data: Any, *more: Any, **options: Any) -> BlobClient:
        """Write a blob, and return it."""
        client = self.get_blob_client(name)
        client.upload_blob(data, *more, **options)
        return client

    def download_blob(self, blob: str | BlobProperties, *more: Any, **options: Any) -> BlobContent:
        """Return the content of a blob, or of a part of it."""
        return self.get_blob_client(_name_of(blob)).download_blob(*more, **options)

    def delete_blob(self, blob: str | BlobProperties, **_: Any) -> None:
        """Delete a blob."""
        self.get_blob_client(_name_of(blob)).delete_blob()

    def place(self, blob: str) -> Path:
        """Return the file of a blob; a name that climbs out of the container is refused."""
        path = self._root / blob.lstrip("/")
        if ".." in path.parts:
            msg = f"the blob {blob!r} climbs out of the container {self.container_name!r}."
            raise UnknownContainer(msg)
        return path


class BlobClient:
    """A blob: a file in the folder of its container."""

    def __init__(
        self,
        account_url: str = "",
        container_name: str = "",
        blob_name: str = "",
        *_: Any,
        container: ContainerClient | None = None,
        **__: Any,
    ) -> None:
        self.container_name, self.blob_name = container_name, _name_of(blob_name)
        container = container or ContainerClient(account_url, container_name)
        self._path = container.place(self.blob_name)

    @classmethod
    def from_connection_string(
        cls, conn_str: str, container_name: str, blob_name: str, **_: Any
    ) -> Self:
        """Return a blob of the account that a connection string names."""
        container = ContainerClient.from_connection_string(conn_str, container_name)
        return cls("", container_name, blob_name, container=container)

    @classmethod
    def from_blob_url(cls, blob_url: str, *_: Any, **__: Any) -> Self:
        """Return the blob that a URL names."""
        container, _slash, blob = unquote(urlsplit(blob_url).path).lstrip("/").partition("/")
        return cls(blob_url, container, blob)

    def exists(self, **_: Any) -> bool:
        """Return whether the blob exists."""
        return self._path.is_file()

    def get_blob_properties(self, **_: Any) -> BlobProperties:
        """Return its name and size."""
        size = self._found().stat().st_size
        return BlobProperties(self.blob_name, size, self.container_name)

    def download_blob(
        self,
        offset: int = 0,
        length: int | None = None,
        *,
        encoding: str | None = None,
        **options: Any,
    ) -> BlobContent:
        """Return its content; a blob that does not exist is a ResourceNotFoundError."""
        _refuse_unknown("download_blob", options)
        return BlobContent(self._found(), offset or 0, length, encoding)

    def upload_blob(
        self,
        data: Any,
        blob_type: Any = "BlockBlob",
        length: int | None = None,
        metadata: Any = None,  # noqa: ARG002 - of the client; a file has none
        *,
        overwrite: bool = False,
        encoding: str = "utf-8",
        **options: Any,
    ) -> None:
        """Write it from bytes, text, a file or pieces of bytes; it is there whole or not at all."""
        _refuse_unknown("upload_blob", options)
        if str(getattr(blob_type, "value", blob_type)) != "BlockBlob":
            msg = f"blob_type={blob_type!r}: a blob is a file here, so only BlockBlob is known."
            raise ValueError(msg)
        if self._path.exists() and not overwrite:
            msg = f"the blob {self.blob_name!r} exists: {self._path}. Use overwrite=True."
            raise ResourceExistsError(msg)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                left = sys.maxsize if length is None else length
                for piece in _pieces(data):
                    whole = piece.encode(encoding) if isinstance(piece, str) else piece
                    left -= file.write(whole[:left])
            part.replace(self._path)
        finally:
            if part.exists():
                part.unlink()

    def delete_blob(self, **_: Any) -> None:
        """Delete it."""
        self._found().unlink()

    def _found(self) -> Path:
        if not self._path.is_file():
            msg = f"the blob {self.blob_name!r} does not exist: {self._path} is not a file."
            raise ResourceNotFoundError(msg)
        return self._path


class BlobContent:
    """The content of a blob, or a part of it."""

    def __init__(
        self, path: Path, offset: int = 0, length: int | None = None, encoding: str | None = None
    ) -> None:
        self._path, self._offset, self._encoding = path, offset, encoding
        left = max(0, path.stat().st_size - offset)
        self.size = left if length is None else min(length, left)

    def readall(self) -> bytes | str:
        """Return all of it, as text if the blob was asked for with an encoding."""
        content = b"".join(self.chunks())
        return content if self._encoding is None else content.decode(self._encoding)

    def content_as_bytes(self, **_: Any) -> bytes:
        """Return all of it."""
        return b"".join(self.chunks())

    def content_as_text(self, max_concurrency: int = 1, encoding: str = "utf-8") -> str:  # noqa: ARG002 - of the client
        """Return all of it as text."""
        return b"".join(self.chunks()).decode(encoding)

    def readinto(self, stream: IO[bytes]) -> int:
        """Write it to a file, and return its size."""
        for piece in self.chunks():
            stream.write(piece)
        return self.size

    download_to_stream = readinto

    def chunks(self) -> Iterator[bytes]:
        """Yield it in pieces."""
        left = self.size
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while left and (piece := file.read(min(left, 4 << 20))):
                left -= len(piece)
                yield piece


HARMLESS = {
    *("max_concurrency", "timeout", "validate_content", "progress_hook", "logging_enable"),
    *("connection_timeout", "read_timeout", "content_settings", "standard_blob_tier", "tags"),
}
"""Options of the client that change no byte."""


def _refuse_unknown(method: str, options: dict[str, Any]) -> None:
    """Refuse an option that would be ignored: other bytes would come, without a word."""
    unknown = sorted(set(options) - HARMLESS)
    if unknown:
        msg = f"{method}: {', '.join(unknown)}: not known where blobs are files. Leave it out."
        raise TypeError(msg)


def _pieces(data: Any) -> Iterable[bytes | str]:
    if isinstance(data, (bytes, bytearray, memoryview, str)):
        return (data,) if isinstance(data, str) else (bytes(data),)
    return iter(lambda: data.read(4 << 20), data.read(0)) if hasattr(data, "read") else data


def _name_of(blob: str | BlobProperties) -> str:
    return blob.name if isinstance(blob, BlobProperties) else blob


def _account_in(text: str) -> str:
    """Return the name of the account in a connection string."""
    parts = dict(one.partition("=")[::2] for one in text.split(";"))
    return parts.get("AccountName", "")


def _root_of(container: str, account: str) -> Path:
    known = json.loads(os.environ.get("DASKPRS_RUN", "{}")).get("datastores", {})
    for name in (f"{account}/{container}", container):
        if name in known:
            return Path(os.path.abspath(known[name]))  # noqa: PTH100 - links stay
    msg = (
        f"the container {container!r} of the account {account!r} has no folder here. Give it one "
        f"by --datastore {container}=FOLDER, or install azure-storage-blob to reach Azure itself."
    )
    raise UnknownContainer(msg)
