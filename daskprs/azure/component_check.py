"""A component by itself, without a pipeline: what can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.checked_script import check_script
from daskprs.azure.bound import takes_path
from daskprs.azure.component import Declared, Source, declared
from daskprs.azure.expressions import ExpressionError, Reference, only_reference, parsed, references
from daskprs.azure.filled_text import words
from daskprs.azure.missing_modules import missing_modules
from daskprs.azure.parallel_form import ParallelForm
from daskprs.azure.port_form import InputForm
from daskprs.azure.system_flags import split_flags
from daskprs.errors import UsageError
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from daskprs.azure.assets import Assets
    from daskprs.yaml_files.document import Document
    from daskprs.yaml_files.mistakes import Mistake

ENTRY = ("task", "entry_script")
ANY = "value"
"""Stands for what an input will be."""


def check_component(document: Document, assets: Assets) -> tuple[list[Mistake], list[str]]:
    """Return all that is wrong with a component, warnings included, and keys without effect."""
    source = Source.of(document)
    step, mistakes = declared(Path(document.name).stem, document.content, source, assets)
    if step is None or step.wrong:
        return mistakes, []
    check = _Check(step, mistakes)
    check.parallel(step.form) if isinstance(step.form, ParallelForm) else check.command()
    return mistakes, [key.name for key in step.without_effect if key.name != "$schema"]


class _Check:
    """Looks at what the keys of a component mean together."""

    def __init__(self, step: Declared, mistakes: list[Mistake]) -> None:
        self._step = step
        self._mistakes = mistakes
        self._ports: dict[str, dict[str, Any]] = {
            "inputs": step.given_inputs,
            "outputs": step.given_outputs,
        }

    def parallel(self, form: ParallelForm) -> None:
        """Check a parallel component."""
        self._data(form.input_data)
        task = form.task
        if task is None:
            self._wrong("it is missing", "task")
            return
        self._script(task.entry_script)
        if task.append_row_to is not None:
            self._port(task.append_row_to, "outputs", "task", "append_row_to")
        key = "args" if task.program_arguments is None else "program_arguments"
        self._arguments(task.program_arguments or task.args or "", key)

    def command(self) -> None:
        """Check a command component."""
        text = getattr(self._step.form, "command", None)
        if text is None:
            self._wrong("it is missing: the command that the step runs", "command")
            return
        try:
            for one in references(parsed(text)):
                self._known(one)
        except ExpressionError as error:
            self._wrong(str(error), "command")

    def _wrong(self, told: str, *way: str, is_warning: bool = False) -> None:
        mistake = self._step.source.mistake(told, *way)
        self._mistakes.append(mistake._replace(is_warning=is_warning))

    # ---- keys ----

    def _data(self, text: str | None) -> None:
        if text is None:
            self._wrong("it is missing: it names an input, ${{inputs.<name>}}", "input_data")
            return
        name = self._port(text, "inputs", "input_data")
        port = self._ports["inputs"].get(name or "")
        if isinstance(port, InputForm) and port.type == "uri_file":
            told = f"{text} is a uri_file: what is cut has to be a uri_folder or an mltable"
            self._wrong(told, "input_data")
        elif isinstance(port, InputForm) and not takes_path(port.type or "uri_folder"):
            told = f"{text} is a {port.type}: what is cut has to be a uri_folder or an mltable"
            self._wrong(told, "input_data")

    def _script(self, script: str | None) -> None:
        if script is None:
            self._wrong("it is missing", *ENTRY)
            return
        root = self._step.code or self._step.source.base
        path = root / script
        try:
            checked = check_script(path if path.is_file() else script, root)
        except UsageError as error:
            self._wrong(str(error), *ENTRY)
            return
        if checked.root is not None and checked.file is not None:
            names = map(str, missing_modules(checked.root / checked.file, checked.root))
            told = ", ".join(names)
            if told:
                self._wrong(f"it imports what this Python lacks: {told}", *ENTRY)

    def _arguments(self, text: str, key: str) -> None:
        try:
            flags, wrong = split_flags(words(text, self._known))
        except (ExpressionError, ValueError) as error:
            self._wrong(str(error), "task", key)
            return
        for told in wrong:
            self._wrong(told, "task", key)
        for told in flags.warnings:
            self._wrong(told, "task", key, is_warning=True)

    # ---- expressions ----

    def _port(self, text: str, scope: str, *way: str) -> str | None:
        """Return the name of the input or output that a key is."""
        try:
            one = only_reference(parsed(text))
            if one is None or one.scope != scope:
                told = f"it has to be one expression, as ${{{{{scope}.<name>}}}}, not {text!r}"
                self._wrong(told, *way)
                return None
            self._known(one)
        except ExpressionError as error:
            self._wrong(str(error), *way)
            return None
        return one.name

    def _known(self, one: Reference) -> str:
        """Refuse an input or output that the component does not have."""
        ports = self._ports.get(one.scope)
        if ports is None:
            return ANY
        if one.of_parent or one.name not in ports:
            told = nearest_of(one.name, [*ports])
            msg = f"{one} is none of the component's {one.scope}; {told}"
            raise ExpressionError(msg)
        return ANY
