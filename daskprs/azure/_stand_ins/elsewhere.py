"""Stand-ins under another interpreter, where neither daskprs nor Azure's packages are installed.

They have what needs the standard library only. The finder stands last in ``sys.meta_path``, so
that a module that is installed comes first.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable
from urllib.parse import quote

from .entry import EntryScript, stand_ins
from .step_run import ASSETS, INPUTS, LOGGER, StepRun

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable, Mapping, Sequence

BLOBS = ("azure.storage.blob", "azure.identity", "azure.core.exceptions")
"""Modules whose names are those of `blob_storage`."""
AZURE = ("azure", "azure.storage", "azure.core", *BLOBS)
SCRIPT_MODULES = ("azureml_user", "azureml_user.parallel_run", "entry_script", "azureml", *AZURE)
"""Below ``azureml`` each module has all of it: where a name lies there does not matter."""
PACKAGES = ("azureml_user", "entry_script", "azureml", "azure")
"""The packages among them that scripts of commands may import; theirs may be installed."""
SHARED = ("azureml", "azure")
"""Packages whose parts are installed one by one: each part that is absent has its stand-in."""


class OwnRun(StepRun):
    """The run of the step, under another interpreter."""

    real_context: Any = None
    """Returns the run of the real package, where that is installed."""

    @classmethod
    def get_context(cls, *_: Any, **__: Any) -> Any:
        """Return the run that this process is part of."""
        place = json.loads(os.environ.get("DASKPRS_RUN", "{}"))
        folder = Path(place["folder"]) if "folder" in place else None
        if folder is not None and place.get("may_be_unseen") and not folder.is_dir():
            LOGGER.warning("This node does not see %s: what the script logs is lost.", folder)
            folder = None
        return cls(folder, {**EntryScript().side_inputs, **_named_inputs(folder)})

    def __getattr__(self, name: str) -> Any:
        if self.real_context is None or name.startswith("__"):
            raise _lacking("Run." + name)
        real = self.real_context()
        if type(real).__name__ == "_OfflineRun":  # it would do nothing, without a word
            raise _lacking("Run." + name)
        return getattr(real, name)


def _named_inputs(folder: Path | None) -> dict[str, str]:
    """Return the named inputs of a script step that are paths."""
    file = Path(folder or os.devnull, INPUTS)
    named = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return {name: place for name, place in named.items() if isinstance(place, str)}


class ModelPlaces:
    """The places of the models of a job, by name."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise _lacking("Model()")

    @staticmethod
    def get_model_path(model_name: str, version: Any = None, *_: Any, **__: Any) -> str:
        """Return the path of a model that the job was given, or that its workspace has.

        Without a model of that name it is a FileNotFoundError.
        """
        path = model_path(model_name, version)
        if path is None:
            raise no_asset(model_name)
        return path


def model_path(name: str, version: Any) -> str | None:
    """Return the path of a model of the job, or of the workspace of the step, by its name."""
    assets = _assets_of_process()
    path = _asset_of(assets, name, version)
    if path is None:
        path = _registered(name, version) or assets.get(name)
    if path is not None and path == os.environ.get("AZUREML_MODEL_DIR"):
        return next(os.scandir(path)).path  # the folder contains only the model
    return path


def no_asset(name: str, others: Iterable[str] = (), more: str = "") -> FileNotFoundError:
    """Return the error for a name that is neither an asset nor among `others`."""
    known = ", ".join(sorted({*_assets_of_process(), *others})) or "none"
    msg = f"the job has no asset called {name!r} (known: {known}). {_way_of_asset(name)}{more}."
    return FileNotFoundError(msg)


def _assets_of_process() -> dict[str, str]:
    """Return where the assets are that the scripts of this process may ask for, by name."""
    folder = json.loads(os.environ.get("DASKPRS_RUN", "{}")).get("folder")
    file = Path(folder or os.devnull, ASSETS)
    found = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    of_job = json.loads(os.environ.get("DASKPRS_ASSETS", "{}"))
    return {**found, **of_job, **EntryScript().side_inputs}


def _asset_of(assets: Mapping[str, str], name: str, version: Any) -> str | None:
    """Return the path of an asset: by its name, else of a version, by default the last."""
    if version is not None:
        return assets.get(f"{name}:{version}")
    numbers = [one[len(name) + 1 :] for one in assets if one.startswith(f"{name}:")]
    last = max((one for one in numbers if one.isdigit()), key=int, default="")
    return assets.get(name) or assets.get(f"{name}@latest") or assets.get(f"{name}:{last}")


def _way_of_asset(name: str) -> str:
    """Return how a caller gives an asset to the scripts of this process."""
    if json.loads(os.environ.get("DASKPRS_RUN", "{}")).get("may_be_unseen"):  # of pipeline files
        return f"Register it by ml_client.models, or give its place by --asset {name}=PATH"
    return f"Give its place by side_inputs={{{name!r}: '/path'}}"


def _registered(name: str, version: Any) -> str | None:
    """Return the path of a version (default: the last) of a model in the step's workspace.

    A version that such a model does not have is a FileNotFoundError.
    """
    root = json.loads(os.environ.get("DASKPRS_RUN", "{}")).get("root")
    folder = Path(root or os.devnull, ".azureml", "models", quote(name, safe=""))
    versions = sorted(int(one.name) for one in folder.glob("[0-9]*"))
    if not versions:
        return None
    wanted = versions[-1] if version is None else int(version)
    if wanted not in versions:
        known = ", ".join(map(str, versions))
        msg = f"the model {name!r} has no version {version} in its workspace (known: {known})."
        raise FileNotFoundError(msg)
    return str(next((folder / str(wanted) / "files").iterdir()))


