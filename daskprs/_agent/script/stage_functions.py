"""The functions of stages as the caller gives them: names in the script, or functions beside it."""

from __future__ import annotations

import inspect
import os
import types
from typing import TYPE_CHECKING, Any

from daskprs._agent.child.cost_call import COST
from daskprs._agent.child.entry_script import ScriptWithFunctions, takes_one
from daskprs._agent.script.checked_script import CheckedScript
from daskprs._agent.script.checked_source import ANY_NAME
from daskprs._core.stages import name_of
from daskprs._suggest import did_you_mean
from daskprs.errors import Option, ScriptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def with_functions(script: Any, functions: Mapping[str, Any]) -> Any:
    """Return a script with the functions that the caller gave beside it; names change nothing.

    Raise `ScriptError` for a function beside a script that is a file, and for one that takes no
    mini-batch.
    """
    if isinstance(script, CheckedScript):
        return script
    is_file = isinstance(script, (str, os.PathLike, types.ModuleType))
    for stage, name in functions.items():
        if isinstance(name, str) and not is_file and not callable(getattr(script, name, None)):
            raise _missing(stage, name, name_of(script), dir(script))
    given = {stage: one for stage, one in functions.items() if not isinstance(one, str)}
    for stage, one in given.items():
        shown = f"{Option(stage)}: {name_of(one)}()"
        if is_file:
            msg = (
                f"{shown} is given as a function, and the script is a file. Put the function into "
                f"the script, and give its name: {Option(stage, name_of(one))}."
            )
            raise ScriptError(msg)
        if stage == COST and inspect.iscoroutinefunction(one):
            msg = f"{shown} is an async function, which is never awaited. Make it a plain one."
            raise ScriptError(msg)
        if not takes_one(one):
            msg = f"{shown} must take one positional argument, or that and the context."
            raise ScriptError(msg)
    return ScriptWithFunctions(script, given) if given else script


def refuse_missing_functions(script: CheckedScript, functions: Mapping[str, Any]) -> None:
    """Refuse a name that the text of a script in a file does not have."""
    for stage, name in functions.items():
        if script.pickled is None and isinstance(name, str) and not {name, ANY_NAME} & script.names:
            raise _missing(stage, name, script.name, script.names)


def refuse_missing_cost(script: CheckedScript, name: str, columns: Iterable[str]) -> None:
    """Refuse the name of a cost that neither the input has as a column nor the script has."""
    known = script.functions if script.pickled is not None else script.names
    if not {name, ANY_NAME} & known:
        near = did_you_mean(name, [*columns, *known])
        given = Option("mini_batch_cost", name)
        msg = f"{given}: the input has no such column, and {script.name} no such function.{near}"
        raise ScriptError(msg)


def _missing(stage: str, name: str, script: str, known: Iterable[str]) -> ScriptError:
    near = did_you_mean(name, known)
    return ScriptError(f"{Option(stage, name)}: {script} has no function of that name.{near}")
