"""Where `azureml` is installed, its `Run` and `Model` ask ours first, which know the job.

Where a part of it or of `azure` is installed, scripts import that part, and stand-ins for the rest.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.script.plugin_stand_ins import plugin_stand_ins
from daskprs._core.mini_batch import MiniBatch
from daskprs._system.linux import DUMP_SIGNAL
from daskprs.azure._pipeline_folder import ScriptFolder
from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins.elsewhere import PACKAGES, OwnRun
from daskprs.azure._stand_ins.here import stand_in_folder
from tests.agent.test_foreign import start

if TYPE_CHECKING:
    from collections.abc import Collection

INSTALLED = {
    "__init__": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
    "core/__init__": "from azureml.core.run import Run\nfrom azureml.core.model import Model\n",
    "core/run": (
        "class Run:\n    id = 'theirs'\n    def own(self):\n        return 'theirs'\n"
        "    @classmethod\n    def get_context(cls, allow_offline=True):\n"
        "        run = cls()\n        run.id = 'offline' if allow_offline else 'theirs'\n"
        "        return run\n"
    ),
    "core/model": (
        "class Model:\n    @staticmethod\n"
        "    def get_model_path(model_name, version=None, _workspace=None):\n"
        "        return {'theirs': 'theirs'}[model_name]\n"
    ),
}
"""As the real package has it: a module for each class."""
SCRIPT = """
import json, os, sys
from azureml.core import Run
from azureml.core.model import Model

def run(mini_batch):
    try:
        Model.get_model_path("nowhere")
    except FileNotFoundError as error:
        said = str(error)
    step = Run.get_context()
    step.log("x", 1)
    step.upload_file("outputs/script.py", __file__)
    step.upload_folder("all", os.path.dirname(__file__) + "/step/logs")
    step.child_run().log("y", 1)
    own = getattr(Run.get_context(), "own", lambda: "ours")()
    found = [Run.get_context().id, own, said, Model.__module__]
    found += [Model.get_model_path(name) for name in ("given", "registered", "theirs")]
    found += [Model.get_model_path("registered", version=1)]
    del os.environ["DASKPRS_RUN"]
    return [*found, Run.get_context(False).id]

if __name__ == "__main__":
    print(json.dumps(run([])))
"""

PARTS = {
    "azureml/__init__": INSTALLED["__init__"],
    "azureml/fsspec/__init__": "REAL = True\n",
    "azure/core/__init__": "REAL = True\n",
    "azure/core/exceptions": (
        "class AzureError(Exception):\n    pass\n"
        "HttpResponseError = ClientAuthenticationError = AzureError\n"
        "class ResourceNotFoundError(AzureError):\n    pass\n"
        "ResourceExistsError = ResourceNotFoundError\n"
    ),
}
"""As several packages have them; none of these has all, and `azure` has no module of its own."""
SCRIPT_OF_PARTS = """
import json
import azure.core, azure.core.exceptions, azureml.fsspec
from azure.storage.blob import BlobClient
from azureml.core import Run

def run(mini_batch):
    try:
        BlobClient("https://a.blob.core.windows.net", "pictures", "x").download_blob()
    except azure.core.exceptions.ResourceNotFoundError as error:
        assert "'x' does not exist" in str(error)
    try:
        from azure.core.unknown import name
    except ImportError:
        return [Run.get_context().id, azure.core.REAL, azureml.fsspec.REAL]

