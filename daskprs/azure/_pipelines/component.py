"""Declared steps: the keys of a step in the pipeline, on top of those of its component."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from daskprs._suggest import did_you_mean, nearest
from daskprs.azure._file_kinds import kind_of
from daskprs.azure._pipelines.forms import (
    OWN_PYTHON,
    CommandForm,
    InnerPipelineForm,
    LocalPath,
    ParallelForm,
)
from daskprs.azure._pipelines.included_code import (
    KEY,
    SUFFIX,
    Include,
    included,
    listed_beside,
)
from daskprs.azure._pipelines.other_steps import OTHERWISE, instead_of
from daskprs.azure._yaml_files.document import Document, Loc, dotted
from daskprs.azure._yaml_files.form import NO_KEY, Effect, Form, Key, filled_as_far, ineffective
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.azure._assets import Assets, NamedEnvironment
    from daskprs.azure._pipelines.forms import InputForm, OutputForm
    from daskprs.azure._yaml_files.mistakes import Mistake, SourceLocation

StepKeys: TypeAlias = ParallelForm | CommandForm | InnerPipelineForm
FORMS: dict[str, type[StepKeys]] = {
    "parallel": ParallelForm,
    "command": CommandForm,
    "pipeline": InnerPipelineForm,
}
COMPONENT = "component"
ENVIRONMENT = "environment"
FLOW = "prompt flow"
PORTS = ("inputs", "outputs")
"""Keys that a step needs before anything that depends on it can be checked."""


@dataclass(frozen=True)
class YamlSource:
    """The place of a declaration in a file, and of what outer files set in it."""

    document: Document
    loc: Loc
    base: Path
    """The folder that the declaration's paths are relative to."""
    over: tuple[tuple[YamlSource, Any], ...] = ()
    """Declarations whose values win over this one's: their sources and values, the first first."""

    @classmethod
    def of(cls, document: Document) -> YamlSource:
        """Return the source for a whole file."""
        return cls(document, (), document.folder)

    def below(self, *way: str) -> YamlSource:
        """Return the source for a part of the declaration."""
        found = [(above.below(*way), _value_at(values, way)) for above, values in self.over]
        over = tuple(one for one in found if one[1] is not None)
        return replace(self, loc=(*self.loc, *way), over=over)

    def at(self, *way: str | int) -> YamlSource:
        """Return the source that sets a value: another one than this if an outer file does."""
        for above, values in self.over if way else ():
            if _value_at(values, way) is not None:
                return above.at(*way)
        return self

    def place(self, *below: str | int, of_key: bool = False) -> SourceLocation:
        """Return the location of a value in the declaration."""
        source = self.at(*below)
        return source.document.place((*source.loc, *below), of_key=of_key)

    def mistake(self, problem: str, *below: str | int, of_key: bool = False) -> Mistake:
        """Return a mistake at a place in the declaration."""
        source = self.at(*below)
        return source.document.mistake((*source.loc, *below), problem, of_key=of_key)

    def warning(self, problem: str, *below: str | int, of_key: bool = False) -> Mistake:
        """Return a mistake in spite of which the file can run."""
        return self.mistake(problem, *below, of_key=of_key)._replace(is_warning=True)


def _value_at(values: Any, way: Loc) -> Any:
    for key in way:
        values = values.get(key) if isinstance(values, dict) else None
    return values


