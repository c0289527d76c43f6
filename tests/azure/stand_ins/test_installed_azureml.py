"""Where `azureml` is installed, its `Run` and `Model` ask ours first, which know the job."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daskprs._agent.script.plugin_stand_ins import plugin_stand_ins
from daskprs._core.mini_batch import MiniBatch
from daskprs._system.linux import DUMP_SIGNAL
from daskprs.azure._pipeline_folder import ScriptFolder
from daskprs.azure._run_place import RunPlace
from daskprs.azure._stand_ins.elsewhere import PACKAGES, OwnRun
from daskprs.azure._stand_ins.here import stand_in_folder
from tests.agent.test_foreign import start

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
    folder = stand_in_folder(tmp_path / "stand-ins", absent)
    path = [str(folder), str(site), os.getcwd(), os.environ.get("PYTHONPATH", "")]  # noqa: PTH109
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    check(json.loads(done.stdout), tmp_path, "ours" if absent is None else "theirs")


def test_an_agent_finds_what_its_step_knows(site: Path, tmp_path: Path) -> None:
    """Under another interpreter; those of our own have the same finder."""
    entry = start(
        Path(sys.executable),
        tmp_path / "log",
        tmp_path / "script.py",
        plugin_stand_ins(elsewhere=True),
        PYTHONPATH=site,
    )
    try:
        check(entry.run([], MiniBatch(0, (), "")), tmp_path, "theirs")
    finally:
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, signal.SIG_DFL)
        entry.shutdown()
        entry.wait()
        entry._pipes.close()
