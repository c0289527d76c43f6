"""The entry script in its agent: imported once, called for each mini-batch."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.child import stand_ins
from daskprs.agent.child.context import MiniBatchContext
from daskprs.agent.child.public import EntryScript
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.agent.protocol.messages import JobSpec, ProcessSpec, ScriptSpec
    from daskprs.core.mini_batch import MiniBatch


class ScriptFunctions:
    """A script that is imported: `init`, `run` and `shutdown`, there or not."""

    def __init__(self, script: Any, name: str) -> None:
        run = script if inspect.isfunction(script) else getattr(script, "run", None)
        if run is None and callable(script):
            run = script
        if not callable(run):
            msg = f"{name} has no function run(mini_batch)."
            raise ScriptError(msg)
        self._run: Callable[..., Any] = run
        self._init = getattr(script, "init", None)
        self._shutdown = getattr(script, "shutdown", None)
        self._with_context = takes_two(run)

    def init(self) -> None:
        """Call `init`, if there is one."""
        if self._init is not None:
            self._init()

    def run(self, mini_batch: Any, context: MiniBatchContext) -> Any:
        """Call `run`, with the context if it takes one."""
        if self._with_context:
            return self._run(mini_batch, context)
        return self._run(mini_batch)

    def shutdown(self) -> None:
        """Call `shutdown`, if there is one."""
        if self._shutdown is not None:
            self._shutdown()

    def context(self, mini_batch: MiniBatch) -> MiniBatchContext:
        """Return the context of a mini-batch."""
        return MiniBatchContext.of(mini_batch)


def takes_two(run: Callable[..., Any]) -> bool:
    """Say whether a function can take two positional arguments, whatever their names."""
    try:
        inspect.signature(run).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def takes_one(run: Callable[..., Any]) -> bool:
    """Say whether a function can be called with the mini-batch, alone or with its context."""
    try:
        inspect.signature(run).bind(None)
    except TypeError:
        return takes_two(run)
    except ValueError:  # a builtin without a signature
        return True
    return True


def load_entry_script(job: JobSpec, process: ProcessSpec) -> ScriptFunctions:
    """Make this process one that runs the script, and import it."""
    script = job.script
    EntryScript.install(job, process)
    stand_ins.install()
    sys.argv[:] = [script.name, *job.arguments]
    logging.basicConfig(
        stream=sys.stdout,
        level=job.logging_level,
        format="%(asctime)s|%(name)s|%(levelname)s|%(process)d|%(message)s",
        force=True,
    )
    if script.source_directory is not None:
        sys.path.insert(0, script.source_directory)
    return ScriptFunctions(_imported(script), script.name)


def _imported(script: ScriptSpec) -> Any:
    if script.pickled is not None:
        loaded = pickle.loads(script.pickled)
        return loaded() if inspect.isclass(loaded) else loaded
    if script.module is not None:
        return importlib.import_module(script.module)
    if script.file is None:
        msg = f"{script.name}: neither a file nor an object came with the job."
        raise ScriptError(msg)
    name = Path(script.file).stem
    spec = importlib.util.spec_from_file_location(name, script.file)
    if spec is None or spec.loader is None:
        msg = f"{script.file} is not a Python file."
        raise ScriptError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
