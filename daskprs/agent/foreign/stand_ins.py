"""Modules that published scripts import, where neither daskprs nor Azure's packages are installed.

They have what needs the standard library only. The finder stands last in ``sys.meta_path``, so
that a module that is installed comes first.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .entry_script import EntryScript, masked_here

if TYPE_CHECKING:
    import types
    from collections.abc import Sequence

MODULES = ("azureml_user", "azureml_user.parallel_run", "entry_script", "azureml", "daskprs")
"""Below ``azureml`` each module has all of it: where a name lies there does not matter."""
PACKAGES = ("azureml_user", "entry_script", "azureml")
"""The packages among them that scripts of commands may import; theirs may be installed."""
METRICS = "logs/user/metrics.jsonl"
"""The file of logged metrics in the folder of a step; `ScriptFolder` of daskprs reads it."""
INPUTS = "inputs.json"
"""The file of the named inputs of a script step, in the same folder."""
LOGGER = logging.getLogger("daskprs.run")


class StepRun:
    """The run of the step that a script is part of: what the script logs is kept there."""

    def __init__(self) -> None:
        place = json.loads(os.environ.get("DASKPRS_RUN", "{}"))
        self._folder = place.get("folder")
        if place.get("may_be_unseen") and not os.path.isdir(self._folder):  # noqa: PTH112 - as text
            self._folder = None
        self.id = os.path.basename(self._folder or "OfflineRun")  # noqa: PTH119 - as text
        self.input_datasets = {**EntryScript().side_inputs, **self._named_inputs()}

    def _named_inputs(self) -> dict[str, str]:
        """Return the named inputs of a script step that are paths."""
        file = Path(self._folder or ".", INPUTS)
        if self._folder is None or not file.is_file():
            return {}
        named = json.loads(file.read_text("utf-8"))
        return {name: place for name, place in named.items() if isinstance(place, str)}

    @classmethod
    def get_context(cls, *_: Any, **__: Any) -> Any:
        """Return the run that this process is part of."""
        return cls()

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Keep a value of a metric."""
        LOGGER.info("%s: %s", name, value)
        if self._folder is not None:
            file = Path(self._folder, METRICS)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as metrics:
                record = json.dumps({"name": name, "value": value}, default=_plain)
                metrics.write(f"{masked_here(record)}\n")

    log_list = log_table = log

    def log_row(self, name: str, *_: Any, **columns: Any) -> None:
        """Keep a row of a metric that is a table."""
        self.log(name, columns)

    def tag(self, *_: Any, **__: Any) -> None:
        """Accept tags, without effect."""

    set_tags = add_properties = flush = complete = tag

    def __getattr__(self, name: str) -> Any:
        raise _lacking("Run." + name)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


class ModelPlaces:
    """Where the models of a job are, by name."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise _lacking("Model()")

    @staticmethod
    def get_model_path(model_name: str, *_: Any, **__: Any) -> str:
        """Return the path of a model that the job was given.

        Raises
        ------
        FileNotFoundError
            When the job has no model of that name.

        """
        assets = json.loads(os.environ.get("DASKPRS_ASSETS", "{}"))
        assets.update(EntryScript().side_inputs)
        path = assets.get(model_name)
        if path is None:
            known = ", ".join(sorted(assets)) or "none"
            msg = (
                f"the job has no asset called {model_name!r} (known: {known}). Give its place by "
                f"side_inputs={{{model_name!r}: '/path'}}."
            )
            raise FileNotFoundError(msg)
        if path == os.environ.get("AZUREML_MODEL_DIR"):  # the folder contains only the model
            path = next(os.scandir(path)).path
        return str(path)


NAMES = {"Run": StepRun, "Model": ModelPlaces}


def _lacking(name: str) -> AttributeError:
    msg = (
        f"{name}: the script runs under {sys.executable}, where neither daskprs nor the package "
        "that has this is installed, and only a part of it works there: EntryScript, "
        "Run.get_context() and Model.get_model_path(). Install the package there."
    )
    return AttributeError(msg)


class ScriptModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of `MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find our modules; a real parent package gets no stand-ins for its parts."""
        del path, target
        parent = getattr(sys.modules.get(fullname.rpartition(".")[0]), "__spec__", None)
        ours = "." not in fullname or getattr(parent, "loader", None) is self
        if not ours or not stands_for(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its names."""
        whole = module.__name__
        if whole in ("entry_script", "azureml_user.parallel_run", "daskprs"):
            module.EntryScript = EntryScript  # type: ignore[attr-defined]
        if whole.partition(".")[0] in ("azureml", "daskprs"):
            module.__getattr__ = _found_in(whole)  # type: ignore[method-assign]


def take_over(name: str) -> None:
    """Turn a module loaded from a file into a stand-in, so that its submodules are found, too."""
    finder = next((one for one in sys.meta_path if isinstance(one, ScriptModules)), None)
    if finder is None:
        finder = ScriptModules()
        sys.meta_path.append(finder)
    module = sys.modules[name]
    module.__spec__ = importlib.machinery.ModuleSpec(name, finder, is_package=True)
    finder.exec_module(module)


def stands_for(name: str) -> bool:
    """Say whether a module has a stand-in."""
    return name in MODULES or name.startswith("azureml.")


def has(name: str, attribute: str) -> bool:
    """Say whether a stand-in has an attribute; in ``azureml`` lower-case names are modules."""
    if name.partition(".")[0] == "azureml":
        return attribute in NAMES or attribute.islower()
    return attribute == "EntryScript" or f"{name}.{attribute}" in MODULES


def _found_in(module: str) -> Any:
    def found(name: str) -> Any:
        if name in NAMES and module.startswith("azureml"):
            return NAMES[name]
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{module}.{name}"
        raise _lacking(whole)

    return found
