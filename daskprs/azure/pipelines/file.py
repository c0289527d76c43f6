"""A pipeline file, read and checked as a whole before anything starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure.expressions import NAME
from daskprs.azure.file_kinds import way_to_run
from daskprs.azure.pipelines.component import Declared, YamlSource, declared
from daskprs.azure.pipelines.component_job import is_of_component, of_component
from daskprs.azure.pipelines.forms.pipeline import PipelineForm, SettingsForm
from daskprs.azure.pipelines.overrides import overridden
from daskprs.azure.pipelines.ports import PipelinePorts
from daskprs.azure.pipelines.run_settings import RunSettings
from daskprs.azure.pipelines.step import StepMaker
from daskprs.azure.pipelines.values import Values
from daskprs.azure.pipelines.wiring import Wiring
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Key, filled_as_far, ineffective
from daskprs.yaml_files.mistakes import Mistake, nearest_of, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from os import PathLike

    from daskprs.azure.pipelines.bound import Binding
    from daskprs.azure.pipelines.caller_inputs import CallerInputs
    from daskprs.azure.pipelines.step import Step
    from daskprs.folders.pipeline_folder import PipelineFolder


PORTS = ("inputs", "outputs", "jobs")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that can be run."""

    name: str
    steps: Mapping[str, Step]
    """The steps, each after the steps that it needs."""
    outputs: Mapping[str, Binding]
    goes_on: bool
    """Whether the steps that do not need a failed step still run."""
    notices: list[str]
    """Notices of keys without effect, and warnings."""


def read_pipeline(
    path: str | PathLike[str], folder: PipelineFolder, given: CallerInputs
) -> Pipeline:
    """Return the pipeline in a file.

    Parameters
    ----------
    path
        The file.
    folder
        The folder of the run.
    given
        The caller's inputs, outputs and options.

    Raises
    ------
    YamlError
        With every mistake in the file and in the files that it names.

    """
    document = Document.read(path)
    if is_of_component(document.content):
        component, given = of_component(document, given)
        document = Document.read(component)
    return _PipelineReader(document, folder, given).pipeline()


class _PipelineReader:
    """Reads one file, and collects all mistakes before it raises them."""

    def __init__(self, document: Document, folder: PipelineFolder, given: CallerInputs) -> None:
        self._source = YamlSource.of(document)
        self._content = overridden(document.content, given.overrides)
        self._folder = folder
        self._given = given
        self._mistakes: list[Mistake] = []

    def pipeline(self) -> Pipeline:
        form = self._form()
        values = Values(self._given.assets, self._folder)
        inputs, outputs = dict(self._given.inputs or {}), dict(self._given.outputs or {})
        of_form = len(self._mistakes)
        self._refuse_names("inputs", form.inputs or ())
        self._refuse_names("outputs", form.outputs or ())
        if len(self._mistakes) > of_form:
            refuse(self._mistakes)
        ports = PipelinePorts(
            form,
            self._source,
            values,
            self._folder,
            inputs,
            outputs,
            with_inputs=self._given.with_inputs,
        )
        declared_steps = self._declared(form, ports)
        whole = {name for name, step in declared_steps.items() if step.is_whole}
        broken = form.jobs.keys() - whole
        assets = self._given.assets
        wiring = Wiring(ports, values, declared_steps, self._folder, outputs, assets, broken)
        self._mistakes += values.mistakes
        order = self._order(declared_steps, wiring)
        notices = [*self._unknown_settings(form), *_without_effect(form, declared_steps.values())]
        settings = form.settings
        is_fresh = bool(settings and settings.force_rerun)
        maker = StepMaker(wiring, self._given, is_fresh=is_fresh)
        steps = {name: maker.made(declared_steps[name]) for name in order}
        refuse([*self._mistakes, *maker.mistakes])
        notices += [str(one) for one in maker.mistakes if one.is_warning]
        return Pipeline(
            name=form.display_name or form.name or self._source.base.name,
            steps={name: step for name, step in steps.items() if step is not None},
            outputs=ports.outputs,
            goes_on=bool(
                settings
                and (settings.continue_on_step_failure or settings.continue_run_on_step_failure)
            ),
            notices=notices,
        )

    def _form(self) -> PipelineForm:
        if not isinstance(self._content, dict):
            refuse([self._source.mistake("a pipeline is a mapping of keys")])
        document = self._source.document
        if "jobs" not in self._content:
            told = way_to_run(self._content, Path(document.name).name)
            refuse([self._source.mistake(told)] if told else [])
        form, self._mistakes, _ = filled_as_far(PipelineForm, self._content, document, PORTS)
        if form is None:
            refuse(self._mistakes)
        if form is None or not form.jobs:
            refuse([*self._mistakes, self._source.mistake("there is no step in it", "jobs")])
        return form  # type: ignore[return-value]

    def _declared(self, form: PipelineForm, ports: PipelinePorts) -> dict[str, Declared]:
        found = {}
        self._refuse_names("jobs", form.jobs)
        for name, content in form.jobs.items():
            source = replace(self._source, loc=("jobs", name))
            settings = RunSettings(ports, source)
            known = settings.filled(content)
            step, mistakes = declared(name, known, source, self._given.assets)
            told = {mistake.key for mistake in mistakes}  # an unknown key: ignore its value
            self._mistakes += [one for one in settings.mistakes if one.key not in told]
            self._mistakes += mistakes
            if step is not None:
                found[name] = step
                ports_ = {**step.declared_outputs, **step.given_outputs}
                self._refuse_names("outputs", ports_, source)
        return found

    def _unknown_settings(self, form: PipelineForm) -> Iterator[str]:
        """Yield warnings about unknown settings."""
        for name in (form.settings.model_extra or ()) if form.settings else ():
            told = f"it has no effect: {nearest_of(name, [*SettingsForm.model_fields])}"
            mistake = self._source.mistake(told, "settings", name, of_key=True)
            yield str(mistake._replace(is_warning=True))

    def _refuse_names(
        self, key: str, names: Iterable[str], source: YamlSource | None = None
    ) -> None:
        """Refuse names that are not valid as plain folder names."""
        for name in names:
            if not NAME.fullmatch(name):
                told = f"{name!r} is no name: letters, digits, _ and - are allowed"
                self._mistakes.append(
                    (source or self._source).mistake(told, key, name, of_key=True)
                )

    def _order(self, steps: Mapping[str, Declared], wiring: Wiring) -> list[str]:
        """Return the steps, each after the steps that it needs."""
        sorter = TopologicalSorter({name: sorted(wiring.needs(name)) for name in steps})
        try:
            return [name for name in sorter.static_order() if name in steps]
        except CycleError as error:
            circle = " → ".join(reversed(error.args[1]))
            told = f"the steps wait for each other: {circle}"
            self._mistakes.append(self._source.mistake(told, "jobs", error.args[1][0], of_key=True))
            return list(steps)


def _without_effect(form: PipelineForm, steps: Iterable[Declared]) -> list[str]:
    """Return one line per reason, with the keys that have no effect for it."""
    by_note: dict[str, list[str]] = {}
    keys: list[Key] = list(ineffective(form))
    for step in steps:
        keys += [key._replace(name=f"jobs.{step.name}.{key.name}") for key in step.without_effect]
    for key in keys:
        names = by_note.setdefault(key.note, [])
        if key.name not in names:
            names.append(key.name)
    return [f"Without effect here: {', '.join(names)} ({note})." for note, names in by_note.items()]
