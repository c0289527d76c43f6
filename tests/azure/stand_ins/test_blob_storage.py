"""Blobs of Azure's storage in scripts: files in the folders of datastores."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins import blob_storage
from daskprs.azure._stand_ins import elsewhere as foreign_stand_ins
from daskprs.azure._stand_ins import here as stand_ins
from daskprs.azure._stand_ins.blob_storage import (
    BlobClient,
    BlobServiceClient,
    ContainerClient,
    HttpResponseError,
    ResourceExistsError,
    UnknownContainer,
)

if TYPE_CHECKING:
    from pathlib import Path

URL, CONNECTION = "https://acc.blob.core.windows.net", "AccountName=acc;AccountKey=a=="


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a datastore that this process's run knows."""
    folder = tmp_path / "store"
    (folder / "a").mkdir(parents=True)
    (folder / "a/b.txt").write_text("b")
    known = {"pictures": str(folder), "other/pictures": str(tmp_path / "others")}
    for name, value in RunPlace(tmp_path, None, known).variables().items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_part_of_a_blob_is_that_part_and_options_that_count_are_not_ignored(store: Path) -> None:
    """Other bytes than the client of Azure gives would be wrong without a word."""
    container = ContainerClient(URL, "pictures")
    container.upload_blob("x", b"0123456789", length=8, max_concurrency=4)
    assert (store / "x").read_bytes() == b"01234567"
    part = container.download_blob("x", 5, 9)
    assert (part.readall(), part.size, [*part.chunks()]) == (b"567", 3, [b"567"])
    assert container.download_blob("x", offset=1, length=2, encoding="utf-8").readall() == "12"
    with pytest.raises(TypeError, match="version_id: not known"):
        container.download_blob("x", version_id="1")
    with pytest.raises(TypeError, match="if_match"):
        container.upload_blob("x", b"", if_match="*")
    with pytest.raises(ValueError, match="AppendBlob"):
        container.upload_blob("x", b"", "AppendBlob")


def test_blobs_are_written_listed_read_and_deleted(store: Path) -> None:
    """By every client; a name without slashes sorts before those of a folder."""
    container = BlobServiceClient(URL, credential=object()).get_container_client("pictures")
    assert container.exists()
    for name, data in [
        ("a-0.txt", "text"),
        ("a/c.bin", io.BytesIO(b"in a file")),
        ("d", [b"1", b"2"]),
    ]:
        container.upload_blob(name=name, data=data)
    (store / ".e.17.part").write_text("half of e, which another process writes now")
    listed = {one.name: one.size for one in container.list_blobs()}
    assert listed == {"a-0.txt": 4, "a/b.txt": 1, "a/c.bin": 9, "d": 2}
    (store / ".e.17.part").unlink()
    assert [*container.list_blob_names(name_starts_with="a/")] == ["a/b.txt", "a/c.bin"]
    first = next(container.list_blobs())
    assert container.download_blob(first).content_as_text() == "text"
    blob = BlobClient.from_connection_string(CONNECTION, "pictures", "a/c.bin")
    sink = io.BytesIO()
    assert blob.download_blob().readinto(sink) == blob.get_blob_properties().size == 9
    assert sink.getvalue() == b"".join(blob.download_blob().chunks()) == b"in a file"
    with pytest.raises(ResourceExistsError, match="overwrite=True"):
        blob.upload_blob(b"new")
    blob.upload_blob(b"new", overwrite=True)
    assert (store / "a/c.bin").read_bytes() == b"new"
    blob.delete_blob()
    assert not blob.exists()
    with pytest.raises(HttpResponseError, match=r"does not exist: .*store/a/c\.bin"):
        blob.download_blob()


def test_a_container_is_the_datastore_of_its_name(tmp_path: Path) -> None:
    """With its account, or without; another one is refused with what to give."""
    there = BlobClient.from_blob_url(f"{URL}/pictures/a/b.txt?sv=1")
    assert there.download_blob().readall() == b"b"
    (tmp_path / "others").mkdir()
    other = ContainerClient.from_connection_string("AccountName=other", "pictures")
    other.upload_blob("x", b"")
    assert (tmp_path / "others/x").is_file()
    with pytest.raises(UnknownContainer, match=r"'sounds' of the account 'acc' .*sounds=FOLDER"):
        ContainerClient.from_container_url(f"{URL}/sounds")
    with pytest.raises(UnknownContainer, match="climbs out"):
        other.get_blob_client("../store/a/b.txt")


def test_scripts_find_what_the_stand_ins_promise() -> None:
    """By the names of Azure's packages, under our own interpreter and under others."""
    for found in (stand_ins, foreign_stand_ins):
        assert all(map(found.stands_for, foreign_stand_ins.BLOBS))
        assert found.has("azure", "storage")
        assert found.has("azure.storage.blob", "BlobServiceClient")
        assert found.has("azure.core.exceptions", "HttpResponseError")
        assert found.has("azure.identity", "ClientSecretCredential")
        assert not found.has("azure.storage.blob", "generate_blob_sas")
    assert blob_storage.ManagedIdentityCredential(client_id="x")
