"""Stand-ins under the Python of daskprs.

They answer only where the real package is missing: the finder stands last in ``sys.meta_path``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from daskprs._agent.foreign.main import FOLDER
from daskprs._system.atomic_file import whole_file
from daskprs.azure._stand_ins.elsewhere import (
    SCRIPT_MODULES,
    SHARED,
    AskedFirst,
    ScriptModules,
    names_by,
)

if TYPE_CHECKING:
    from collections.abc import Collection

MODULES = (*SCRIPT_MODULES, "mltable")
SDK = "daskprs.azure.v1"
"""The module that stands in for ``azureml``; loaded only when a script imports from it."""
CLIENTS = "_restclient"
"""The package of Azure's clients below ``azureml``: its names can be imported, but not used."""


def _of_sdk(name: str) -> Any:
    return getattr(importlib.import_module(SDK), name)


class _Client:
    """Stands for a client of Azure's services, which cannot be reached from here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse the call; published scripts go on without it."""
        msg = f"azureml.{CLIENTS}: {self._name} is a client of Azure, which is not reached here."
        raise RuntimeError(msg)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _Client(f"{self._name}.{attribute}")


def _of_mltable(name: str) -> Any:
    if name == "load":
        from daskprs.azure._mltable.whole_table import (
            load,  # with pandas: most scripts only import us
        )

        return load
    msg = (
        f"mltable.{name}: the mltable package is not installed, and daskprs does not need it to "
        "read a table: give the path of the data to the job instead, or use mltable.load(path)."
    )
    raise AttributeError(msg)


class StandIns(ScriptModules):
    """Finds and makes the modules of `MODULES`."""

    def has(self, name: str) -> bool:
        """Say whether a module has a stand-in."""
        return stands_for(name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its names."""
        match module.__name__.split("."):
            case ["azureml", clients, *_] if clients == CLIENTS:
                module.__getattr__ = names_by(_Client)  # type: ignore[method-assign]
            case ["azureml", *_]:
                module.__getattr__ = names_by(_of_sdk)  # type: ignore[method-assign]
            case ["mltable"]:
                module.__getattr__ = _of_mltable  # type: ignore[method-assign]
            case _:
                super().exec_module(module)


def stands_for(name: str) -> bool:
    """Say whether a module has a stand-in."""
    return name in MODULES or name.startswith("azureml.")


def lacking() -> list[str]:
    """Return the packages that are not installed here, so that a stand-in is needed."""
    return [name for name in MODULES if "." not in name and not _is_installed(name)]


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and not isinstance(spec.loader, StandIns)


def has(name: str, attribute: str) -> bool:
    """Say whether a stand-in has an attribute; in ``azureml`` lower-case names are modules."""
    inner = f"{name}.{attribute}"
    if inner in MODULES or (stands_for(inner) and attribute.islower()):
        return True
    module = types.ModuleType(name)
    StandIns().exec_module(module)
    return hasattr(module, attribute) and not instead_of(attribute)


def instead_of(name: str) -> str:
    """Return what to write instead of a name of the SDK that is not built; empty for others."""
    found = getattr(importlib.import_module(SDK), name, None)
    return str(getattr(found, "__instead__", ""))


def install() -> StandIns:
    """Install the finder behind all others, and have the real package ask us first."""
    finder = StandIns()
    sys.meta_path.append(finder)
    AskedFirst(_of_sdk).install()
    return finder


def installed() -> StandIns:
    """Return the finder of this process, a command's, and install it at the first call."""
    return next((one for one in sys.meta_path if isinstance(one, StandIns)), None) or install()


TAKE_OVER = ".take_over(__name__)"
HERE = """\
from daskprs.azure._stand_ins import here as stand_ins
"""
FOLDERS = {"daskprs_script": FOLDER, "daskprs_stand_ins": f"{Path(__file__).parent}/"}
"""The packages that another interpreter needs, which does not have daskprs, and where they are."""
ELSEWHERE = f"""\
import importlib.util
import sys

before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
for name, folder in {FOLDERS!r}.items():
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder + "__init__.py", submodule_search_locations=[folder]
        )
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
from daskprs_stand_ins import elsewhere as stand_ins
sys.dont_write_bytecode = before
"""


def _instead(imports: str) -> str:
    """Return a module that stands for a package."""
    return f"{imports}\nstand_ins.installed(){TAKE_OVER}\n"


def _before(imports: str, then: str) -> str:
    """Return a module before a package that may be installed, and that has all of that package.

    What the package lacks, the finder has.
    """
    return (
        "from pkgutil import extend_path\n\n"
        "__path__ = extend_path(__path__, __name__)\n"
        f"try:\n{indent(imports, '    ')}"
        "except Exception:  # a program has started another interpreter\n    pass\n"
        f"else:\n    stand_ins.installed(){then}\n"
    )


def stand_in_folder(folder: Path, elsewhere: Collection[str] | None = None) -> Path:
    """Fill a folder for ``PYTHONPATH`` with stand-ins; other steps may already import from it.

    `elsewhere` has the packages that another interpreter lacks; the stand-ins are for that one.
    """
    imports = HERE if elsewhere is None else ELSEWHERE
    absent = lacking() if elsewhere is None else elsewhere
    texts = dict.fromkeys(absent, _instead(imports))
    for name in SHARED:  # also where it is absent: a program may start an interpreter that has it
        texts[name] = _before(imports, TAKE_OVER if name in absent else "")
    for name, text in texts.items():
        file = folder / name / "__init__.py"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(file, durable=False) as made:
                made.write(text.encode())
    return folder
