"""`pipeline`: a function that calls components as a pipeline."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from daskprs._suggest import nearest_of
from daskprs.azure.v2.component import LABELS, Component
from daskprs.azure.v2.entities import PipelineJobSettings
from daskprs.azure.v2.entity import plain, with_keys
from daskprs.azure.v2.node import PIPELINE, STEPS, Node
from daskprs.azure.v2.pipeline_job import PipelineJob
from daskprs.azure.v2.ports import (
    TYPES,
    Input,
    PipelineInput,
    StepOutput,
    refuse_method,
    signature_of,
)
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_A_JOB = (*LABELS, "experiment_name")


@with_keys(*OF_A_JOB, *PipelineJobSettings.keys())
def pipeline(
    func: Callable[..., Any] | None = None,
    *,
    non_pipeline_inputs: Iterable[str] = (),
    **keys: Any,
) -> Any:
    """Make a pipeline of a function that calls components and returns outputs of steps.

    Steps are called as the variables that the function keeps them in. The function is called
    while the pipeline is made: its parameters have no values then.

    Parameters
    ----------
    func
        The function, if the decorator is used without parentheses.
    name, version, display_name, description, experiment_name, tags
        Labels. Default: name and description of the function.
    default_datastore, continue_on_step_failure, force_rerun
        Settings of its jobs.
    compute, default_compute
        Without effect.
    non_pipeline_inputs
        Parameters that the function gets as values, to decide by them.

    Returns
    -------
    PipelineFunction
        Called, it returns a `PipelineJob`; called in the function of another pipeline, a step.

    """
    settings = {key: keys[key] for key in PipelineJobSettings.keys() if key in keys}  # noqa: SIM118
    labels = {key: keys.get(key) for key in OF_A_JOB}

    def decorated(function: Callable[..., Any]) -> PipelineFunction:
        return PipelineFunction(function, labels, settings, tuple(non_pipeline_inputs))

    return decorated if func is None else decorated(func)


class PipelineFunction:
    """A function as a pipeline; see `pipeline`."""

    def __init__(
        self,
        function: Callable[..., Any],
        labels: Mapping[str, Any],
        settings: Mapping[str, Any],
        as_values: tuple[str, ...],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        told = labels["description"] or inspect.getdoc(function)
        named = {"name": function.__name__, "display_name": function.__name__, "description": told}
        self._labels = {**labels, **{k: labels[k] or named[k] for k in named}}
        self._settings = settings
        self._signature = signature_of(function)
        self._as_values = as_values
        for one in as_values:
            if one not in self._signature.parameters:
                hint = nearest_of(one, [*self._signature.parameters])
                msg = f"non_pipeline_inputs: {function.__name__}() has no parameter {one!r}; {hint}"
                raise OptionError(msg)

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Return a job, or, in the function of another pipeline, a step."""
        try:
            values = {**self._inputs(), **self._signature.bind_partial(*args, **given).arguments}
        except TypeError as error:
            known = ", ".join(self._signature.parameters) or "none"
            msg = f"the pipeline {self._labels['name']!r}: {error}. Its inputs: {known}."
            raise OptionError(msg) from None
        component = self.build({name: values.pop(name, None) for name in self._as_values})
        if STEPS.get() is not None:
            return Node(component, values).entered()
        return PipelineJob(component, values, PipelineJobSettings(**self._settings))

    def _inputs(self) -> dict[str, Input]:
        """Return the parameters whose defaults are inputs."""
        defaults = {name: one.default for name, one in self._signature.parameters.items()}
        return {name: one for name, one in defaults.items() if isinstance(one, Input)}

    def build(self, values: Mapping[str, Any] | None = None) -> PipelineComponent:
        """Return the pipeline as a component."""
        declared, arguments = {}, {}
        for name, parameter in self._signature.parameters.items():
            if name in self._as_values:
                given = (values or {}).get(name)
                empty = parameter.default is inspect.Parameter.empty
                default = None if empty else parameter.default
                arguments[name] = default if given is None else given
            else:
                declared[name] = _declaration(parameter)
                arguments[name] = PipelineInput(name)
        with _steps() as steps:
            returned, local = _called(self._function, arguments)
        expected = [one for one in arguments.values() if isinstance(one, PipelineInput)]
        return PipelineComponent(self._labels, declared, _named(steps, local), returned, expected)

    @property
    def _pipeline_builder(self) -> PipelineFunction:
        """Itself, for notebooks that build the component so."""
        return self


