"""`Model`: versions of a file or folder, as files of a workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins.elsewhere import ModelPlaces
from daskprs.azure.v1 import Model, Workspace
from daskprs.errors import UsageError


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands: a file beside it."""
    monkeypatch.chdir(tmp_path)
    Path("model.txt").write_text("model ")


def test_versions_are_found_by_name_number_and_tags() -> None:
    """Through any workspace of the folder; the file that was registered may be gone."""
    for tags in ({"a": "b"}, {"a": "c"}):
        ws, kind = Workspace(root="store"), Model.Framework.CUSTOM
        one = Model.register(ws, "model.txt", "m", tags, model_framework=kind)
    assert (one.id, one.tags) == ("m:2", {"a": "c"})
    Path("model.txt").unlink()
    ws = Workspace(root="store")
    assert [one.version for one in Model.list(ws, tags=["a"])] == [1, 2]
    assert [one.version for one in Model.list(ws, tags=[["a", "b"]])] == [1]
    assert [one.version for one in Model.list(ws, "m", latest=True)] == [2]
    assert Path(Model(ws, "m", version=1).download("here")).read_text() == "model "
    with pytest.raises(UsageError, match="exist_ok=True"):
        Model(ws, id="m:2").download("here")
    Model(ws, "m").delete()
    assert ws.models["m"].version == 1
    with pytest.raises(UsageError, match="no model 'm' of version 2"):
        Model(ws, "m", version=2)
    with pytest.raises(UsageError, match=r"model_path: 'model\.tx' does not exist"):
        Model.register(ws, "model.tx", "m")


def test_a_folder_is_copied_without_what_is_registered_in_it() -> None:
    """A workspace may be registered, and each version is as large as the first."""
    ws = Workspace(root=".")
    first, second = (Model.register(ws, ".", "all") for _ in range(2))
    files = [[*one.path.rglob("*")] for one in (first, second)]
    assert [[path.name for path in paths] for paths in files] == [["model.txt"]] * 2


def test_scripts_find_and_register_models_in_the_workspace_of_their_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model knows the run in which a script registered it."""
    ws = Workspace(root="store")
    Model.register(ws, "model.txt", "m")
    for name, value in RunPlace.of(Path("job"), ws).variables().items():
        monkeypatch.setenv(name, value)
    assert [one.name for one in Model.list(ws, run_id="job")] == []
    Model.register(ws, "model.txt", "made")
    assert [one.name for one in Model.list(ws, run_id="job")] == ["made"]
    for find in (Model.get_model_path, ModelPlaces.get_model_path):  # here and elsewhere
        assert find("m", version=1) == str(ws.models["m"].path)
        with pytest.raises(FileNotFoundError, match=r"no version 2 in its workspace \(known: 1\)"):
            find("m", version=2)
    with pytest.raises(FileNotFoundError, match=r"called 'n' \(known: m, made\)"):
        Model.get_model_path("n")
    seventh = Model.register(ws, "model.txt", "m", version="007")
    for find in (Model.get_model_path, ModelPlaces.get_model_path):
        assert find("m", 7) == find("m") == str(seventh.path)
    with pytest.raises(UsageError, match="has a version 7 already"):
        Model.register(ws, "model.txt", "m", version=7)


def test_a_notebook_names_the_workspace_whose_model_it_wants() -> None:
    """It belongs to no job, so no step has a workspace for it."""
    ws = Workspace(root="store")
    two = [Model.register(ws, "model.txt", "m") for _ in range(2)]
    assert Model.get_model_path("m", _workspace=ws) == str(two[1].path)
    assert Model.get_model_path("m", 1, ws) == str(two[0].path)
    with pytest.raises(UsageError, match=r"no model 'n' .*Model\.register"):
        Model.get_model_path("n", _workspace=ws)


def test_a_script_finds_an_asset_by_its_bare_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last version, where assets have versions; here and under another interpreter."""
    assets = {"m:2": "two", "m:10": "ten", "n:1": "one", "n@latest": "last", "n": "bare"}
    monkeypatch.setenv("DASKPRS_ASSETS", json.dumps(assets))
    for find in (Model.get_model_path, ModelPlaces.get_model_path):
        assert [find(name) for name in ("m", "n", "m:2", "n@latest")] == [
            "ten",
            "bare",
            "two",
            "last",
        ]
        assert [find("m", version=one) for one in (2, "10")] == ["two", "ten"]
        with pytest.raises(FileNotFoundError, match=r"by side_inputs="):
            find("m", 3)
    for name, value in RunPlace(Path(), may_be_unseen=True).variables().items():
        monkeypatch.setenv(name, value)
    Path("assets.json").write_text(json.dumps({"p@latest": "all", "m:10": "file"}))
    for find in (Model.get_model_path, ModelPlaces.get_model_path):
        with pytest.raises(FileNotFoundError, match=r"ml_client.models, .* --asset o=PATH\.$"):
            find("o")
        assert (find("p"), find("m")) == ("all", "ten")
