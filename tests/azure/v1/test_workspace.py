"""`Workspace`: a folder, and the folders of its datastores."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from daskprs.azure._run_place import RunPlace
from daskprs.azure.v1 import Dataset, Workspace
from daskprs.errors import UsageError


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands."""
    monkeypatch.chdir(tmp_path)


def test_what_cannot_work_without_azure_says_what_to_write_instead() -> None:
    """A workspace without a folder, a datastore without one, a dataset that is not registered."""
    with pytest.raises(UsageError, match=r"Workspace\(root='FOLDER'\)"):
        Workspace.from_config()
    with pytest.raises(UsageError, match=r"Workspace\(root='FOLDER'\)"):
        Workspace("subscription", "group", "name")
    ws = Workspace(root="store")
    with pytest.raises(UsageError, match=r"datastores=\{'images': '/path'\}"):
        ws.datastore("images")
    with pytest.raises(UsageError, match="climbs out"):
        ws.get_default_datastore().path("../secret").place  # noqa: B018 - it raises
    with pytest.raises(UsageError, match=r"\.register\(ws, 'old'\)"):
        Dataset.get_by_name(ws, "old")


def test_a_config_file_with_a_folder_makes_the_first_cell_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths are relative to it; it may be in a folder above."""
    Path("config.json").write_text(
        '{"workspace_name": "w", "subscription_id": "s", "root": "store", '
        '"datastores": {"sounds": "/data/sounds", "near": "near"}}'
    )
    Path("code").mkdir()
    monkeypatch.chdir("code")
    ws = Workspace.from_config()
    assert (ws.name, ws.subscription_id, ws.root) == ("w", "s", tmp_path / "store")
    assert ws.datastore("sounds").place("a/*.wav") == "/data/sounds/a/*.wav"
    assert ws.datastore("near").root == tmp_path / "near"
    (tmp_path / ".azureml").mkdir()
    (tmp_path / "config.json").rename(tmp_path / ".azureml" / "config.json")
    assert Workspace.from_config().root == tmp_path / "store"
    Path("mine.json").write_text('{"root": "own"}')
    mine = Workspace.from_config(".", _file_name="mine.json")
    assert mine.root == tmp_path / "code" / "own"
    with pytest.raises(UsageError, match="and nowhere does not exist"):
        Workspace.from_config("nowhere")


def test_the_ids_of_azure_are_enough_beside_a_config_file(tmp_path: Path) -> None:
    """The first cell of many notebooks names them, and no file."""
    Path("config.json").write_text(
        json.dumps(
            {
                "root": "store",
                "datastores": {"sounds": "sounds"},
                "environments": {"e": sys.executable},
            }
        )
    )
    ws = Workspace("subscription", "group", "name", datastores={"more": "more"})
    assert (ws.name, ws.resource_group, ws.root) == ("name", "group", tmp_path / "store")
    assert ws.datastore("sounds").root == tmp_path / "sounds"
    assert ws.datastore("more").root == tmp_path / "more"
    assert ws.get_default_datastore().workspace is ws
    ws.datastore("more").set_as_default()
    assert ws.get_default_datastore().name == "more"
    assert ws.environment("e").python == sys.executable


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"root": null}', '{"root": 3}', '{"root": "a", "datastores": ["b"]}'],
)
def test_a_config_file_without_a_folder_is_refused(text: str) -> None:
    """By the name of the file."""
    Path("config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config\.json( cannot| has no|: root is a path)"):
        Workspace.from_config()


def test_a_script_has_the_workspace_of_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the datastores that the step's has, whatever config files say."""
    Path("config.json").write_text('{"root": "other"}')
    Path("job").mkdir()
    ws = Workspace(root="store", datastores={"images": "images"})
    for name, value in RunPlace.of(Path("job"), ws).variables().items():
        monkeypatch.setenv(name, value)
    found = Workspace.get("mine")
    assert (found.name, found.root) == ("mine", ws.root)
    assert Workspace("subscription", "group", "mine").root == ws.root
    assert found.datastore("images").root == ws.datastore("images").root
