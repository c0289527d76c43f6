"""The entry script in its agent, and what it may ask about its process and its mini-batches."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudpickle import cloudpickle

from daskprs._agent.child.call_lines import mark_of_call
from daskprs._agent.child.import_cost import ImportCost, measured
from daskprs._agent.child.package_folders import add_packages
from daskprs._agent.child.wrapped_functions import name_in_main
from daskprs._agent.foreign.entry_script import (
    NO_TOOLS,
    CallTools,
    EntryScript,
    begin_script,
    do_nothing,
    import_script,
)
from daskprs._agent.foreign.run_call import RunCall, signature_of
from daskprs._agent.foreign.script_process import threads_left
from daskprs._agent.foreign.stand_ins import LateStandIns
from daskprs._agent.protocol.messages import INLINE
from daskprs._core.stages import POSTPROCESS, PREPROCESS, RUN
from daskprs._output.rows.own_classes import classes_come_from
from daskprs._system import masks
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.protocol.messages import JobSpec, ProcessSpec, ScriptSpec
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Range
    from daskprs._core.stages import Stages

IN_ORDER = (PREPROCESS, RUN, POSTPROCESS)
INIT_OF_STAGES = "init_preprocess"
"""The function of a script that stands for `init` in the processes of stages beside `run`."""


class ScriptWithFunctions(NamedTuple):
    """An entry script by value, and functions of stages that the caller gave beside it."""

    script: Any
    functions: dict[str, Any]
    """By stage."""


def context_parts(mini_batch: MiniBatch, piece: Range | None) -> tuple[Any, ...]:
    """Return the parts of the context of a mini-batch, or of a piece of it."""
    key = dict(mini_batch.partition_key)
    place = mini_batch.label, mini_batch.identity, mini_batch.size_bytes
    return mini_batch.index, key, mini_batch.row_lower_bound, place, piece


class ScriptFunctions:
    """The functions `init`, `run` and `shutdown` of an imported script; only `run` is required."""

    def __init__(
        self,
        script: Any,
        name: str,
        *,
        any_second: bool = False,
        stages: Stages | None = None,
        is_of_stage: bool = False,
        cost: str = "",
    ) -> None:
        given = script.functions if isinstance(script, ScriptWithFunctions) else {}
        script = script.script if isinstance(script, ScriptWithFunctions) else script
        run = script if inspect.isfunction(script) else getattr(script, "run", None)
        if run is None and callable(script):
            run = script
        if not callable(run):
            msg = f"{name} has no function run(mini_batch)."
            raise ScriptError(msg)
        named = {} if stages is None else stages.functions
        calls = {
            stage: RunCall(
                given.get(stage) or _function(script, one, name), any_second=any_second, name=one
            )
            for stage, one in named.items()
        }
        calls[RUN] = RunCall(run, any_second=any_second)
        if cost:
            from daskprs._agent.child.cost_call import COST, CostCall

            function = given.get(COST) or _function(script, cost, name)
            calls[RUN] = CostCall(function, any_second=any_second, name=cost)
        self._calls = {stage: calls[stage] for stage in IN_ORDER if stage in calls}
        self.is_surely_async = returns_coroutines(run, surely=True)
        """Whether `run` is a coroutine function as it stands."""
        self.stages = tuple(self._calls)
        self.counts_inputs = getattr(script, "__counts_inputs__", False)
        """Whether the items of a mini-batch succeed with its call, however many rows there are."""
        self.init: Callable[[], Any] = getattr(script, "init", None) or do_nothing
        self.imports = ImportCost()
        self.shutdown: Callable[[], Any] = getattr(script, "shutdown", None) or do_nothing
        own_init = getattr(script, INIT_OF_STAGES, None) if named or cost else None
        if own_init is not None and (is_of_stage or cost):
            self.init, self.shutdown = own_init, do_nothing
            own_init = None
        elif is_of_stage:
            self.init = functools.partial(_init_beside_run, self.init)
        self._prepare: Callable[[], Any] | None = own_init

    def prepare(self) -> Any:
        """Call `init_preprocess`, once, in a process that had `init` and now runs all stages.

        Return what it returned: the caller awaits a coroutine.
        """
        prepare, self._prepare = self._prepare, None
        return None if prepare is None else prepare()

    def run(
        self,
        data: Any,
        mini_batch: MiniBatch,
        piece: Range | None = None,
        stage: str = RUN,
        tools: CallTools = NO_TOOLS,
    ) -> Any:
        """Call the function of a stage, with the mini-batch's context if it asks for one."""
        return self._calls[stage](data, context_parts(mini_batch, piece), tools)

    def cpu_s(self) -> float:
        """Return the seconds of processor time that the script has used so far."""
        return time.process_time()

    def threads_left(self) -> list[str]:
        """Return the names of the threads of the script that delay the exit."""
        return threads_left()

    def wait(self) -> None:
        """Return at once: Python itself waits for threads of the script in this process."""


