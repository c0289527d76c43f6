"""An interpreter of Python by its path: its environment's folder, and what it has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from os import PathLike

START_TIMEOUT_S = 60.0
TAIL_CHARS = 2000
OF_AN_INTERPRETER = {
    *("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__"),
    *("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
}
"""Variables that tell one interpreter where its modules are, and mislead another one."""
_LOOK = """
import os, sys
found = {"version": list(sys.version_info[:3]), "packages": {}, "error": ""}
found["parent"] = os.getppid()
if sys.version_info >= (3, 8):
    from importlib import metadata, util
    for name in ("numpy", "pandas", "polars", "pyarrow"):
        if util.find_spec(name) is not None:
            try:
                found["packages"][name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found["packages"][name] = ""
    if sys.argv[1:]:
        import traceback
        try:
            with open(sys.argv[1], "rb") as file:
                compile(file.read(), sys.argv[1], "exec")
        except (SyntaxError, ValueError):
            found["error"] = "".join(traceback.format_exception_only(*sys.exc_info()[:2]))
import json
sys.stdout.write("\\n" + json.dumps(found) + "\\n")
"""


class InterpreterFacts(NamedTuple):
    """The answers of an interpreter to questions about itself."""

    version: tuple[int, ...]
    packages: dict[str, str]
    """Versions of those that hold tables; empty text where a version is unknown."""
    error: str
    """Why it cannot compile the script; empty if it can."""
    is_child: bool
    """Whether it runs as the very process that was started, and not below another program."""


class NoInterpreter(Exception):  # noqa: N818 - it says what was found
    """A program that does not answer as an interpreter of Python does."""


def interpreter_at(place: str | PathLike[str]) -> str:
    """Return the absolute path of an interpreter; links stay, as environments are made of them.

    The place is an interpreter, the folder of an environment, or the name of a program on the PATH.
    Raise `NoInterpreter` where a folder has no interpreter, or the PATH no such program.
    """
    path = Path(place).expanduser()
    if os.path.isdir(path):  # noqa: PTH112 - it never raises
        inside = path / "bin" / "python"
        if not inside.exists():
            msg = f"the folder {path} has no bin/python, as environments of Python have"
            raise NoInterpreter(msg)
        path = inside
    elif os.sep not in str(place) and not os.path.exists(path):  # noqa: PTH110 - the same
        found = shutil.which(str(place))
        if found is None:
            msg = f"the PATH has no program {str(place)!r}"
            raise NoInterpreter(msg)
        path = Path(found)
    return os.path.abspath(path)  # noqa: PTH100 - `resolve` would leave the environment


def environment_of(
    python: str, base: Mapping[str, str], given: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables for an interpreter and its programs, as its ``activate`` sets them.

    What `base` tells another interpreter is left out, but for the variables that are `given`.
    """
    found = {
        name: value
        for name, value in base.items()
        if name not in OF_AN_INTERPRETER or name in given
    }
    programs = Path(python).parent
    home = programs.parent
    found["PATH"] = os.pathsep.join([str(programs), found.get("PATH", os.defpath)])
    if (home / "pyvenv.cfg").exists():
        found["VIRTUAL_ENV"] = str(home)
    elif (home / "conda-meta").is_dir():
        found["CONDA_PREFIX"], found["CONDA_DEFAULT_ENV"] = str(home), home.name
    return found


def facts_of(
    python: str, base: Mapping[str, str], *words: str, given: Mapping[str, str] | None = None
) -> InterpreterFacts:
    """Start an interpreter, and return what it says; `words` may be a script to compile.

    The variables of `given` are for this interpreter, and replace those of `base`. Raise
    `NoInterpreter` if it does not start, or does not answer.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the user's interpreter
            [python, "-c", _LOOK, *words],
            env=environment_of(python, {**base, **(given or {})}, given or ()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        facts = json.loads(done.stdout.splitlines()[-1])
        return InterpreterFacts(
            version=tuple(facts["version"]),
            packages=facts["packages"],
            error=facts["error"],
            is_child=facts["parent"] == os.getpid(),
        )
    except OSError as error:
        msg = f"it cannot be started: {error.strerror}"
        raise NoInterpreter(msg) from error
    except subprocess.TimeoutExpired:
        msg = f"it has not answered for {START_TIMEOUT_S:g} s"
        raise NoInterpreter(msg) from None
    except (ValueError, LookupError, TypeError):
        written = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        msg = f"it ends with returncode {done.returncode}, and does not answer as Python does"
        raise NoInterpreter(f"{msg}: {written[-TAIL_CHARS:]}" if written else msg) from None