if __name__ == "__main__":
    print(json.dumps(run([])))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages with `azureml`, and make this process part of a step."""
    for name, text in INSTALLED.items():
        file = tmp_path / "site/azureml" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for version in (1, 2):
        files = tmp_path / f"root/.azureml/models/registered/{version}/files"
        files.mkdir(parents=True)
        (files / "model").touch()
        record = {"tags": {}, "properties": {}, "description": None, "run": None}
        (files.parent / "record.json").write_text(json.dumps(record))
    (tmp_path / "step").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    for name, value in RunPlace(tmp_path / "step", tmp_path / "root").variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DASKPRS_ASSETS", json.dumps({"given": "/given"}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    return tmp_path / "site"


def check(found: list[str], folder: Path, rest: str) -> None:
    """Compare what a script finds; `rest` says who has what our small `Run` does not have."""
    models = [str(folder / f"root/.azureml/models/registered/{one}/files/model") for one in (2, 1)]
    name, own, said, module, *paths, offline = found
    assert (name, own, module, offline) == ("step", rest, "azureml.core.model", "theirs")
    assert "no asset called 'nowhere' (known: given" in said
    assert paths == ["/given", models[0], "theirs", models[1]]
    logged = ScriptFolder(folder / "step").metrics.read_text().splitlines()
    assert [json.loads(one) for one in logged] == [{"name": "x", "value": 1}]
    artifacts = ScriptFolder(folder / "step").artifacts
    assert (artifacts / "outputs/script.py").read_text() == SCRIPT
    assert (artifacts / "all/user/metrics.jsonl").exists()
    (child,) = folder.glob("step/children/step_*")
    assert ScriptFolder(child).metrics.exists()


def test_an_offline_run_of_theirs_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would do nothing, without a word; a script that catches the error leaves it in its log."""
    offline = type("_OfflineRun", (), {"register_model": print})
    monkeypatch.setattr(OwnRun, "real_context", staticmethod(offline))
    with pytest.raises(AttributeError, match=r"Run\.register_model: .* what it looks up as an"):
        _ = OwnRun.get_context().register_model
    assert "Run.register_model" in caplog.text


@pytest.mark.parametrize("absent", [None, {*PACKAGES} - {"azureml"}], ids=["own", "other"])
def test_a_command_finds_what_its_step_knows(
    site: Path, tmp_path: Path, absent: set[str] | None
) -> None:
    """By a module that stands before the installed package."""
    found = of_command(site, tmp_path, absent)
    check(found, tmp_path, "ours" if absent is None else "theirs")


def of_command(site: Path, folder: Path, absent: Collection[str] | None) -> list[str]:
    """Return what the script finds as a process of its own, as a command's is."""
    more = stand_in_folder(folder / "stand-ins", absent)
    path = [str(more), str(site), os.getcwd(), os.environ.get("PYTHONPATH", "")]  # noqa: PTH109
    done = subprocess.run(
        [sys.executable, folder / "script.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_an_agent_finds_what_its_step_knows(site: Path, tmp_path: Path) -> None:
    """Under another interpreter; those of our own have the same finder."""
    check(of_agent(site, tmp_path), tmp_path, "theirs")


def of_agent(site: Path, tmp_path: Path) -> list[str]:
    """Return what the script finds in an agent under another interpreter."""
    entry = start(
        Path(sys.executable),
        tmp_path / "log",
        tmp_path / "script.py",
        plugin_stand_ins(elsewhere=True),
        PYTHONPATH=site,
    )
    try:
        found: list[str] = entry.run([], MiniBatch(0, (), ""))
        return found
    finally:
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, signal.SIG_DFL)
        entry.shutdown()
        entry.wait()
        entry._pipes.close()


@pytest.mark.parametrize("where", ["own", "other", "agent"])
def test_scripts_import_stand_ins_for_parts_that_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Beside the parts that are installed, of which none is lost."""
    write_parts(tmp_path / "site")
    (tmp_path / "script.py").write_text(SCRIPT_OF_PARTS)
    (tmp_path / "step").mkdir()
    place = RunPlace(tmp_path / "step", None, {"pictures": str(tmp_path)})
    for name, value in place.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    if where == "agent":
        found = of_agent(tmp_path / "site", tmp_path)
    else:
        absent = None if where == "own" else {"azureml_user", "entry_script"}
        found = of_command(tmp_path / "site", tmp_path, absent)
    assert found == ["step", True, True]


@pytest.mark.parametrize("absent", [None, {*PACKAGES}], ids=["own", "other"])
def test_a_program_of_a_command_may_start_an_interpreter_that_has_the_packages(
    tmp_path: Path, absent: set[str] | None
) -> None:
    """The stand-ins are for that of the step; here, daskprs or what they are made of is missing."""
    write_parts(tmp_path / "site")
    folder = stand_in_folder(tmp_path / "stand-ins", absent)
    for file in folder.glob("*/__init__.py"):
        file.write_text(file.read_text().replace("/", "/gone/"))
    told = "import azure.core, azureml.fsspec; print(azure.core.REAL, azureml.fsspec.REAL)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", told],
        env={"PYTHONPATH": f"{folder}{os.pathsep}{tmp_path / 'site'}"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout == b"True True\n"


def write_parts(site: Path) -> None:
    """Write the packages of `PARTS`."""
    for name, text in PARTS.items():
        file = site / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