NAMES = {"Run": OwnRun, "Model": ModelPlaces}
REAL = {"azureml.core.run": "Run", "azureml.core.model": "Model"}
"""Modules of the real package, and the classes in them that ask us first."""


def _lacking(name: str) -> AttributeError:
    """Return the error for what does not work here; log it, since some scripts catch all errors."""
    msg = (
        f"{name}: the script runs under {sys.executable}, where daskprs is not installed, and only "
        "a part of Azure's SDK works: EntryScript, what Run.get_context() logs and uploads, "
        "Model.get_model_path() and blobs. Give the step what it looks up as an input, or run it "
        "under the Python of daskprs."
    )
    LOGGER.warning("%s", msg)
    return AttributeError(msg)


class ScriptModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of `SCRIPT_MODULES`."""

    def has(self, name: str) -> bool:
        """Say whether a module has a stand-in."""
        return stands_for(name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find our modules; a real parent package gets no stand-ins for its parts.

        Only those of `SHARED` do, and ``azureml`` only without its SDK: the objects of that would
        meet ours.
        """
        del target
        above = fullname.rpartition(".")[0]
        parent = getattr(sys.modules.get(above), "__spec__", None)
        ours = not above or fullname.startswith("azure.") or getattr(parent, "loader", None) is self
        if above == "azureml" and not ours:
            ours = importlib.machinery.PathFinder.find_spec("azureml.core", path) is None
        if not ours or not self.has(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its names."""
        whole = module.__name__
        if whole in ("entry_script", "azureml_user.parallel_run"):
            module.EntryScript = EntryScript  # type: ignore[attr-defined]
        if whole.partition(".")[0] == "azureml":
            module.__getattr__ = _found_in(whole)  # type: ignore[method-assign]
        if whole in BLOBS:
            module.__getattr__ = names_by(  # type: ignore[method-assign]
                lambda name: getattr(_storage(), name)
            )

    def take_over(self, name: str) -> None:
        """Turn a module loaded from a file into a stand-in, so that its submodules are found."""
        module = sys.modules[name]
        module.__spec__ = importlib.machinery.ModuleSpec(name, self, is_package=True)
        self.exec_module(module)


class AskedFirst(importlib.abc.MetaPathFinder):
    """Has `Run` and `Model` of the real ``azureml.core`` ask ours first, which know the job."""

    def __init__(self, ours: Callable[[str], Any]) -> None:
        self._ours = ours
        """Returns our class of a name."""

    def install(self) -> None:
        """Stand before all finders; what is imported already is changed at once."""
        sys.meta_path.insert(0, self)
        for name in REAL:
            if name in sys.modules:
                self._change(sys.modules[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module of `REAL` where it is installed."""
        if fullname not in REAL:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                self._change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _change(self, module: types.ModuleType) -> None:
        name = REAL[module.__name__]
        real = getattr(module, name)
        (_change_run if name == "Run" else _change_model)(real, self._ours)


def _change_run(real: Any, ours: Callable[[str], Any]) -> None:
    real_context = real.get_context

    def get_context(*words: Any, **given: Any) -> Any:
        """Return the run of the step; outside of one, what the real package has."""
        if "DASKPRS_RUN" not in os.environ:
            return real_context(*words, **given)
        OwnRun.real_context = staticmethod(real_context)
        return ours("Run").get_context(*words, **given)

    real.get_context = staticmethod(get_context)


def _change_model(real: Any, ours: Callable[[str], Any]) -> None:
    real_path = real.get_model_path

    def get_model_path(model_name: str, version: Any = None, _workspace: Any = None) -> Any:
        """Return the path of a model that the job knows, else of one that the package finds."""
        try:
            return ours("Model").get_model_path(model_name, version)
        except FileNotFoundError as unknown:
            try:
                return real_path(model_name, version, _workspace)
            except Exception as error:  # the package asks Azure: our error has the next step
                raise unknown from error

    real.get_model_path = staticmethod(get_model_path)


def install() -> ScriptModules:
    """Install the finder behind all others, and have the real package ask us first."""
    finder = ScriptModules()
    sys.meta_path.append(finder)
    AskedFirst(NAMES.__getitem__).install()
    return finder


def installed() -> ScriptModules:
    """Return the finder of this process, a command's, and install it at the first call."""
    finder = next((one for one in sys.meta_path if isinstance(one, ScriptModules)), None)
    if finder is None:
        stand_ins.install()
        finder = install()
    return finder


def stands_for(name: str) -> bool:
    """Say whether a module has a stand-in."""
    return name in (*SCRIPT_MODULES, stand_ins.OWN) or name.startswith("azureml.")


def has(name: str, attribute: str) -> bool:
    """Say whether a stand-in has an attribute; in ``azureml`` lower-case names are modules."""
    if name.partition(".")[0] == "azureml":
        return attribute in NAMES or attribute.islower()
    if name in BLOBS:
        return hasattr(_storage(), attribute)
    if name == stand_ins.OWN:
        return attribute in stand_ins.NAMES
    return attribute == "EntryScript" or f"{name}.{attribute}" in SCRIPT_MODULES


def lacks(name: str) -> bool:
    """Say whether one of our classes does not have an attribute, as in ``Model.list``."""
    owner, _, attribute = name.partition(".")
    if owner == "Run" and attribute in vars(OwnRun(None)):
        return False
    return owner in NAMES and not hasattr(NAMES[owner], attribute)


def _storage() -> Any:
    return importlib.import_module(".blob_storage", __package__)  # few scripts need it


def _found_in(module: str) -> Callable[[str], Any]:
    def found(name: str) -> Any:
        if name in NAMES:
            return NAMES[name]
        whole = f"{module}.{name}"
        raise _lacking(whole)

    return names_by(found)


def names_by(find: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names a function finds, but for Python's own."""

    def found(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return find(name)

    return found
