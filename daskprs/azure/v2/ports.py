"""Inputs and outputs: `Input`, `Output`, and those of steps and of pipelines."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from daskprs._suggest import nearest_of
from daskprs.azure._pipelines.forms import InputForm, OutputForm
from daskprs.azure._pipelines.values import takes_path
from daskprs.azure.v2.entity import Entity, Expression, plain
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.azure.v2.node import Node

TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
"""Types of values, by the names that files have for them."""
P = TypeVar("P", bound=Entity)


class Input(Entity, form=InputForm):
    """An input: a path, or what a component takes.

    Parameters
    ----------
    type : str
        ``"uri_folder"`` (default), ``"uri_file"``, ``"mltable"``, ``"string"``, ``"integer"``, ….
    path : path, optional
        A local path, a reference such as ``"azureml:name:1"``, or a URL whose place is known.
    default, optional, min, max, enum
        What an input without a value is, and which values are allowed.
    mode, description : str, optional
        Without effect: data is read in place.

    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"path"})
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"dataset", "file", "folder"})

    type: str | None = "uri_folder"


class Output(Entity, form=OutputForm):
    """An output: a place, or what a component makes.

    Parameters
    ----------
    type : str
        ``"uri_folder"`` (default), ``"uri_file"``, ``"mltable"``, ….
    path : path, optional
        Where the output goes. Default: the folder of the run.
    mode, description, name, version : str, optional
        Without effect: data is written in place, and no asset is registered.

    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"path"})

    type: str | None = "uri_folder"


def as_output(name: str, value: Any) -> Output:
    """Return an output; refuse another value, with the name of the output."""
    if not isinstance(value, Output):
        msg = f"the output {name!r} has to be an Output(type=…, path=…), not {value!r}."
        raise OptionError(msg)
    return value


class PipelineInput(Expression):
    """A parameter of a pipeline's function, while the function runs: a name, not yet a value."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        """Return the expression that files have for the input."""
        return f"${{{{parent.inputs.{self.name}}}}}"

    def __bool__(self) -> bool:
        """Refuse a decision that would be made before there is a value."""
        msg = (
            f"the input {self.name!r} has no value while the pipeline is made, so the function "
            f"cannot decide by it. To decide: @pipeline(non_pipeline_inputs=[{self.name!r}])."
        )
        raise OptionError(msg)

    def __eq__(self, other: object) -> bool:
        """Refuse a comparison, whose outcome would decide without a value."""
        return self is other or bool(self)

    __hash__ = object.__hash__


class StepOutput(Output):
    """An output of a step: what other steps read, with settings of its own."""

    type: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._step: Node | None = None
        self._port = ""
        self._declared: Mapping[str, Any] = {}

    @classmethod
    def of(cls, step: Node, port: str, declared: Mapping[str, Any]) -> StepOutput:
        """Return the output of a step that its component declares."""
        self = cls()
        self._step, self._port, self._declared = step, port, declared
        return self

    @property
    def step(self) -> Node | None:
        """The step that writes the output."""
        return self._step

    @property
    def port_name(self) -> str:
        """The name of the output."""
        return self._port

    def __str__(self) -> str:
        """Return the expression that files have for the output."""
        if self._step is None or self._step.name is None:
            msg = (
                f"the output {self._port!r} belongs to a step without a name: steps have names "
                "when the function of their pipeline has returned. Give the output to an input of "
                "another step, rather than writing it into a text."
            )
            raise OptionError(msg)
        return f"${{{{parent.jobs.{self._step.name}.outputs.{self._port}}}}}"

    def as_declared(self) -> dict[str, Any]:
        """Return the output as one of the pipeline: what the component declares, and settings."""
        own = self.values()
        own.pop("name", None)
        return {"type": self._declared.get("type") or "uri_folder", **own}


class GivenInput(Input):
    """A value that a step or a pipeline is given, with settings of its own."""

    type: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._value: Any = None

    @classmethod
    def of(cls, given: Any, declared: Mapping[str, Any], owner: str) -> GivenInput:
        """Return an input of the given value; refuse what is none."""
        refuse_method(given, owner)
        self = cls()
        if isinstance(given, GivenInput) and given.value is not None:
            given = given.value
        given = plain(given) if isinstance(given, np.generic) else given
        if isinstance(given, str | os.PathLike) and takes_path(declared.get("type")):
            given = Input(type=declared["type"], path=given)
        if isinstance(given, Input):
            self.take(given)
        elif given is None or isinstance(given, PipelineInput | StepOutput | str | int | float):
            self._value = given
        else:
            msg = (
                f"{owner}: {given!r} is not an input: give text, a number, an Input, an input of "
                "the pipeline, or an output of a step."
            )
            raise OptionError(msg)
        return self

    @property
    def value(self) -> Any:
        """The value, unless the input is a path."""
        return self._value

    @property
    def is_given(self) -> bool:
        """Whether there is a value."""
        return self._value is not None or self.path is not None or self.default is not None

    def written(self) -> Any:
        """Return the input as a file has it; None without a value."""
        own = self.values()
        value = self._value
        if isinstance(value, PipelineInput | StepOutput):
            value = str(value)
        if value is None:
            return own if self.is_given else None
        return {**own, "path": value} if own else value


class Ports(Mapping[str, P], Generic[P]):
    """Inputs or outputs by name, as attributes and as items."""

    def __init__(self, owner: str, ports: dict[str, P], made: Callable[[str, Any], P]) -> None:
        vars(self).update(_owner=owner, _ports=ports, _made=made)

    def __getitem__(self, name: str) -> P:
        self._refuse_unknown(name)
        port: P = vars(self)["_ports"][name]
        return port

    def __setitem__(self, name: str, value: Any) -> None:
        self._refuse_unknown(name)
        vars(self)["_ports"][name] = vars(self)["_made"](name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self)["_ports"])

    def __len__(self) -> int:
        return len(vars(self)["_ports"])

    def __getattr__(self, name: str) -> P:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        """Return the names, for completion."""
        return [*self]

    def _refuse_unknown(self, name: str) -> None:
        ports, owner = vars(self)["_ports"], vars(self)["_owner"]
        if name not in ports:
            msg = f"{owner} has no {name!r}; {nearest_of(name, [*ports])}"
            raise NoPortError(msg)


def refuse_method(given: Any, owner: str) -> None:
    """Refuse a method of ports, and say how to write the port that has its name."""
    ports, name = getattr(given, "__self__", None), getattr(given, "__name__", "")
    if isinstance(ports, Ports):
        kind = vars(ports)["_owner"].split()[-1].rstrip(":")
        msg = f'{owner}: {kind}.{name} is a method of {kind}: write {kind}["{name}"].'
        raise OptionError(msg)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with its annotations as objects where they are known."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a name that is imported for a type checker alone
        return inspect.signature(function)


class NoPortError(AttributeError, KeyError):
    """A port that is not there, whichever way it was asked for."""

    __str__ = AttributeError.__str__