@dataclass(frozen=True)
class Declared:
    """A step, with the keys of its component under its own."""

    name: str
    source: YamlSource
    """The place of the step in the pipeline."""
    form: StepKeys
    """The step's keys and its component's keys, except the component's inputs and outputs."""
    component: StepKeys | None
    component_source: YamlSource | None
    code: Path | None
    environment: NamedEnvironment
    includes: tuple[Include, ...] = ()
    """The files and folders that are put beside the code before the step is made."""
    wrong: frozenset[str] = frozenset()
    """Keys that are left out because of mistakes."""
    without_effect: list[Key] = field(default_factory=list)
    is_alone: bool = False
    """Whether this is a component outside of any pipeline, whose inputs are unknown."""

    def alone(self) -> Declared:
        """Return a component as a step without given inputs and outputs."""
        given = self.form.model_copy(update={"inputs": None, "outputs": None})
        return replace(
            self, form=given, component=self.form, component_source=self.source, is_alone=True
        )

    @property
    def is_whole(self) -> bool:
        """Whether the step's component, if any, could be read."""
        return COMPONENT not in self.wrong

    @property
    def is_pipeline(self) -> bool:
        """Whether the step is a pipeline itself."""
        return isinstance(self.form, InnerPipelineForm)

    @property
    def is_command(self) -> bool:
        """Whether the step is a command."""
        return isinstance(self.form, CommandForm)

    @property
    def given_inputs(self) -> dict[str, Any]:
        """The inputs that the pipeline gives to the step."""
        return self.form.inputs or {}

    @property
    def given_outputs(self) -> dict[str, Any]:
        """The outputs of the step in the pipeline."""
        return self.form.outputs or {}

    @property
    def declared_inputs(self) -> dict[str, InputForm | None]:
        """The inputs that the component declares; None for an input without a declaration."""
        return _forms((self.component.inputs if self.component else None) or {})

    @property
    def declared_outputs(self) -> dict[str, OutputForm | None]:
        """The outputs that the component declares."""
        return _forms((self.component.outputs if self.component else None) or {})


def declared(
    name: str, content: Any, source: YamlSource, assets: Assets
) -> tuple[Declared | None, list[Mistake]]:
    """Return a step, and all mistakes in it."""
    if not isinstance(content, dict):
        return None, [source.mistake(f"a step is a mapping of keys, not {content!r}")]
    mistakes: list[Mistake] = []
    component, origin = _component(content, source, assets, mistakes)
    kind = kind_of_step(content, component)
    other = kind_of(component)
    if other is not None and FLOW in other.name:
        return None, [*mistakes, source.mistake(other.told(str(content[COMPONENT])), COMPONENT)]
    if kind not in FORMS:
        whole = {**(component if isinstance(component, dict) else {}), **content}
        instead = instead_of(kind, whole)
        problem = f"a step of type {kind!r} cannot be run here: {instead}"
        if instead is OTHERWISE and (near := did_you_mean(str(kind), FORMS)):
            problem = f"there is no type {kind!r}.{near}"
        return None, [*mistakes, source.mistake(problem, "type")]
    form, more, wrong = _filled(FORMS[kind], content | {COMPONENT: None}, source)
    mistakes += more
    below = None
    if origin is not None:
        below, more, wrong_below = _filled(FORMS[kind], component, origin)
        mistakes += more
        wrong |= wrong_below
    if form is None:
        return None, mistakes
    if below is None and content.get(COMPONENT) is not None:
        wrong |= {COMPONENT}
    of_component = [] if below is None or origin is None else [(below, origin)]
    code, includes = _whole_code([(form, source), *of_component], assets, mistakes)
    keys = [*ineffective(form), *(ineffective(below) if below is not None else ())]
    given, place = _environment(form), source
    if given is None and below is not None and origin is not None:
        given, place = _environment(below), origin
    way = ("task", ENVIRONMENT) if isinstance(form, ParallelForm) else (ENVIRONMENT,)
    environment = assets.environment(given, place.at(*way).base, name)
    keys += without_python(given, environment, ".".join(way))
    whole = form if below is None else on_top(below, form)
    whole = whole.model_copy(update={"inputs": form.inputs, "outputs": form.outputs})
    return Declared(
        name, source, whole, below, origin, code, environment, includes, wrong, keys
    ), mistakes


def _environment(form: StepKeys) -> Any:
    """Return the environment that a step names or defines."""
    if isinstance(form, ParallelForm):
        return form.task.environment if form.task else None
    return form.environment if isinstance(form, CommandForm) else None


def without_python(given: Any, environment: NamedEnvironment, key: str) -> list[Key]:
    """Return the key of an environment for which no interpreter is given."""
    is_idle = given is not None and environment.python is None
    return [Key(key, Effect.NONE, OWN_PYTHON)] if is_idle else []


def _filled(
    form: type[StepKeys], content: Any, source: YamlSource
) -> tuple[Any, list[Mistake], frozenset[str]]:
    made, mistakes, wrong = filled_as_far(form, content, source.document, PORTS, source.loc)
    return made, [_where_it_is_set(one, source) for one in mistakes], wrong


