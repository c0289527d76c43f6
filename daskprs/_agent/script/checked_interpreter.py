"""The interpreter that an entry script is to run under, checked before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.foreign.main import OLDEST, needed_package
from daskprs._system.interpreter import NoInterpreter, facts_of
from daskprs.errors import Option, OptionError, ScriptError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._options.run_options import RunOptions
    from daskprs._system.interpreter import InterpreterFacts


def check_interpreter(
    options: RunOptions, script: CheckedScript, unit: str, *, may_be_elsewhere: bool
) -> None:
    """Reject an interpreter that cannot run the script over such mini-batches.

    An interpreter that this machine does not have is checked where agents start, if they
    `may_be_elsewhere`. Raise `OptionError` if the interpreter is missing, does not start, is too
    old, or lacks a package, and `ScriptError` if it cannot compile the script.
    """
    if options.python is None:
        return
    python = str(options.python)
    given = Option("python", python)
    if script.pickled is not None:
        msg = (
            f": {script.name} is an object of this process, and another interpreter cannot load "
            "it. Put it into a file, and give its path."
        )
        raise OptionError(given, msg)
    place = Path(python)
    if not os.path.exists(place):  # noqa: PTH110 - it never raises
        if may_be_elsewhere:
            return
        raise OptionError(given, ": this file does not exist.")
    facts = _facts(place, script, options.environment_variables)
    package = needed_package(unit, options.batch_format)
    if package is not None and package not in facts.packages:
        raise OptionError(
            given,
            f": it has no {package}, which rows need with ",
            Option("batch_format", options.batch_format),
            f". Install {package} there, or give the script the paths of files, by ",
            Option("input_type", "files"),
            ".",
        )


def _facts(
    place: Path, script: CheckedScript, variables: Mapping[str, str] | None
) -> InterpreterFacts:
    """Return the facts of an interpreter, which has compiled the script for that."""
    given = Option("python", str(place))
    if not os.access(place, os.X_OK) or not place.is_file():
        raise OptionError(given, ": it is not a program, and cannot be started.")
    files = [] if script.root is None or script.file is None else [str(script.root / script.file)]
    try:
        facts = facts_of(str(place), os.environ, *files, given=variables)
    except NoInterpreter as error:
        raise OptionError(given, f": {error}.") from error
    if facts.version < OLDEST:
        version, oldest = (".".join(map(str, one)) for one in (facts.version, OLDEST))
        raise OptionError(given, f": it is Python {version}, and scripts need {oldest} or newer.")
    if not facts.is_child:
        msg = (
            ": this program starts the interpreter as a process below its own. Agents have to own "
            "the process that they start: begin the wrapper's last line with exec."
        )
        raise OptionError(given, msg)
    if facts.error:
        msg = f"the entry script cannot be compiled by {place}.\n{facts.error.rstrip()}"
        raise ScriptError(msg)
    return facts
