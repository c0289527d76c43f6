"""An object as bytes that an agent can load: by value, unless the agent can import it."""

from __future__ import annotations

import site
import sys
import sysconfig
import types
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from collections.abc import Iterator


def pickled_object(script: Any, name: str) -> bytes:
    """Return cloudpickle's bytes of an entry script.

    Modules of the standard library and of installed packages travel by name; everything else (a
    notebook, a module beside the caller's script) by value, since agents do not have the caller's
    import path.

    Raises
    ------
    ScriptError
        When something in it cannot be pickled.

    """
    try:
        with _own_modules_by_value():
            pickled: bytes = cloudpickle.dumps(script)
    except Exception as error:
        msg = (
            f"{name} cannot be sent to the agents: {type(error).__name__}: {error}. Make what it "
            "holds (a lock, a connection, an open file) in init(), or put the script into a file."
        )
        raise ScriptError(msg) from error
    return pickled


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    registered = []
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and _is_own(module):
            try:
                cloudpickle.register_pickle_by_value(module)
            except ValueError:
                continue
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            with suppress(ValueError):  # another thread has done it meanwhile
                cloudpickle.unregister_pickle_by_value(module)


_PACKAGES = {"site-packages", "dist-packages"}
_INSTALLED = tuple(
    str(Path(path).resolve())
    for path in (
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(Path(__file__).parents[2]),
    )
)


def _is_own(module: types.ModuleType) -> bool:
    """Say whether a module is the caller's: it has a file, and that is not an installed one."""
    file: str | None = getattr(module, "__file__", None)
    if not file or module.__name__ == "__main__":
        return False
    path = Path(file).resolve()
    if not _PACKAGES.isdisjoint(path.parts):
        return False
    return not str(path).startswith(_INSTALLED)
