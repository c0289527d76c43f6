"""`Component`: what a step does, with the inputs that it takes and the outputs that it makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.azure._file_kinds import kind_of
from daskprs.azure._pipelines.component import kind_of_step
from daskprs.azure._pipelines.forms import without_value_key
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.mistakes import refuse
from daskprs.azure.v2.entities import PipelineJobSettings
from daskprs.azure.v2.entity import Place, Written, plain
from daskprs.azure.v2.node import PIPELINE, STEPS, Node
from daskprs.azure.v2.pipeline_job import PipelineJob
from daskprs.azure.v2.ports import Input
from daskprs.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAPPINGS = ("inputs", "outputs", "tags")
LABELS = ("name", "version", "display_name", "description", "tags")


class Component(Written):
    """The work of a step. Call the component with its inputs, by name, to make a step.

    Attributes
    ----------
    kind : str
        ``"command"``, ``"parallel"`` or ``"pipeline"``.
    name, version, display_name, description : str or None
        Labels. Name and version are those under which it is registered.
    inputs, outputs : dict
        The declared inputs and outputs, by name.
    content : dict
        The keys of the component.

    """

    kind: str
    name: str | None
    version: str | None
    display_name: str | None
    description: str | None
    steps: dict[str, Node]
    """The steps of a pipeline, by name."""
    folder: Path
    """The folder that relative paths in `content` start from."""
    value_output: str | None = None
    """The output that is a value, which `takes_values` components alone can read."""
    takes_values = False
    has_defaults = False
    """Whether inputs without a value are left to the component."""

    def __init__(self, kind: str, content: Mapping[str, Any]) -> None:
        labels = {name: content.get(name) for name in LABELS}
        ports = {
            key: {name: _declared(port, word) for name, port in (content.get(key) or {}).items()}
            for key, word in (("inputs", "default"), ("outputs", "path"))
        }
        vars(self).update(
            kind=kind, content=dict(content), steps={}, folder=Path.cwd(), **labels, **ports
        )

    def returns_value(self, output: str) -> bool:
        """Say whether an output is a value, in a file that `takes_values` components read."""
        return output == self.value_output

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a label; anything else is a key of steps, or of the component's file."""
        if name not in LABELS:
            msg = (
                f"a component has no attribute {name!r} to be set ({nearest_of(name, LABELS)}): "
                "set it on the step, or where the component is written."
            )
            raise AttributeError(msg)
        vars(self).update({name: value})

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def type(self) -> str:
        """The kind of the component."""
        return self.kind

    @property
    def title(self) -> str:
        """The component in messages."""
        return self.name or self.kind

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Return a step, or, of a pipeline outside of another one, a job.

        Raises
        ------
        OptionError
            For an input that the component does not have.

        """
        if args:
            known = ", ".join(f"{name}=…" for name in self.inputs) or "it has none"
            msg = f"the component {self.name!r} takes its inputs by name: {known}."
            raise OptionError(msg)
        if self.kind == PIPELINE and STEPS.get() is None:
            return PipelineJob(self, inputs)
        return Node(self, inputs).entered()

    @property
    def _func(self) -> Any:
        """The component as a function, for notebooks that show its help."""
        return self.__call__

    def labels(self) -> dict[str, Any]:
        """Return the labels that are set."""
        found = {name: vars(self)[name] for name in LABELS}
        return {name: value for name, value in found.items() if value not in (None, {})}

    def values(self) -> dict[str, Any]:
        """Return the component as plain values."""
        found = {"type": self.kind, **plain(self.content), **self.labels()}
        found |= {"inputs": self.inputs, "outputs": self.outputs}
        return {key: value for key, value in found.items() if value not in (None, {})}

    def reference(self) -> Any:
        """Return the value of ``component:`` in a step."""
        return self.values()

    def as_job(self) -> dict[str, Any]:
        """Return the keys by which a pipeline job has this pipeline."""
        return {"component": self.reference()}

    def __repr__(self) -> str:
        return f"<{self.kind} component {self.name!r}>"


def _declared(port: Any, word: str) -> dict[str, Any]:
    """Return the declaration of an input or output; `word` is the key of a short one."""
    value = plain(port)
    return value if isinstance(value, dict) else {} if value is None else {word: value}


class FileComponent(Component):
    """A component in a file, or one that is registered."""

    path: Path
    id: str
    has_defaults = True

    def __init__(self, path: Path, reference: str | None = None) -> None:
        document = Document.read(path)
        content = document.content
        if not isinstance(content, dict):
            refuse([document.mistake((), "a component is a mapping of keys")])
        wrong = [key for key in MAPPINGS if not isinstance(content.get(key) or {}, dict)]
        refuse(document.mistake((key,), "it has to be a mapping") for key in wrong)
        super().__init__(kind_of_step(content, None), content)
        place = Place(path.absolute())
        vars(self).update(path=Path(place), id=reference or place, folder=document.folder)

    def reference(self) -> Any:
        """Return the path of the file."""
        return Place(self.path)

    def refuse_to_move(self, dest: Any) -> None:
        """Refuse another folder."""
        if isinstance(dest, str | os.PathLike) and Path(dest).absolute().parent != self.folder:
            msg = (
                f"dump: its paths are relative to {self.folder}. Dump it into that folder, or copy "
                "its file."
            )
            raise UsageError(msg)


class JobFile(FileComponent):
    """The pipeline, or the single step, in the file of a job."""

    @property
    def title(self) -> str:
        """The file in messages."""
        return str(self.path)

    def as_job(self) -> dict[str, Any]:
        """Return the keys of the file that the job does not hold itself."""
        if self.kind == PIPELINE:
            held = {"settings", "inputs", "outputs", "$schema", *LABELS}
            return {key: value for key, value in self.content.items() if key not in held}
        return {"jobs": {self.path.stem.replace(".", "_"): self.content}}


def load_component(source: str | os.PathLike[str]) -> FileComponent:
    """Return the component in a file.

    Raises
    ------
    YamlError
        When the file cannot be read.

    """
    return FileComponent(Path(source))


def load_job(source: str | os.PathLike[str]) -> PipelineJob:
    """Return the pipeline job, or the job of a single step, in a file.

    Raises
    ------
    YamlError
        When the file cannot be read, or is none of a job.

    """
    file = JobFile(Path(source))
    content = file.content
    if "jobs" not in content and "component" not in content and "command" not in content:
        kind = kind_of(content)
        told = "it is not a job: it has no jobs" if kind is None else kind.told(Path(source).name)
        refuse([Document.read(source).mistake((), told)])
    given = (content.get("inputs") or {}) if file.kind == PIPELINE else {}
    if file.kind != PIPELINE:
        vars(file).update(inputs={}, outputs={})
    job = PipelineJob(file, {})
    for name, value in given.items():
        plainly = without_value_key(value)
        one = {"type": None, **plainly} if isinstance(plainly, dict) else plainly
        made = Input.from_mapping(f"inputs.{name}", one)
        if isinstance(made, Input):
            made.start_from(file.folder)
        job.inputs[name] = made
    for one in job.outputs.values():
        one.start_from(file.folder)
    job.settings = PipelineJobSettings.from_mapping("settings", content.get("settings") or {})
    job.display_name = job.display_name or content.get("name")
    return job