def _where_it_is_set(mistake: Mistake, source: YamlSource) -> Mistake:
    """Return a mistake with the place in the outer file, if that sets the value."""
    way = mistake.key.removeprefix(f"{dotted(source.loc)}.").split(".")
    if source.at(*way) is source:
        return mistake
    return source.mistake(mistake.told, *way, of_key=mistake.told.startswith(NO_KEY))


def on_top(below: Any, above: Any) -> Any:
    """Return the form `below`, overridden by the keys set in `above`."""
    changes = {name: getattr(above, name) for name in above.model_fields_set}
    for name, value in changes.items():
        under = getattr(below, name)
        if isinstance(value, Form) and isinstance(under, Form):
            changes[name] = on_top(under, value)
        elif isinstance(value, dict) and isinstance(under, dict):
            changes[name] = {**under, **value}
    return below.model_copy(update=changes)


def _component(
    content: dict[str, Any], source: YamlSource, assets: Assets, mistakes: list[Mistake]
) -> tuple[Any, YamlSource | None]:
    """Return the component of a step: inline, from a file, or none."""
    given = content.get(COMPONENT)
    if isinstance(given, dict):
        return given, source.below(COMPONENT)
    if given is None:
        return None, None
    try:
        document = Document.read(assets.place(str(given), source.at(COMPONENT).base))
    except UsageError as error:
        mistakes.append(source.mistake(str(error), COMPONENT))
        return None, None
    if not isinstance(document.content, dict):
        mistakes.append(YamlSource.of(document).mistake("a component is a mapping of keys"))
        return None, None
    return document.content, YamlSource.of(document)


def kind_of_step(content: dict[str, Any], component: Any) -> str:
    """Return the type of a step or a component, which files may leave out."""
    for one in (component, content):
        kind = one.get("type") if isinstance(one, dict) else None
        if kind is not None and kind != "component":
            return str(kind)
    whole = {**content, **(component if isinstance(component, dict) else {})}
    return "pipeline" if "jobs" in whole else "parallel" if "task" in content else "command"


def _code(
    form: StepKeys, source: YamlSource, assets: Assets, mistakes: list[Mistake]
) -> Path | None:
    way: Loc = ("code",)
    if isinstance(form, ParallelForm):
        code, way = form.task.code if form.task else None, ("task", "code")
    elif isinstance(form, InnerPipelineForm):
        code = None
    else:
        code = form.code
    if code is None:
        return None
    try:
        text = code.local_path if isinstance(code, LocalPath) else code
        path = assets.place(text, source.at(*way).base)
    except UsageError as error:
        mistakes.append(source.mistake(str(error), *way))
        return None
    if not path.is_dir():
        mistakes.append(source.mistake(f"the folder {path} does not exist.{nearest(path)}", *way))
    return path


def _whole_code(
    levels: Sequence[tuple[Any, YamlSource]], assets: Assets, mistakes: list[Mistake]
) -> tuple[Path | None, tuple[Include, ...]]:
    """Return the code of a step, and what is put beside it, of the first level that has each.

    A level is a form and its place: those of the step, then those of its component.
    """
    codes = (_code(form, source, assets, mistakes) for form, source in levels)
    code = next((one for one in codes if one is not None), None)
    listing = (one for one in levels if getattr(one[0], KEY, None) is not None)
    form, source = next(listing, levels[-1])
    return _with_includes(form, source, code, assets, mistakes)


def _with_includes(
    form: StepKeys, source: YamlSource, code: Path | None, assets: Assets, mistakes: list[Mistake]
) -> tuple[Path | None, tuple[Include, ...]]:
    """Return the code of a step, and what its declaration, or a file beside it, puts there."""
    if isinstance(form, InnerPipelineForm):
        return code, ()
    words, file, base = form.additional_includes or [], "", source.at(KEY).base
    if not source.loc and (listed := listed_beside(source.document)):
        file = f"{Path(source.document.name).with_suffix(SUFFIX)}: "
        if words:
            mistakes.append(source.mistake(f"{file}this file lists them, too: leave out one", KEY))
        words, code = listed, code or source.base

    def wrong(problem: str) -> None:
        mistakes.append(source.mistake(f"{file}{problem}", KEY))

    return code, included(words, code, lambda word: assets.place(word, base), wrong)


def _forms(ports: dict[str, Any]) -> dict[str, Any]:
    return {name: port if isinstance(port, Form) else None for name, port in ports.items()}
