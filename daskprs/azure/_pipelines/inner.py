"""Pipelines within a pipeline: a step that is a pipeline is replaced by its own steps.

The steps of a pipeline `prepare` are called ``prepare.clean`` and ``prepare.split``. From then on
they run, are reused and are resumed as all others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._suggest import nearest_of
from daskprs.azure._expressions import (
    ExpressionError,
    filled_in,
    only_reference,
    parsed,
    references,
)
from daskprs.azure._pipelines.forms import InnerPipelineForm, InputForm, SettingsForm
from daskprs.azure._pipelines.ports import Parent, store_of
from daskprs.azure._pipelines.values import Binding, as_type, at_path, takes_path
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daskprs.azure._assets import Assets
    from daskprs.azure._pipelines.component import Declared, YamlSource
    from daskprs.azure._yaml_files.mistakes import Mistake

MOST_STEPS = 10_000
"""Upper bound for the steps of a pipeline: refuse files that multiply one another."""
LONGEST_NAME = 200
"""Upper bound for the characters of a step's whole name, by which its folder is called."""
OUTER_RULES = "it has no effect here: the settings of the outermost pipeline hold"


class Level(NamedTuple):
    """The steps of one pipeline, as they stand in a file."""

    jobs: Mapping[str, Any]
    source: YamlSource
    """The place of the pipeline."""
    parent: Parent
    files: tuple[str, ...]
    """The files that led here, the outermost first."""


def level_of(step: Declared, above: Level, assets: Assets, mistakes: list[Mistake]) -> Level | None:
    """Return the steps of a step that is a pipeline; None when it cannot be read."""
    form = step.form
    if not isinstance(form, InnerPipelineForm) or not step.is_whole:
        return None
    source, files = step.component_source or step.source, above.files
    if not source.loc:  # a file of its own
        files = (*files, str(Path(source.document.name).resolve()))
    if files[-1] in files[:-1]:
        names = " → ".join(Path(one).name for one in files[files.index(files[-1]) :])
        problem = f"this pipeline is within itself: {names}"
        mistakes.append(step.source.mistake(problem, "component"))
        return None
    if not form.jobs:
        if "jobs" not in step.wrong:
            mistakes.append(source.mistake("it has no steps", "jobs"))
        return None
    settings = form.settings
    mistakes += _warnings(settings, source)
    parent = Parent(
        name=step.name,
        inputs=_known_inputs(step, above.parent, assets),
        store=store_of(settings) or above.parent.store,
        is_fresh=above.parent.is_fresh
        or form.is_deterministic is False
        or bool(settings and settings.force_rerun),
        run=above.parent.run,
    )
    return Level(*_jobs(step, form.jobs, source, mistakes), parent, files)


def outermost(jobs: Mapping[str, Any], source: YamlSource, parent: Parent) -> Level:
    """Return the steps of the pipeline of a file."""
    return Level(jobs, source, parent, (str(Path(source.document.name).resolve()),))


def _jobs(
    step: Declared, jobs: dict[str, Any], source: YamlSource, mistakes: list[Mistake]
) -> tuple[dict[str, Any], YamlSource]:
    """Return the steps of an inner pipeline, with the keys that the outer one sets in them."""
    below = step.component
    if not isinstance(below, InnerPipelineForm) or below.jobs is None:
        return jobs, source
    own = {name: keys for name, keys in jobs.items() if keys is not below.jobs.get(name)}
    for name in own.keys() - below.jobs.keys():
        problem = f"its component has no step {name!r}; {nearest_of(name, [*below.jobs])}"
        mistakes.append(step.source.mistake(problem, "jobs", name, of_key=True))
    source = replace(source, over=((step.source, {"jobs": own}), *source.over))
    return {name: _on_top(keys, own.get(name, keys)) for name, keys in below.jobs.items()}, source


def _on_top(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _on_top(below.get(key), value) for key, value in above.items()}}


def _known_inputs(step: Declared, parent: Parent, assets: Assets) -> dict[str, Binding]:
    """Return the inputs of an inner pipeline that do not depend on what steps write."""
    found = {}
    for name in dict.fromkeys((*step.declared_inputs, *step.given_inputs)):
        port, below = step.given_inputs.get(name), step.declared_inputs.get(name)
        form = port if isinstance(port, InputForm) else None
        value = (form.default if form.place is None else form.place) if form else port
        kind = as_type(form.type if form and form.type else below.type if below else None)
        if value is None and below is not None:
            value = below.default
        try:
            bound = _known(value, parent)
            is_written = isinstance(value, str) and not [*references(parsed(value))]
            if is_written and (takes_path(kind) or (form is not None and form.place is not None)):
                base = step.source.at("inputs", name, *((form.place_key,) if form else ())).base
                bound = at_path(assets.place(str(value), base), kind)
        except (ExpressionError, UsageError):
            continue  # the wiring reports a wrong one
        found[name] = bound._replace(type=kind or bound.type)
    return found


def _known(value: Any, parent: Parent) -> Binding:
    if not isinstance(value, str):
        return Binding(value)
    parts = parsed(value)
    one = only_reference(parts)
    if one is not None:
        return parent.setting(one)
    return Binding(filled_in(parts, lambda one: parent.setting(one).text))


def _warnings(settings: SettingsForm | None, source: YamlSource) -> Iterator[Mistake]:
    """Yield warnings about settings of an inner pipeline that do nothing."""
    yield from unknown_settings(settings, source)
    for name in ("continue_on_step_failure", "continue_run_on_step_failure"):
        if settings is not None and name in settings.model_fields_set:
            yield source.warning(OUTER_RULES, "settings", name, of_key=True)


def unknown_settings(settings: SettingsForm | None, source: YamlSource) -> Iterator[Mistake]:
    """Yield warnings about unknown settings."""
    for name in (settings.model_extra or ()) if settings else ():
        problem = f"it has no effect: {nearest_of(name, [*SettingsForm.model_fields])}"
        yield source.warning(problem, "settings", name, of_key=True)
