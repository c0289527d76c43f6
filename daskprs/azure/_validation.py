"""Validation of any kind of Azure file, without running anything."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.script.checked_script import check_script
from daskprs.azure._deployments.deployment import SCRIPT, deployment_of
from daskprs.azure._deployments.model_folder import missing_packages
from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
from daskprs.azure._file_kinds import (
    KINDS,
    PIPELINE,
    FileKind,
    Use,
    contradiction,
    kind_of,
    other_system,
)
from daskprs.azure._missing_modules import missing_modules, named, way_out
from daskprs.azure._mltable.form import MLTableForm
from daskprs.azure._mltable.place import located
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.component import YamlSource, declared
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.forms import PipelineJobForm
from daskprs.azure._pipelines.ports import PipelinePorts
from daskprs.azure._pipelines.step import made_step
from daskprs.azure._pipelines.values import CallerInputs, Values
from daskprs.azure._pipelines.wiring import Wiring
from daskprs.azure._yaml_files.document import Document, Loc
from daskprs.azure._yaml_files.form import filled, ineffective
from daskprs.azure._yaml_files.mistakes import Mistake, SourceLocation, refuse, whole
from daskprs.azure.v1.config import FileForm
from daskprs.errors import UsageError, YamlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from daskprs.azure._assets import Assets


ROOT = "parallel_run_config"
TABLE = "MLTable"
OF_COMPONENTS = ("is_deterministic", "output_data")


class Verdict(NamedTuple):
    """The result of checking a file."""

    kind: str
    """The kind of the file; empty when its keys match no kind."""
    wrong: list[str]
    """A line for each mistake: file, line, column, key, rule and value."""
    warnings: list[str]
    """Warnings, which do not keep the file from running."""
    is_checked: bool = True
    """Whether the file was checked; False for a kind that nothing here reads."""


class Check(NamedTuple):
    """A file that is to be checked."""

    document: Document
    path: Path
    assets: Assets
    inputs: Mapping[str, str]
    warnings: list[str]
    folder: PipelineFolder
    """The folder in which a pipeline would run, if it ran."""


def validate(
    path: str | PathLike[str], assets: Assets, inputs: Mapping[str, str] | None = None
) -> Verdict:
    """Check one of Azure's YAML files, or the folder of an MLTable, as a whole; run nothing.

    `inputs` has values for the inputs of a pipeline.
    """
    place = Path(path)
    if place.is_dir():
        place /= TABLE
        if not place.exists():
            problem = f"{path}: this folder has no MLTable. Name files: {Path(path) / '*.yml'}"
            return Verdict("", [problem], [])
    with TemporaryDirectory(prefix="daskprs-validated-") as folder:
        return _verdict(place, assets, inputs or {}, PipelineFolder(folder))


def _verdict(
    place: Path, assets: Assets, inputs: Mapping[str, str], folder: PipelineFolder
) -> Verdict:
    name, warnings = "", list[str]()
    try:
        check = Check(Document.read(place), place, assets, inputs, warnings, folder)
        if not isinstance(check.document.content, dict):
            refuse([check.document.mistake((), "it is not a mapping of keys")])
        kind = _kind_of(check)
        name = kind.name
        if told := contradiction(check.document.content):
            warnings.append(str(check.document.warning(("$schema",), told)))
        if kind.use is not Use.RUN:
            use = check.document.mistake((), kind.told(place.name))
            refuse([use] if kind.use is Use.REFUSED else [])
            return Verdict(name, [], [str(use), *warnings], is_checked=False)
        CHECKS[name](check)
    except UsageError as error:
        return Verdict(name, str(error).splitlines(), warnings)
    except OSError as error:  # a path in it that no file system takes
        return Verdict(
            name, [str(Mistake(SourceLocation(str(place), 1, 1), "", str(error)))], warnings
        )
    return Verdict(name, [], warnings)


def _kind_of(check: Check) -> FileKind:
    kind = kind_of(check.document.content)
    if check.path.name == TABLE:
        kind = next(one for one in KINDS if one.name == TABLE)
    if kind is not None:
        return kind
    other = other_system(check.document.content)
    if other is not None:
        problem = f"this is not one of these files: it is {other}"
        raise YamlError(str(check.document.mistake((), problem)))
    keys = ", ".join(map(repr, check.document.content))
    problem = (
        f"this is not one of these files: its keys are {keys}. A pipeline has jobs, a "
        "parallel or command component a type, a batch deployment a model or a "
        "code_configuration, an MLTable paths, a config of SDK v1 the key parallel_run_config. "
        "A $schema tells the kind, too."
    )
    raise YamlError(str(check.document.mistake((), problem)))


# ---- each kind ----


def _check_mltable(check: Check) -> None:
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs.azure._mltable.opening import open_mltable

    with located(check.assets.located):
        open_mltable(str(check.path.absolute()), ReadOptions())
    form = whole(*filled(MLTableForm, check.document.content, check.document))
    _warn_of(check, [key.name for key in ineffective(form)])


def _check_deployment(check: Check) -> None:
    document = check.document
    found = whole(*deployment_of(document, document.content, check.assets))
    _warn_of(check, [key.name for key in found.without_effect])
    environment = found.environment
    python = environment.python
    if found.by_mlflow:
        loc: Loc = ("model",)
        use = "to serve it takes"
        missing = missing_packages(found.model, python) if found.model is not None else []
        way = way_out(python, environment.way)
    else:
        loc, use, root = SCRIPT, "it imports", found.source_directory
        modules = missing_modules(root / found.script, root, python=python)
        missing, way = [*map(str, modules)], way_out(python, environment.way, modules)
    problem = f"{use} what {named(python)} does not have: {', '.join(missing)}. {way}".rstrip()
    refuse([document.mistake(loc, problem)] if missing else [])


def _check_pipeline_deployment(check: Check) -> None:
    found = pipeline_deployment_of(check.document, check.assets)
    _warn_of(check, found.without_effect)
    _check_pipeline_at(found.path, check, found.overrides, with_inputs=False)


def _check_pipeline(check: Check) -> None:
    is_component = "pipelineComponent" in str(check.document.content.get("$schema"))
    _check_pipeline_at(check.path, check, with_inputs=not is_component)
    _warn_of_keys_of_components(check)


def _warn_of_keys_of_components(check: Check) -> None:
    """Warn about keys that work in a step here, and that Azure only takes in a component."""
    jobs = check.document.content.get("jobs")
    for name, step in jobs.items() if isinstance(jobs, dict) else ():
        for key in OF_COMPONENTS if isinstance(step, dict) and "component" not in step else ():
            if key in step:
                loc: Loc = ("jobs", name, key)
                problem = (
                    "Azure only takes this key in the file of a component, and refuses it here"
                )
                check.warnings.append(str(check.document.warning(loc, problem, of_key=True)))


def _check_pipeline_at(
    path: Path, check: Check, overrides: tuple[str, ...] = (), *, with_inputs: bool
) -> None:
    """Check a pipeline; a component's and a deployment's inputs are given when it runs."""
    given = CallerInputs(check.assets, overrides, inputs=check.inputs, with_inputs=with_inputs)
    check.warnings.extend(read_pipeline(path, check.folder, given).notices)


def _check_component(check: Check) -> None:
    """Check a component as the only step of a pipeline whose inputs are not known yet."""
    document, assets = check.document, check.assets
    source, keys = YamlSource.of(document), list[str]()
    step, mistakes = declared(Path(document.name).stem, document.content, source, assets)
    if step is not None:
        step = step.alone()
        values = Values(check.folder, CallerInputs(assets))
        ports = PipelinePorts(PipelineJobForm(), source, values)
        made_step(step, Wiring(ports, {step.name: step}), mistakes)
        mistakes += values.mistakes
        keys = [key.name for key in step.without_effect]
        unused, place = assets.unused_environments([step.environment]), document.place(())
        mistakes += [Mistake(place, *one) for one in unused]
    check.warnings.extend(str(one) for one in mistakes if one.is_warning)
    refuse(mistakes)
    _warn_of(check, keys)


def _check_config(check: Check) -> None:
    document = check.document
    form, mistakes = filled(FileForm, document.content, document)
    config = document.content.get(ROOT)
    if isinstance(config, dict) and isinstance(config.get("entry_script"), str):
        problem = _script_problem(config["entry_script"], config.get("source_directory"), document)
        if problem:
            mistakes.append(document.mistake((ROOT, "entry_script"), problem))
    _warn_of(check, [key.name for key in ineffective(whole(form, mistakes))])


def _script_problem(script: str, folder: object, document: Document) -> str:
    """Return the script's mistake if it is usable neither from here nor beside the file."""
    problem = ""
    for base in (Path.cwd(), document.folder):
        root = base / folder if isinstance(folder, str) else None
        try:
            check_script(script if root else base / script, root)
        except UsageError as error:
            problem = problem or str(error)
        else:
            return ""
    return problem


def _check_endpoint(check: Check) -> None:
    problem = "an endpoint has nothing to run: its deployments have; see daskprs serve"
    check.warnings.append(str(check.document.warning((), problem)))


def _warn_of(check: Check, keys: Iterable[str]) -> None:
    """Warn about keys that are set without effect."""
    names = ", ".join(dict.fromkeys(keys))
    if names:
        check.warnings.append(f"{check.document.name}: without effect here: {names}.")


CHECKS: dict[str, Callable[[Check], None]] = {
    TABLE: _check_mltable,
    "config of SDK v1": _check_config,
    PIPELINE.name: _check_pipeline,
    "batch deployment of a pipeline": _check_pipeline_deployment,
    "component": _check_component,
    "batch deployment of a model": _check_deployment,
    "batch endpoint": _check_endpoint,
}
"""The check of each kind of file that is run: it raises mistakes, and adds warnings."""
