"""Roots: a caller reaches what lies in them, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._serve.allowed_paths import Roots
from daskprs._serve.http_errors import Refusal
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.attack


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with a root, and what lies beside it."""
    inside = tmp_path / "root" / "inside"
    inside.mkdir(parents=True)
    inside.joinpath("file").write_text("ours")
    inside.joinpath("a b").write_text("ours")
    outside = tmp_path / "root-beside"
    outside.mkdir()
    outside.joinpath("file").write_text("not ours")
    return tmp_path


def status(roots: Roots, uri: str, kind: str = "UriFile") -> int:
    """Return what a place is answered with; 200 where it may be used."""
    try:
        roots.existing(uri, kind, target="Uri")
    except Refusal as refusal:
        return refusal.status
    return 200


def test_a_place_is_named_in_every_documented_form(home: Path) -> None:
    """As a path, a file URL, and below a data store."""
    roots = Roots({"store": str(home / "root")})
    long = "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/store/paths"
    resource = "/subscriptions/s/resourceGroups/g/providers/p/workspaces/w/datastores/store/paths"
    for base in (f"{home}/root", f"file://{home}/root", long, resource):
        assert status(roots, f"{base}/inside/file") == 200
        assert status(roots, f"{base}/inside", kind="UriFolder") == 200
        assert status(roots, f"{base}/inside") == 404
        assert status(roots, f"{base}/none") == 404
    assert status(roots, "azureml://datastores/store/paths/inside/file") == 200
    folder = roots.existing("azureml://datastores/store/paths", "UriFolder", target="t")
    assert folder == roots.existing("azureml://datastores/store/paths/", "UriFolder", target="t")
    assert status(roots, f"file://{home}/root/inside/a%20b") == 200


@pytest.mark.parametrize(
    "uri",
    [
        "{home}/root-beside/file",
        "{home}/root/../root-beside/file",
        "{home}/root/inside/../../root-beside/file",
        "{home}/none",
        "file://{home}/root/%2e%2e/root-beside/file",
        "file://{home}/root/inside%00",
        "azureml://datastores/store/paths/../root-beside/file",
        "azureml://datastores/store/paths//../../etc/passwd",
        "azureml://datastores/other/paths/file",
        "azureml://datastores/../paths/file",
        "inside/file",
        "~/file",
        "",
        "s3://bucket/key",
        "https://example.org/file",
        "/proc/self/environ",
        "/proc/self/root{home}/root-beside/file",
        "/" + "a" * 5000,
        "/\ud800",
        "/a\x00b",
    ],
)
def test_a_place_outside_is_refused_whether_or_not_it_is_there(home: Path, uri: str) -> None:
    """In one way, so that nobody learns what there is."""
    roots = Roots({"store": str(home / "root")})
    uri = uri.replace("{home}", str(home))
    assert status(roots, uri) == 403
    assert status(roots, uri, kind="UriFolder") == 403


def test_links_are_followed_and_what_they_lead_to_counts(home: Path) -> None:
    """Of a folder those inside, too, and those behind links."""
    roots = Roots({"a": str(home / "root"), "b": str(home / "root-beside")})
    one = Roots({"a": str(home / "root")})
    (home / "root" / "link").symlink_to(home / "root-beside")
    assert status(one, f"{home}/root/link", kind="UriFolder") == 403
    assert status(one, f"{home}/root/link/file") == 403
    assert status(one, f"{home}/root", kind="UriFolder") == 403
    assert status(roots, f"{home}/root", kind="UriFolder") == 200
    (home / "root-beside" / "deep").mkdir()
    (home / "root-beside" / "deep" / "link").symlink_to("/etc/hostname")
    assert status(roots, f"{home}/root", kind="UriFolder") == 403


@pytest.mark.parametrize(
    "uri",
    [
        "{home}/root",
        "{home}/root/inside/..",
        "file://{home}/root/inside/%2e%2e",
        "file://{home}/root/a.csv%2f%2e%2e",
        "azureml://datastores/store/paths/",
        "{home}/root/up",
    ],
)
def test_a_file_for_output_is_no_root(home: Path, uri: str) -> None:
    """Else the folder that it goes to would be the one above."""
    roots = Roots({"store": str(home / "root")})
    (home / "root" / "up").symlink_to(home / "root")
    uri = uri.replace("{home}", str(home))
    assert roots.new(uri, folder=True, target="Uri") == (home / "root").resolve()
    with pytest.raises(Refusal):
        roots.new(uri, folder=False, target="Uri")


def test_loops_of_links_end(home: Path) -> None:
    """And are refused where they lead nowhere."""
    roots = Roots({"a": str(home / "root")})
    (home / "root" / "up").symlink_to(home / "root")
    assert status(roots, f"{home}/root", kind="UriFolder") == 200
    (home / "root" / "loop").symlink_to(home / "root" / "loop")
    assert status(roots, f"{home}/root/loop") in {403, 404}


def test_a_root_may_be_a_link_itself(home: Path) -> None:
    """It is the operator's."""
    (home / "alias").symlink_to(home / "root")
    roots = Roots({"a": str(home / "alias")})
    assert status(roots, f"{home}/alias/inside/file") == 200
    assert status(roots, f"{home}/root/inside/file") == 200


def test_a_root_that_is_no_folder_is_refused(home: Path) -> None:
    """Before anything starts."""
    with pytest.raises(OptionError, match="--root a="):
        Roots({"a": str(home / "none")})


@given(st.lists(st.sampled_from(["..", ".", "inside", "link", "file", "", "%2e%2e", "~"])))
def test_no_way_leads_out(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    """Whatever a path is made of, what is answered lies in the root."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    (home / "root" / "inside").mkdir(parents=True)
    (home / "root" / "inside" / "file").touch()
    (home / "root" / "link").symlink_to(home)
    roots = Roots({"store": str(home / "root")})
    for base in (f"{home}/root/", f"file://{home}/root/", "azureml://datastores/store/paths/"):
        try:
            found = roots.existing(base + "/".join(parts), "UriFile", target="")
        except Refusal:
            continue
        assert found == (home / "root" / "inside" / "file").resolve()


@pytest.mark.attack
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("file: ./inside/file", 200),
        ("pattern: ./inside/*", 200),
        ("folder: ..", 403),
        ("file: ../root-beside/file", 403),
        ("pattern: ./inside/../../root-beside/*", 403),
        ("file: /etc/passwd", 403),
        ("file: https://example.org/file", 403),
        ("file: azureml://datastores/store/paths/file", 403),
        ("other: 1", 400),
    ],
)
def test_the_paths_of_an_mltable_lie_in_its_folder(home: Path, entry: str, expected: int) -> None:
    """Whatever form they have."""
    home.joinpath("root", "MLTable").write_text(f"paths:\n  - {entry}\n")
    roots = Roots({"store": str(home / "root")})
    assert status(roots, f"{home}/root", kind="MLTable") == expected
    assert status(roots, f"{home}/root", kind="UriFolder") == expected, "a step may read a table"
    assert status(roots, f"{home}/root/inside", kind="MLTable") == 404
