"""A pipeline file, read and checked as a whole before anything starts."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure._expressions import NAME
from daskprs.azure._file_kinds import PIPELINE, is_deployment, is_of_component, kind_of
from daskprs.azure._pipelines.component import Declared, YamlSource, declared
from daskprs.azure._pipelines.forms import (
    SHOWN_IN_THE_STUDIO,
    ComponentJobForm,
    PipelineForm,
    SettingsForm,
    as_overrides,
)
from daskprs.azure._pipelines.inner import (
    LONGEST_NAME,
    MOST_STEPS,
    Level,
    level_of,
    outermost,
    unknown_settings,
)
from daskprs.azure._pipelines.ports import PipelinePorts, filled_settings, texts_of
from daskprs.azure._pipelines.step import made_step
from daskprs.azure._pipelines.values import Values
from daskprs.azure._pipelines.wiring import Wiring
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import NO_KEY, Key, filled, filled_as_far, ineffective
from daskprs.azure._yaml_files.mistakes import Mistake, refuse, whole
from daskprs.errors import UsageError, YamlError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from daskprs.azure._assets import NamedEnvironment
    from daskprs.azure._pipeline_folder import PipelineFolder
    from daskprs.azure._pipelines.ports import Parent
    from daskprs.azure._pipelines.step import Step
    from daskprs.azure._pipelines.values import Binding, CallerInputs

PORTS = ("inputs", "outputs", "jobs")
SHOWN_CHARACTERS = 200
"""Characters of an override that a message shows."""


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
    inputs: Mapping[str, Any]
    """The inputs as the file declares them: forms, or plain values."""
    environments: Sequence[NamedEnvironment]
    """The environment of each step."""
    files: Sequence[Path]
    """The files and folders that say what its steps do."""


def read_pipeline(
    source: Document | str | PathLike[str], folder: PipelineFolder, given: CallerInputs
) -> Pipeline:
    """Return the pipeline in a file, for a run in a folder; refuse all mistakes at once.

    A document of values is read as the file with these values would be.
    """
    document = source if isinstance(source, Document) else Document.read(source)
    if is_of_component(document.content):
        if is_deployment(document.content):
            _refuse_other_kind(YamlSource.of(document))
        component, given = _of_component(document, given)
        document = Document.read(component)
    return _PipelineReader(document, folder, given).pipeline()


def _refuse_other_kind(source: YamlSource) -> None:
    """Refuse a file that is known to be something else than a pipeline."""
    kind = kind_of(source.document.content)
    if kind is not None and kind is not PIPELINE:
        refuse([source.mistake(kind.told(Path(source.document.name).name))])


class _PipelineReader:
    """Reads one file, and collects all mistakes before it raises them."""

    def __init__(self, document: Document, folder: PipelineFolder, given: CallerInputs) -> None:
        self._source = YamlSource.of(document)
        self._content = overridden(document.content, given.overrides)
        self._folder = folder
        self._given = given
        self._mistakes: list[Mistake] = []
        self._broken: set[str] = set()
        """The steps that could not be read."""
        self._parents: dict[str, Parent] = {}

    def pipeline(self) -> Pipeline:
        form = self._form()
        of_form = len(self._mistakes)
        self._refuse_names("inputs", form.inputs or ())
        self._refuse_names("outputs", form.outputs or ())
        if len(self._mistakes) > of_form:
            refuse(self._mistakes)
        values = Values(self._folder, self._given)
        ports = PipelinePorts(form, self._source, values)
        steps = self._declared(form, ports)
        wiring = Wiring(ports, steps, self._broken, self._parents)
        self._mistakes += values.mistakes
        order = self._order(steps, wiring)
        self._refuse_unused_environments(steps.values())
        # In Python, no one wrote the labels of a studio as keys.
        left = () if self._source.document.is_file else (SHOWN_IN_THE_STUDIO,)
        unknown = map(str, unknown_settings(form.settings, self._source))
        notices = [*unknown, *_without_effect(form, steps.values(), left)]
        settings = form.settings or SettingsForm()
        found = self._mistakes  # the steps add theirs
        made = [made_step(steps[name], wiring, found) for name in order]
        found = [*dict.fromkeys(found)]  # a component may be used twice
        refuse(found)
        notices += [str(one) for one in found if one.is_warning]
        return Pipeline(
            name=form.display_name or form.name or self._source.base.name,
            steps={step.name: step for step in made if step is not None},
            outputs=ports.outputs,
            goes_on=bool(
                settings.continue_on_step_failure or settings.continue_run_on_step_failure
            ),
            notices=notices,
            inputs=form.inputs or {},
            environments=[one.environment for one in steps.values() if not one.is_pipeline],
            files=[*dict.fromkeys(self._files(steps.values()))],
        )

    def _files(self, steps: Iterable[Declared]) -> Iterator[Path]:
        yield Path(self._source.document.name)
        for step in steps:
            if step.component_source is not None:
                yield Path(step.component_source.document.name)
            if step.code is not None:
                yield step.code

    def _form(self) -> PipelineForm:
        if not isinstance(self._content, dict):
            refuse([self._source.mistake("a pipeline is a mapping of keys")])
        document = self._source.document
        if "jobs" not in self._content:
            _refuse_other_kind(self._source)
        form, self._mistakes, _ = filled_as_far(PipelineForm, self._content, document, PORTS)
        form = form or whole(form, self._mistakes)
        if not form.jobs:
            refuse([*self._mistakes, self._source.mistake("it has no steps", "jobs")])
        return form

    def _declared(self, form: PipelineForm, ports: PipelinePorts) -> dict[str, Declared]:
        """Return all steps; a step that is a pipeline comes before its own steps."""
        found: dict[str, Declared] = {}
        self._declare(outermost(form.jobs, self._source, ports.parent), found)
        return found

    def _declare(self, level: Level, found: dict[str, Declared]) -> None:
        self._refuse_names("jobs", level.jobs, level.source)
        for name, content in level.jobs.items():
            if len(found) >= MOST_STEPS:
                refuse([level.source.mistake(f"there are more than {MOST_STEPS} steps", "jobs")])
            whole = level.parent.step(name)
            step = self._step(name, content, level)
            if step is None or not step.is_whole:
                self._broken.add(whole)
            if step is None:
                continue
            found[whole] = step
            self._parents[whole] = level.parent
            if step.is_pipeline:
                inner = level_of(step, level, self._given.assets, self._mistakes)
                if inner is None:
                    self._broken.add(whole)
                else:
                    self._declare(inner, found)

    def _step(self, name: str, content: Any, level: Level) -> Declared | None:
        source = level.source.below("jobs", name)
        whole = level.parent.step(name)
        if len(whole) > LONGEST_NAME:
            problem = f"the whole name {whole!r} has more than {LONGEST_NAME} characters"
            self._mistakes.append(source.mistake(f"{problem}: use shorter names", of_key=True))
            return None
        unfilled: list[Mistake] = []
        known = content
        if isinstance(content, dict):
            known = filled_settings(content, level.parent, source, unfilled)
        step, mistakes = declared(whole, known, source, self._given.assets)
        keys = {one.key for one in mistakes if one.told.startswith(NO_KEY)}  # ignore their values
        if any(one.key == source.mistake("", "type").key for one in mistakes):
            unfilled = []  # of a kind whose keys are not known
        unfilled = [one for one in unfilled if one.key not in keys]
        told = {one.key for one in unfilled}  # their values are None
        self._mistakes += [*unfilled, *(one for one in mistakes if one.key not in told)]
        if step is None:
            return None
        ports = {**step.declared_outputs, **step.given_outputs}
        self._refuse_names("outputs", ports, source)
        return step

    def _refuse_unused_environments(self, steps: Iterable[Declared]) -> None:
        used = [step.environment for step in steps if not step.is_pipeline]
        unused, place = self._given.assets.unused_environments(used), self._source.place()
        self._mistakes += [Mistake(place, *one) for one in unused]

    def _refuse_names(
        self, key: str, names: Iterable[str], source: YamlSource | None = None
    ) -> None:
        """Refuse names that are not valid as plain folder names."""
        source = source or self._source
        for name in names:
            if not NAME.fullmatch(name):
                problem = f"{name!r} is not a name: letters, digits, _ and - are allowed"
                self._mistakes.append(source.mistake(problem, key, name, of_key=True))
            elif key != "jobs" and len(name) > LONGEST_NAME:
                problem = f"it has more than {LONGEST_NAME} characters: use a shorter name"
                self._mistakes.append(source.mistake(problem, key, name, of_key=True))

    def _order(self, steps: Mapping[str, Declared], wiring: Wiring) -> list[str]:
        """Return the steps, each after the steps that it needs."""
        needs = {name: sorted(wiring.needs(name)) for name in wiring.outputs_of}
        sorter = TopologicalSorter(needs)
        try:
            return [name for name in sorter.static_order() if name in steps]
        except CycleError as error:
            circle = error.args[1]
            problem = f"the steps wait for each other: {' → '.join(reversed(circle))}"
            self._mistakes.append(steps[circle[0]].source.mistake(problem, of_key=True))
            return list(steps)


def _without_effect(
    form: PipelineForm, steps: Iterable[Declared], left: Collection[str]
) -> list[str]:
    """Return one line per reason, with the keys that have no effect for it; leave out some."""
    by_note: dict[str, list[str]] = {}
    keys: list[Key] = list(ineffective(form))
    for step in steps:
        way = step.name.replace(".", ".jobs.")
        keys += [key._replace(name=f"jobs.{way}.{key.name}") for key in step.without_effect]
    for key in keys:
        names = by_note.setdefault(key.note, [])
        if key.name not in names:
            names.append(key.name)
    told = {note: ", ".join(names) for note, names in by_note.items() if note not in left}
    return [f"Without effect here: {names} ({note})." for note, names in told.items()]


# ---- a job that consists of a pipeline component ----


def _of_component(document: Document, given: CallerInputs) -> tuple[Path, CallerInputs]:
    """Return the component's file and its inputs; the caller's values override the job's.

    Overrides of steps apply to the component, all others to the job.
    """
    of_steps = tuple(one for one in given.overrides if one.startswith("jobs."))
    own = [one for one in given.overrides if one not in of_steps]
    form, mistakes = filled(ComponentJobForm, overridden(document.content, own), document)
    base = document.folder
    path = base
    if form is not None:
        try:
            path = given.assets.file(form.component, base)
        except UsageError as error:
            mistakes.append(document.mistake(("component",), str(error)))
    form = whole(form, mistakes)
    names = {"name": form.name, "display_name": form.display_name}
    named = (f"{key}={json.dumps(name)}" for key, name in names.items() if name is not None)
    return path, replace(
        given,
        overrides=(*named, *as_overrides(form.settings), *of_steps),
        inputs={**texts_of(form.inputs or {}, base, given.assets), **given.inputs},
        outputs={**texts_of(form.outputs or {}, base, given.assets), **given.outputs},
    )


# ---- overrides ----


def overridden(content: Any, overrides: Iterable[str]) -> Any:
    """Return the content of a file with other values, each given as ``way.to.a.value=value``.

    A value is YAML, so that ``3`` is a number. One YamlError has all wrong overrides.
    """
    wrong = []
    for word in overrides:
        way, equals, text = word.partition("=")
        try:
            if not equals or not way:
                msg = "write way.to.a.value=value"
                raise ValueError(msg)
            content = _set(content, way.split("."), Document(text, "value").content)
        except ValueError as error:
            shown = word if len(word) <= SHOWN_CHARACTERS else f"{word[:SHOWN_CHARACTERS]}..."
            wrong.append(f"--set {shown}: {error}")
    if wrong:
        raise YamlError("\n".join(wrong))
    return content


def _set(content: Any, way: list[str], value: Any) -> Any:
    """Return a copy with one value changed; create missing mappings on the path."""
    if not way:
        return value
    key, *rest = way
    match content:
        case dict() | None:
            known = content or {}
            return {**known, key: _set(known.get(key), rest, value)}
        case list() if key.isdecimal() and int(key) < len(content):
            at = int(key)
            return [*content[:at], _set(content[at], rest, value), *content[at + 1 :]]
        case list():
            msg = f"{key!r} is not the number of an item: there are {len(content)}, from 0 on"
            raise ValueError(msg)
    msg = f"there is nothing below {content!r} that could be called {key!r}"
    raise ValueError(msg)
