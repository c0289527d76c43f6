"""The inputs and outputs of a pipeline itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.expressions import ExpressionError, Reference, filled_in, parsed
from daskprs.azure.pipelines.bound import Binding, as_type, takes_path, unknown
from daskprs.azure.pipelines.forms.port import InputForm, OutputForm
from daskprs.inputs.source.input_file import is_url
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.mistakes import Mistake, nearest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daskprs.azure.assets import Assets
    from daskprs.azure.pipelines.component import YamlSource
    from daskprs.azure.pipelines.forms.pipeline import JobForm
    from daskprs.azure.pipelines.values import Values
    from daskprs.folders.pipeline_folder import PipelineFolder


STORE = "workspaceblobstore"
"""The default datastore of a workspace."""


class PipelinePorts:
    """Assigns values to the inputs and outputs of a pipeline.

    Parameters
    ----------
    form, source
        The pipeline, and the place of its declaration.
    values
        Creates values, and collects mistakes.
    folder
        The folder of the run, for outputs without a place of their own.
    inputs, outputs
        The caller's values, by name; paths are relative to the working directory.
    with_inputs
        Whether every input must have a value.

    """

    def __init__(
        self,
        form: JobForm,
        source: YamlSource,
        values: Values,
        folder: PipelineFolder,
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        *,
        with_inputs: bool = True,
    ) -> None:
        self._with_inputs = with_inputs
        self._source = source
        self._values = values
        self._folder = folder
        settings = form.settings
        store = (settings.default_datastore or settings.datastore) if settings else None
        self.store = (store or STORE).removeprefix("azureml:")
        self.inputs = {
            name: self._input(name, port, inputs.get(name))
            for name, port in (form.inputs or {}).items()
        }
        self.outputs = {
            name: self._output(name, port, outputs.get(name))
            for name, port in (form.outputs or {}).items()
        }
        self.refuse_unknown("--input", inputs, self.inputs)

    def text(self, one: Reference) -> str | None:
        """Return the value of an expression outside of any step.

        Raises
        ------
        ExpressionError
            When the expression has no meaning there.

        """
        if one.scope == "default_datastore":
            return self.store
        if one.scope == "inputs" and one.of_parent and one.name in self.inputs:
            return self.inputs[one.name].text
        known = ", ".join(f"${{{{parent.inputs.{name}}}}}" for name in self.inputs) or "none"
        msg = f"{one} cannot stand here; inputs of the pipeline can: {known}"
        raise ExpressionError(msg)

    def refuse_unknown(self, flag: str, given: Iterable[str], known: Iterable[str]) -> None:
        """Refuse inputs or outputs from the caller that the pipeline does not have."""
        known = [*known]
        for name in given:
            if name not in known:
                told = f"there is no {flag[2:]} {name!r}; {nearest_of(name, known)}"
                self._values.mistakes.append(Mistake(self._source.place(), f"{flag} {name}", told))

    def _input(self, name: str, port: Any, given: str | None) -> Binding:
        values, source = self._values, self._source
        way: tuple[str, ...] = ("inputs", name)
        form = port if isinstance(port, InputForm) else None
        kind = as_type(form.type) if form else None
        is_path = takes_path(kind) or (
            form is not None and (form.place is not None or (kind is None and form.default is None))
        )
        if given is not None and is_path:
            return values.existing(
                Binding(str(Path.cwd() / given), kind, is_path=True), source, *way
            )
        if given is not None:
            text = kind == "string"
            value = given if text else Document(given, f"--input {name}").content
            return values.fitting(form, Binding(value, kind), source, *way)
        if form is None:
            return Binding(port)
        if form.place is not None:
            way = (*way, "path") if form.path is not None else way
            return values.existing(values.path(form.place, kind, source, *way), source, *way)
        if form.default is None and not form.optional:
            if self._with_inputs:
                values.wrong(f"it has no value: give it by --input {name}=…", source, *way)
            return unknown(kind)
        return values.fitting(form, Binding(form.default, kind), source, *way)

    def _output(self, name: str, port: Any, given: str | None) -> Binding:
        form = port if isinstance(port, OutputForm) else None
        kind = as_type(form.type) if form else None
        if given is not None:
            return Binding(str(Path.cwd() / given), kind, is_path=True)
        if form is None or form.path is None:
            return Binding(str(self._folder.outputs / name), kind, is_path=True)
        way = ("outputs", name, "path")
        words = {"name": self._folder.path.name, "output_name": name}
        words["default_datastore"] = self.store

        def word(one: Reference) -> str:
            if one.scope in words:
                return words[one.scope]
            msg = f"{one}: the place of an output cannot depend on it"
            raise ExpressionError(msg)

        try:
            text = filled_in(parsed(form.path), word)
        except ExpressionError as error:
            self._values.wrong(error, self._source, *way)
            return unknown(kind)
        return self._values.path(text, kind, self._source, *way, made=True)


def texts_of(ports: Mapping[str, Any], base: Path, assets: Assets) -> dict[str, str]:
    """Return the values of ports, as they are given on the command line.

    Parameters
    ----------
    ports
        Forms of inputs or outputs, and plain values, by name.
    base
        The folder that paths are relative to.
    assets
        The known local paths of assets and datastores.

    Raises
    ------
    UsageError
        For a reference whose local path is unknown.

    """
    found = {}
    for name, port in ports.items():
        value = port
        if isinstance(port, InputForm):
            value = port.default if port.place is None else _path(port.place, base, assets)
        elif isinstance(port, OutputForm):
            value = None if port.path is None else _path(port.path, base, assets)
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _path(path: str, base: Path, assets: Assets) -> str:
    url = is_url(path) and not path.startswith("azureml:")
    return path if url else str(assets.place(path, base))
