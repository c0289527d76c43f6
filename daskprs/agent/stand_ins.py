"""Stand-ins for packages that published scripts import and that only Azure's images have.

They answer only where the real package is missing: the finder stands last in ``sys.meta_path``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from typing import TYPE_CHECKING, Any

from daskprs.agent.public import EntryScript

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ASSETS_VARIABLE = "DASKPRS_ASSETS"
"""Holds, as JSON, where the job's named assets lie: ``{"my-model": "/path"}``."""


class Model:
    """Stands for ``azureml.core.Model``, as far as scripts find a model's folder with it."""

    @staticmethod
    def get_model_path(model_name: str, version: int | None = None, **_: Any) -> str:  # noqa: ARG004
        """Return where a named asset of the job lies."""
        assets: dict[str, str] = json.loads(os.environ.get(ASSETS_VARIABLE, "{}"))
        assets |= EntryScript().side_inputs
        if model_name not in assets:
            known = ", ".join(sorted(assets)) or "none"
            msg = (
                f"the job has no asset called {model_name!r} (known: {known}). Give its place by "
                f"side_inputs={{{model_name!r}: '/path'}}."
            )
            raise FileNotFoundError(msg)
        path = assets[model_name]
        if path == os.environ.get("AZUREML_MODEL_DIR"):  # it contains the model, and nothing else
            return next(os.scandir(path)).path
        return path


def _missing(name: str) -> Any:
    msg = (
        f"mltable.{name}: the mltable package is not installed, and daskprs does not need it to "
        "read a table: give the path of the data to the job instead."
    )
    raise AttributeError(msg)


def _fill_entry_script(module: types.ModuleType) -> None:
    module.EntryScript = EntryScript  # type: ignore[attr-defined]


def _fill_model(module: types.ModuleType) -> None:
    module.Model = Model  # type: ignore[attr-defined]


def _fill_mltable(module: types.ModuleType) -> None:
    module.__getattr__ = _missing  # type: ignore[method-assign]


def _nothing(module: types.ModuleType) -> None:
    """Leave a package empty: it is there for what lies in it."""


MODULES: dict[str, Callable[[types.ModuleType], None]] = {
    "azureml_user": _nothing,
    "azureml_user.parallel_run": _fill_entry_script,
    "entry_script": _fill_entry_script,
    "azureml": _nothing,
    "azureml.core": _fill_model,
    "azureml.core.model": _fill_model,
    "mltable": _fill_mltable,
}


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of `MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for our names; a real parent package means that its parts are real, or absent."""
        del path, target
        if fullname not in MODULES or not self._parent_is_ours(fullname):
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def _parent_is_ours(self, fullname: str) -> bool:
        parent = fullname.rpartition(".")[0]
        if not parent:
            return True
        spec = getattr(sys.modules.get(parent), "__spec__", None)
        return spec is not None and spec.loader is self

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill the module."""
        MODULES[module.__name__](module)


def stands_for(name: str) -> bool:
    """Say whether a module has a stand-in."""
    return name in MODULES


def lacking() -> list[str]:
    """Return the modules whose packages are not installed here, so that a stand-in is needed."""
    return [name for name in MODULES if not _is_installed(name.partition(".")[0])]


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and not isinstance(spec.loader, StandIns)


def has(name: str, attribute: str) -> bool:
    """Say whether the stand-in of a module has a name."""
    module = types.ModuleType(name)
    MODULES[name](module)
    return hasattr(module, attribute)


def install() -> None:
    """Answer from now on, after everything else had its chance."""
    sys.meta_path.append(StandIns())
