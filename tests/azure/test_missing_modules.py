"""What a script imports is looked for before a job starts, and nothing of it is run."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from daskprs.azure._missing_modules import missing_modules, refuse_missing_modules
from daskprs.azure._stand_ins.here import StandIns
from daskprs.azure.v1 import AutoMLConfig  # type: ignore[attr-defined]
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
import json, numpy.linalg, no_such_a.inner
import beside
from package.part import thing
from . import near
from azureml_user.parallel_run import EntryScript
from azureml.core import Model, AutoMLConfig
from azureml.core.model import Model
from azureml.data import TabularDataset, AutoML
from azureml._restclient.models.create_run_dto import CreateRunDto
from azureml._restclient.experiment_client import ExperimentClient
import mltable

raise SystemExit("nobody runs this")

def init():
    with open("x"):
        import no_such_b

def run(mini_batch):
    import no_such_a, no_such_c as c

def never():
    import optional_a

try:
    import optional_b
except (ValueError, ImportError):
    import optional_c

try:
    import no_such_d
except ValueError:
    pass

if WITH_TORCH:
    import optional_d
if TYPE_CHECKING:
    import optional_e
with contextlib.suppress(ModuleNotFoundError):
    import optional_f

try:
    import no_such_h
except ImportError as error:
    print("pip install h")
    raise RuntimeError("h") from error
"""


def test_what_is_missing_is_named_once_with_its_place(tmp_path: Path) -> None:
    """Modules beside the script are followed; what is optional, or stood in for, is not told."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/part.py").write_text("import beside, no_such_e\n")
    (tmp_path / "beside.py").write_text("import package.part\nimport no_such_f\n")
    (tmp_path / "near.py").write_text("from beside import x\nfrom no_such_g import *\n")
    script = tmp_path / "entry.py"
    script.write_text(SCRIPT)
    missing = missing_modules(script, tmp_path)
    found = {(one.name, one.file.name, one.line) for one in missing}
    assert found == {
        ("no_such_a", "entry.py", 1),
        ("no_such_b", "entry.py", 17),
        ("no_such_c", "entry.py", 20),
        ("no_such_d", "entry.py", 31),
        ("no_such_h", "entry.py", 43),
        ("no_such_e", "part.py", 1),
        ("no_such_f", "beside.py", 2),
        ("no_such_g", "near.py", 2),
        ("azureml.core.AutoMLConfig", "entry.py", 6),
        ("azureml.data.AutoML", "entry.py", 8),
    }
    (search,) = (str(one) for one in missing if one.name.endswith("AutoMLConfig"))
    assert search.endswith("line 6): " + AutoMLConfig.__instead__)


def test_a_script_that_asks_for_a_workspace_is_told_what_to_do(tmp_path: Path) -> None:
    """A step has inputs instead."""
    script = tmp_path / "score.py"
    script.write_text("from azure.ai.ml import MLClient\n")
    (one,) = missing_modules(script, tmp_path)
    assert str(one).startswith(f"azure.ai.ml ({script}, line 1): a step reaches no workspace here")


def test_folders_of_the_python_path_count(tmp_path: Path) -> None:
    """The user's environment variables name them."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/beside.py").write_text("")
    script = tmp_path / "entry.py"
    script.write_text("import beside\n")
    assert missing_modules(script, tmp_path, [str(tmp_path / "lib")]) == []
    with pytest.raises(ScriptError, match=r"\n  beside \(.*entry.py, line 1\)\nInstall"):
        refuse_missing_modules(script, tmp_path)


def test_a_module_beside_a_script_below_the_source_directory_is_told_as_such(
    tmp_path: Path,
) -> None:
    """No package brings it."""
    script = tmp_path / "src/score.py"
    (tmp_path / "src/helpers").mkdir(parents=True)
    (tmp_path / "src/helpers/__init__.py").write_text("")
    script.write_text("from helpers import one\nfrom src.helpers import two\n")
    with pytest.raises(ScriptError) as caught:
        refuse_missing_modules(script, tmp_path)
    (told,) = str(caught.value).splitlines()[1:]
    assert told.startswith(f"  helpers ({script}, line 1): it is beside this file, and imports")
    (other,) = missing_modules(script, tmp_path / "src")
    assert (other.name, other.hint) == ("src", "")


def test_packages_on_the_way_of_an_import_are_searched(tmp_path: Path) -> None:
    """Python runs their `__init__`, whether the import is relative or absolute."""
    (tmp_path / "pack/inner").mkdir(parents=True)
    (tmp_path / "pack/__init__.py").write_text("import no_such_a\n")
    (tmp_path / "pack/inner/__init__.py").write_text("import no_such_b\n")
    (tmp_path / "pack/inner/part.py").write_text("import no_such_c\n")
    for name, text in (("entry", "from .pack.inner.part import x"), ("other", "import entry")):
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
        found = missing_modules(tmp_path / f"{name}.py", tmp_path)
        assert [one.name for one in found] == ["no_such_a", "no_such_b", "no_such_c"]


def test_clients_of_azure_can_be_imported_and_not_called() -> None:
    """Published scripts call them within `try`, and go on."""
    models: Any = ModuleType("azureml._restclient.models.run_type_v2")
    StandIns().exec_module(models)
    with pytest.raises(RuntimeError, match=r"RunTypeV2\.of is a client of Azure"):
        models.RunTypeV2.of(traits=["training"])
    assert not hasattr(models, "__path__")