class PipelineComponent(Component):
    """A pipeline as a component, made by a function."""

    def __init__(
        self,
        labels: Mapping[str, Any],
        inputs: Mapping[str, Any],
        steps: dict[str, Node],
        returned: Any,
        expected: Iterable[PipelineInput],
    ) -> None:
        if returned is not None and not isinstance(returned, Mapping):
            msg = (
                f"the pipeline {labels['name']!r} returns {returned!r}: return a dict with the "
                'names of its outputs, such as {"scores": step.outputs.scores}.'
            )
            raise OptionError(msg)
        self._refuse_no_output(labels["name"], returned or {})
        if not steps:
            msg = f"the pipeline {labels['name']!r} has no steps: call components in its function."
            raise OptionError(msg)
        outputs = {name: one.as_declared() for name, one in (returned or {}).items()}
        super().__init__(PIPELINE, {**labels, "inputs": inputs, "outputs": outputs})
        vars(self).update(steps=steps, _returned=dict(returned or {}), _expected=[*expected])
        self._refuse_foreign()

    @staticmethod
    def _refuse_no_output(pipeline: str, returned: Mapping[str, Any]) -> None:
        """Refuse a value that is not an output of a step, and an output that is returned twice."""
        seen: dict[int, str] = {}
        for name, one in returned.items():
            refuse_method(one, f"the pipeline {pipeline!r}, {name}")
            if not isinstance(one, StepOutput):
                msg = (
                    f"the pipeline {pipeline!r} returns {one!r} as {name!r}, not an output of a "
                    f"step: return step.outputs.NAME."
                )
                raise OptionError(msg)
            other = seen.setdefault(id(one), name)
            if other != name:
                msg = f"the pipeline {pipeline!r} returns one output as {other!r} and as {name!r}."
                raise OptionError(msg)

    def _refuse_foreign(self) -> None:
        """Refuse what belongs to another pipeline, whose name may mean another value here."""
        own = [*map(id, vars(self)["_expected"]), *map(id, self.steps.values())]
        used = {
            f"{k}.inputs.{n}": p.value for k, s in self.steps.items() for n, p in s.inputs.items()
        }
        for way, one in {**used, **vars(self)["_returned"]}.items():
            source = one.step if isinstance(one, StepOutput) else one
            if isinstance(one, PipelineInput | StepOutput) and id(source) not in own:
                told = (
                    f"the output {one.port_name!r} of a step"
                    if isinstance(one, StepOutput)
                    else f"the input {one.name!r}"
                )
                msg = (
                    f"the pipeline {self.name!r}, {way}: {told} of another pipeline. Give it to "
                    "this pipeline by a parameter of its function, and use the parameter."
                )
                raise OptionError(msg)

    def returns_value(self, output: str) -> bool:
        """Say whether an output is a value of one of the steps, at any depth."""
        one = vars(self)["_returned"].get(output)
        is_of_step = isinstance(one, StepOutput) and one.step is not None
        return is_of_step and one.step.component.returns_value(one.port_name)

    def as_job(self) -> dict[str, Any]:
        """Return the steps."""
        self._refuse_foreign()  # steps may have been given other inputs since
        promoted = {id(one): name for name, one in vars(self)["_returned"].items()}
        return {"jobs": {name: step.values(promoted) for name, step in self.steps.items()}}

    def values(self) -> dict[str, Any]:
        """Return the component as plain values."""
        found = super().values()
        found.pop("experiment_name", None)
        return {**found, **self.as_job()}


# ---- how the function's steps get their names ----


@contextmanager
def _steps() -> Iterator[list[Node]]:
    """Collect the steps that are made in a block."""
    found: list[Node] = []
    token = STEPS.set(found)
    try:
        yield found
    finally:
        STEPS.reset(token)


def _called(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Call a function, and return its result and the variables that it had at its end."""
    code = inspect.unwrap(function).__code__
    local: dict[str, Any] = {}

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            local.clear()
            local.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        return function(**arguments), local
    finally:
        sys.setprofile(before)


def _named(steps: Iterable[Node], local: Mapping[str, Any]) -> dict[str, Node]:
    """Return steps by name: set by hand, else that of the variable, else that of the component.

    The name of a `parallel_run_function` comes before that of a variable, as in the original.
    """
    variables = {id(value): name for name, value in local.items() if isinstance(value, Node)}
    taken: set[str] = set()
    for step in steps:
        if step.name is not None and step.name in taken:
            msg = f"two steps are called {step.name!r}. Give each a name of its own."
            raise OptionError(msg)
        own = step.component.name if step.component.kind == "parallel" else None
        if step.name is None and own is None:
            step.name = variables.get(id(step))
        taken |= {step.name} if step.name else set()
    for step in steps:
        step.name = step.name or _free_name(step, taken)
        taken.add(step.name)
    return {str(step.name): step for step in steps}


def _free_name(step: Node, taken: Iterable[str]) -> str:
    """Return a name by the step's component that no other step has."""
    plain = re.sub(r"\W+", "_", step.component.name or step.component.kind).lower()
    at, name = 0, plain
    while name in taken:
        at += 1
        name = f"{plain}_{at}"
    return name


def _declaration(parameter: inspect.Parameter) -> dict[str, Any]:
    """Return how the pipeline declares an input: by annotation and default of a parameter."""
    annotation, default = parameter.annotation, parameter.default
    default = plain(default) if isinstance(default, np.generic) else default
    declared: dict[str, Any] = {}
    if isinstance(annotation, Input):
        declared = annotation.values()
    elif isinstance(annotation, type) and annotation in TYPES:
        declared = {"type": TYPES[annotation]}
    if default is None:
        declared["optional"] = True
    elif isinstance(default, Input):
        declared.setdefault("type", default.type)
    elif default is not inspect.Parameter.empty:
        declared.setdefault("type", TYPES.get(type(default), "string"))
        declared["default"] = default
    return declared
