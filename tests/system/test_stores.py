"""A store whose package is not installed names the extra that brings it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fsspec.registry import _registry, known_implementations
from packaging.requirements import Requirement

import daskprs
from daskprs._system.stores import (
    STORE_EXTRAS,
    StoreExtra,
    no_bucket,
    open_store,
    plain_address,
)
from daskprs.errors import InputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
URLS = [(extra, protocol) for extra in STORE_EXTRAS for protocol in extra.protocols]


def miss(protocol: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a package be one that is not installed."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(_registry, protocol, raising=False)


def read(url: str) -> None:
    """Read from a store."""
    daskprs.plan(url)


def write(url: str) -> None:
    """Write into a store."""
    daskprs.parallel_run([__file__], sorted, output_dir=url)


@pytest.mark.parametrize(("call", "error"), [(read, InputError), (write, OutputError)])
@pytest.mark.parametrize(("extra", "protocol"), URLS)
def test_a_missing_package_is_named_with_its_extra(
    extra: StoreExtra,
    protocol: str,
    call: Callable[[str], None],
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Before anything starts, whether the URL is read from or written to."""
    monkeypatch.chdir(tmp_path)
    miss(protocol, extra.package, monkeypatch)
    told = rf"{extra.package}, which .* pip install \"daskprs\[{extra.name}\]\""
    with pytest.raises(error, match=told):
        call(f"{protocol}://place/in")
    assert list(tmp_path.iterdir()) == []


def test_each_extra_brings_what_opens_its_urls() -> None:
    """The package that fsspec looks for; `abfss` is known to fsspec once adlfs is installed."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, protocol in URLS:
        assert [Requirement(one).name for one in extras[extra.name]] == [extra.package]
        known = known_implementations.get(protocol)
        assert known is None or known["class"].startswith(f"{extra.package}.")


def test_no_extra_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other stores keep the message of fsspec, and so does what another mistake is."""
    miss("hf", "huggingface_hub", monkeypatch)
    with pytest.raises(ImportError, match=r"^Install huggingface_hub to access HfFileSystem$"):
        open_store("hf://place/in")
    with pytest.raises(ValueError, match=r"^Protocol not known: nothing$"):
        open_store("nothing://place/in")
    miss("gs", "gcsfs", monkeypatch)
    with pytest.raises(ImportError, match=r"daskprs\[gcs\]"):
        open_store("zip://in.csv::gs://place/in.zip")


class Buckets:
    """A store that says of a bucket that it is not there, as s3fs does after any error."""

    protocol = ("s3", "s3a")

    def __init__(self, error: OSError) -> None:
        self._error = error

    def exists(self, _: str) -> bool:
        """Find nothing."""
        return False

    def ls(self, _: str) -> None:
        """Say why."""
        raise self._error


def test_a_bucket_of_which_nothing_may_be_asked_is_not_a_missing_one() -> None:
    """A user may write into a bucket and not list it."""
    told = no_bucket(Buckets(FileNotFoundError("The specified bucket does not exist")), "a/b/c.csv")
    assert told == " There is no bucket 'a' in this store."
    assert no_bucket(Buckets(PermissionError("Access Denied")), "a/b/c.csv") == ""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:word@host/a/b.csv?sig=abc", "https://…@host/a/b.csv?…"),
        ("https://me:p@ss@host/a", "https://…@host/a"),
        ("https://host?sig=a/b@c#d", "https://host?…"),
        ("simplecache::https://host/a#token", "simplecache::https://host/a#…"),
        ("s3://bucket/a@b.csv", "s3://bucket/a@b.csv"),
        ("s3://bucket/what?.csv", "s3://bucket/what?.csv"),
        (
            "abfss://data@account.dfs.core.windows.net/a",
            "abfss://data@account.dfs.core.windows.net/a",
        ),
        ("/data/what?.csv", "/data/what?.csv"),  # a path has no query
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    """Pages with it are passed on."""
    assert plain_address(address) == shown