def _init_beside_run(init: Callable[[], Any]) -> Any:
    """Call `init` in a process that never calls `run`, and say so if it fails."""
    try:
        return init()
    except Exception as error:
        error.add_note(
            "init() was called in a process of preprocess or postprocess, which sees no GPU. If "
            f"the script has {INIT_OF_STAGES}(), that is called there instead."
        )
        raise


def _function(script: Any, function: str, name: str) -> Any:
    """Return the function of a stage by its name in the script."""
    found = getattr(script, function, None)
    if not callable(found):
        msg = f"{name} has no function {function}(mini_batch)."
        raise ScriptError(msg)
    return found


def returns_coroutines(run: Callable[..., Any], *, surely: bool = False) -> bool:
    """Say whether a callable is a coroutine function, also one in a partial, or in a class.

    So is one that a decorator has wrapped, unless this has to be sure: the decorator may have made
    a plain function of it, or one that passes the coroutine on.
    """
    while isinstance(run, functools.partial):
        run = run.func
    call = run if inspect.isroutine(run) else getattr(run, "__call__", run)  # noqa: B004 - it is called
    return inspect.iscoroutinefunction(call if surely else inspect.unwrap(call))


def takes_one(run: Callable[..., Any]) -> bool:
    """Say whether a function can be called with the mini-batch, alone or with its context."""
    signature = signature_of(run)
    return signature is None or any(_fits(signature, count) for count in (1, 2))


def _fits(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def load_entry_script(job: JobSpec, process: ProcessSpec) -> ScriptFunctions:
    """Make this process one that runs the script, and import it."""
    script = job.script
    masks.install(job.mask)
    EntryScript.install(**description_of(job, process), masked=masks.masked, mark=mark_of_call)
    for one in job.stand_ins:
        LateStandIns(one.modules, functools.partial(_install, one.package)).install()
    classes_come_from(script.source_directory)
    add_packages(script)
    begin_script(script.name, job.arguments, job.logging_level, script.source_directory)
    imported, cost = measured(functools.partial(_imported, script))
    if script.pickled is not None and job.start_method != INLINE:
        beside = imported.functions.values() if isinstance(imported, ScriptWithFunctions) else ()
        for one in (getattr(imported, "script", imported), *beside):
            name_in_main(one)
    functions = ScriptFunctions(
        imported,
        script.name,
        any_second=script.any_second,
        stages=job.stages,
        is_of_stage=process.is_of_stage,
        cost=script.cost,
    )
    functions.imports = cost
    return functions


def description_of(job: JobSpec, process: ProcessSpec) -> dict[str, Any]:
    """Return the arguments of `EntryScript.install` for an agent."""
    return {
        "log_file": process.entry_script_log,
        "output_dir": job.output_dir,
        "working_dir": process.working_dir,
        "name": process.name,
        "side_inputs": {side.name: side.path for side in job.side_inputs},
        "level": job.logging_level,
    }


def profile_of(job: JobSpec, process: ProcessSpec) -> dict[str, Any] | None:
    """Return the arguments of `RunProfile`; None where `run` is not profiled."""
    if job.profiling_module is None:
        return None
    file = process.profile or ""
    return {"module": job.profiling_module, "file": file, "only_at_end": process.far}


def _install(package: str) -> None:
    """Install the stand-ins of a plugin, whose package is installed here."""
    importlib.import_module(f"{package}.here").install()


def _loaded_anew(pickled: bytes) -> Any:
    """Return the object of a pickle with classes of its own.

    cloudpickle gives a process that has pickled a class this very class again, and puts the methods
    of the pickle into it. In the caller's process, that would be the caller's class.
    """
    classes = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID  # noqa: SLF001 - no public way
    known = dict(classes)
    classes.clear()
    try:
        return pickle.loads(pickled)
    finally:
        classes.update(known)


def _imported(script: ScriptSpec) -> Any:
    if script.pickled is not None:
        script.know_lines()
        loaded = _loaded_anew(script.pickled)
        if isinstance(loaded, ScriptWithFunctions):
            return loaded._replace(script=_made(loaded.script))
        return _made(loaded)
    if script.module is None and script.file is None:
        msg = f"{script.name}: neither a file nor an object came with the job."
        raise ScriptError(msg)
    return import_script(script.module, script.file or "")


def _made(script: Any) -> Any:
    return script() if inspect.isclass(script) else script