def test_what_another_interpreter_has_no_class_for_is_missing(tmp_path: Path) -> None:
    """Wherever it stands: a script that catches all errors would say nothing about it."""
    (tmp_path / "script.py").write_text(
        "from azureml.core import Run\nfrom azureml.core.model import Model\n"
        "def run(mini_batch):\n    Run.get_context().child_run()\n    Model.get_model_path('m')\n"
        "    try:\n        return Model.list(None)\n    except Exception:\n        return []\n"
    )
    assert missing_modules(tmp_path / "script.py", tmp_path) == []
    (one,) = missing_modules(tmp_path / "script.py", tmp_path, python=sys.executable)
    assert (one.name, one.line) == ("azureml.core.Model.list", 7)
    assert "line 7): the Python of daskprs has it" in str(one)


def test_what_a_script_asks_of_its_run_is_looked_for_before_the_start(tmp_path: Path) -> None:
    """Another interpreter has no registry, and a step of a file no workspace; conditions count."""
    script = tmp_path / "train.py"
    script.write_text(
        "from azureml.core import Run\nrun = Run.get_context()\nrun.log(run.id, 1)\n"
        "if run.id:\n    run.get_secret('a')\n"
        "try:\n    run.get_details_with_logs()\nexcept Exception: pass\n"
        "def main():\n    run.register_model('m', 'outputs/m.pkl')\n"
        "if __name__ == '__main__':\n    main()\n    Run.get_context().experiment.workspace\n"
    )
    assert missing_modules(script, tmp_path) == []
    told = [str(one) for one in missing_modules(script, tmp_path, python=sys.executable)]
    assert [one.split(":")[0] for one in told] == [
        f"Run.get_context().register_model ({script}, line 10)",
        f"Run.get_context().experiment ({script}, line 13)",
    ]
    assert "without azureml-core no other Python does" in told[0]
    of_file = missing_modules(script, tmp_path, has_workspace=False)
    assert [one.line for one in of_file] == [10, 13]
    assert "into an output, which is registered after the run" in str(of_file[0])


def test_what_a_script_asks_of_its_run_in_functions_that_need_not_run_is_its_own(
    tmp_path: Path,
) -> None:
    """A condition may stand where the function is called; methods and `__init__` count as well."""
    script = tmp_path / "train.py"
    script.write_text(
        "from azureml.core import Run\nrun = Run.get_context()\n"
        "def register():\n    run.register_model('m', 'outputs/m.pkl')\n"
        "def never():\n    return run.experiment\n"
        "match run.id:\n    case 'a': run.experiment\n"
        "if run.id:\n    register()\n"
    )
    assert missing_modules(script, tmp_path, has_workspace=False) == []
    script.write_text(
        "from azureml.core import Run\nclass Training:\n"
        "    def __init__(self):\n        self.run = Run.get_context()\n"
        "        self.run.experiment\n"
        "    def end(self):\n        self.run.register_model('m', 'm')\n"
        "Training().end()\n"
    )
    found = missing_modules(script, tmp_path, has_workspace=False)
    assert [one.line for one in found] == [5, 7]


@pytest.mark.parametrize(
    "change",
    [
        "import sys\nsys.path.append('../common')\n",
        "import os\nos.system('pip install no_such_a')\n",
        "import subprocess as s, sys\ns.run([sys.executable, '-m', 'pip', 'install', 'a'])\n",
        "import pip\npip.main(['install', 'a'])\n",
    ],
)
def test_modules_that_a_script_makes_known_itself_are_not_missing(
    tmp_path: Path, change: str
) -> None:
    """Nor are those of the files that it imports then; the names of Azure's SDK are known."""
    script = tmp_path / "train.py"
    (tmp_path / "beside.py").write_text("import no_such_b\n")
    script.write_text(f"import no_such_c\n{change}import no_such_a, beside\n")
    assert [one.name for one in missing_modules(script, tmp_path)] == ["no_such_c"]
    script.write_text(f"{change}from azureml.core import NoSuchName\n")
    assert [one.name for one in missing_modules(script, tmp_path)] == ["azureml.core.NoSuchName"]


def test_no_package_is_named_where_none_has_what_is_missing(tmp_path: Path) -> None:
    """The line on what is missing says what to write instead."""
    script = tmp_path / "train.py"
    script.write_text("from azureml.core import Run\nRun.get_context().experiment\n")
    with pytest.raises(ScriptError, match=r"registered after the run$"):
        refuse_missing_modules(script, tmp_path, other="--environment", has_workspace=False)
    script.write_text("import no_such_a\n" + script.read_text())
    with pytest.raises(ScriptError, match=r"registered after the run\nInstall the packages"):
        refuse_missing_modules(script, tmp_path, has_workspace=False)


def test_names_that_are_not_built_can_only_be_imported_under_our_python(tmp_path: Path) -> None:
    """Another interpreter has no stand-ins for them, and the import itself would fail."""
    script = tmp_path / "train.py"
    script.write_text("from azureml.core import Webservice\n")
    refuse_missing_modules(script, tmp_path, with_importable=False)
    with pytest.raises(ScriptError, match=r"azureml\.core\.Webservice"):
        refuse_missing_modules(script, tmp_path, python=sys.executable, with_importable=False)
