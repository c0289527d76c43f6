"""`PipelineJob`: a pipeline with values for its inputs, which can be run or written as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.azure._pipelines.forms import InputForm
from daskprs.azure._pipelines.values import KINDS, Binding, wrong_value
from daskprs.azure._yaml_files.document import Document
from daskprs.azure.v2.entities import PipelineJobSettings
from daskprs.azure.v2.entity import Written, plain
from daskprs.azure.v2.node import PIPELINE, bound_inputs
from daskprs.azure.v2.ports import Output, Ports, as_output
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.v2.component import Component
    from daskprs.azure.v2.node import Node

RULES = ("min", "max", "enum")
OUTPUT_KEYS = ("type", "path", "mode", "description")
KNOWN = (
    "component",
    "name",
    "display_name",
    "description",
    "experiment_name",
    "tags",
    "properties",
    "compute",
    "settings",
    "jobs",
    "inputs",
    "outputs",
)


class PipelineJob(Written):
    """A pipeline with values for its inputs.

    Attributes
    ----------
    name : str or None
        The name of the run and of its folder; it has to be new. Default: made of the display name.
    display_name, experiment_name, description : str or None
        Kept in the record of the run.
    tags, properties : dict
        Without effect.
    compute : str or None
        Without effect.
    settings : PipelineJobSettings
        `default_datastore`, `continue_on_step_failure` and `force_rerun` have an effect.
    inputs, outputs
        By name, as attributes and as items.
    jobs : dict of str to Node
        The steps, by name.
    component : Component
        The pipeline without the values.

    """

    def __init__(
        self, component: Component, inputs: Mapping[str, Any], settings: Any = None
    ) -> None:
        self.component = component
        self.name: str | None = None
        self.display_name = component.display_name
        self.description = component.description
        self.experiment_name: str | None = component.content.get("experiment_name")
        self.tags: dict[str, Any] = dict(component.content.get("tags") or {})
        self.properties: dict[str, Any] = {}
        self.compute: str | None = None
        self.settings: PipelineJobSettings = settings or PipelineJobSettings()
        self.jobs: dict[str, Node] = component.steps
        where = f"the pipeline {component.name!r}"
        self.inputs = bound_inputs(where, component, inputs)
        made = {name: _output_of(declared) for name, declared in component.outputs.items()}
        self.outputs: Ports[Output] = Ports(f"{where}, outputs:", made, as_output)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; refuse one without a meaning."""
        if name not in KNOWN:
            msg = f"a pipeline job has no attribute {name!r}; {nearest_of(name, KNOWN)}"
            raise AttributeError(msg)
        if name == "settings":
            value = PipelineJobSettings.from_mapping(name, value)
        super().__setattr__(name, value)

    def values(self) -> dict[str, Any]:
        """Return the job as plain values; local paths are absolute."""
        found: dict[str, Any] = {
            "type": PIPELINE,
            "name": self.name,
            "display_name": self.display_name,
            "description": self.description,
            "experiment_name": self.experiment_name,
            "tags": self.tags,
            "properties": self.properties,
            "compute": self.compute,
            "settings": self.settings,
            "inputs": {name: self._input(name) for name in self.inputs},
            "outputs": {name: one.values() for name, one in self.outputs.items()},
            **self.component.as_job(),
        }
        found = {key: plain(value) for key, value in found.items()}
        return {key: value for key, value in found.items() if value not in (None, {})}

    def _input(self, name: str) -> Any:
        """Return an input as a file has it."""
        declared = self.component.inputs[name]
        written = self.inputs[name].written()
        if written is None and self.component.has_defaults:
            return None
        if written is None and not any(rule in declared for rule in RULES):
            written = declared.get("default")
        if written is None:
            return {"type": "string", **declared}
        if not isinstance(written, dict) and any(rule in declared for rule in RULES):
            return {**declared, "default": written}
        return written

    def document(self) -> Document:
        """Return the job as a document, whose messages name this pipeline and the key.

        A required input without a value is an OptionError, and so is a value of the wrong type.
        """
        for name, one in self.inputs.items():
            declared = self.component.inputs[name]
            if (
                not one.is_given
                and not declared.get("optional")
                and declared.get("default") is None
            ):
                owner = self.component.title
                msg = f"the input {name!r} of {owner!r} has no value: give it as {name}=…"
                raise OptionError(msg)
            kind = {"type": declared.get("type")} if declared.get("type") in [*KINDS] else {}
            problem = wrong_value(InputForm(**kind), Binding(one.value))
            if problem is not None:
                msg = f"the input {name!r} of {self.component.title!r}: {problem}"
                raise OptionError(msg)
        return Document.of_values(self.values(), self.component.title, self.component.folder)

    def __repr__(self) -> str:
        return f"<pipeline job {self.component.title!r}>"

    def refuse_to_move(self, dest: Any) -> None:
        """Refuse another folder than that of the file that the job was loaded from."""
        self.component.refuse_to_move(dest)


def _output_of(declared: Mapping[str, Any]) -> Output:
    return Output(**{key: value for key, value in declared.items() if key in OUTPUT_KEYS})
