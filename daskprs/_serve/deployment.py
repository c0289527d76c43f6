"""The deployments behind an endpoint, and the choice of one for each request."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._serve.http_errors import Refusal
from daskprs._suggest import nearest_of
from daskprs.azure._deployments.batch_deployment import BatchDeployment
from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
from daskprs.azure._file_kinds import is_of_pipeline
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.forms import InputForm
from daskprs.azure._pipelines.ports import is_place
from daskprs.azure._pipelines.values import CallerInputs, as_type, foreign, wrong_value
from daskprs.azure._yaml_files.document import Document
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daskprs.azure._assets import Assets, NamedEnvironment

ALL = 100
KINDS_OF = {
    "uri_file": {"UriFile"},
    "uri_folder": {"UriFolder"},
    "mltable": {"MLTable"},
    **{
        f"{one}_model": {"UriFile", "UriFolder", "CustomModel", "MLFlowModel", "TritonModel"}
        for one in ("custom", "mlflow", "triton")
    },
}
"""The kinds of data for an input, by its type in a pipeline."""
OUTPUT_FILE_NAME = "settings.output_file_name"
HEADER = "azureml-model-deployment"
NO_DEPLOYMENT = "No valid deployments to route to"
"""The words that users of Azure's batch endpoints look for in a message."""


class ServedCall(NamedTuple):
    """The arguments of an invocation: places that were checked, by name, and values."""

    data: Mapping[str, str]
    kinds: Mapping[str, str]
    """The kind of each place of data: ``UriFile``."""
    literals: Mapping[str, str | float | bool]
    outputs: Mapping[str, Path]
    """The places that the caller named for outputs, by output."""
    is_file: Mapping[str, bool]
    """Whether each of them is a file, and not a folder."""
    overrides: Mapping[str, Any]
    """Changes to the deployment's file, by its dotted keys."""


class Planned(NamedTuple):
    """The plan of a job."""

    words: list[str]
    """A Python module, which the job's process runs, and its arguments."""
    output_dir: Path
    overrides: dict[str, Any]
    places: dict[str, bool]
    """The places that the caller named for output, and whether each is a file."""


class ServedDeployment:
    """A batch deployment of a model in a YAML file, which each job reads again.

    `words` are more arguments of ``daskprs invoke`` for every job. A `YamlError` has every mistake
    in the file.
    """

    def __init__(self, path: str, assets: Assets | None = None, words: Sequence[str] = ()) -> None:
        self._path = Path(path).absolute()
        deployment = BatchDeployment.load(path, assets=assets)
        self.environments = [deployment.environment]
        self._words = (*words, *_with_environments(self.environments))
        self.name = deployment.name
        self.endpoint_name = deployment.endpoint_name
        self.without_effect = tuple(deployment.without_effect)
        self.output_file_name = deployment.output_file_name
        self.files = (self._path, *deployment.code)
        """The files that say what a job does."""

    def refuse_unfit(self, call: ServedCall) -> None:
        """Refuse an invocation that the deployment cannot have."""
        message = None
        if len(call.data) != 1 or call.literals:
            message = "it takes one place of data"
        elif not {"UriFile", "UriFolder"}.issuperset(call.kinds.values()):
            message = "its data is a UriFile or a UriFolder"
        if message:
            message = f"{self.name} is a deployment of a model: {message}."
            raise Refusal(400, "BadRequest", message, target="properties.InputData")
        if len(call.outputs) > 1:
            message = f"{self.name} is a deployment of a model: it has one output."
            raise Refusal(400, "BadRequest", message, target="properties.OutputData")

    def planned(self, call: ServedCall, folder: Path) -> Planned:
        """Return what a job in a folder does for an invocation."""
        overrides, output_dir, places = dict(call.overrides), folder / "output", {}
        for output, path in call.outputs.items():
            output_dir = path
            if call.is_file[output]:
                overrides[OUTPUT_FILE_NAME], output_dir = path.name, path.parent
        name = self.output_file_name and overrides.get(OUTPUT_FILE_NAME, self.output_file_name)
        if call.outputs:
            places[str(output_dir / (name or ""))] = name is not None
        words = self.words(call.data, folder / "job", output_dir, overrides)
        return Planned(words, output_dir, overrides, places)

    def words(
        self,
        data: Mapping[str, str],
        job_dir: Path,
        output_dir: Path,
        overrides: Mapping[str, Any],
    ) -> list[str]:
        """Return the words after ``python -m`` for a job: a module and its arguments."""
        (place,) = data.values()
        return [
            *("daskprs", "invoke", str(self._path), "--input", place),
            *("--job-dir", str(job_dir), "--output-path", str(output_dir)),
            *self._words,
            *(word for key, value in overrides.items() for word in ("--set", f"{key}={value}")),
        ]


def _with_environments(used: Sequence[NamedEnvironment]) -> list[str]:
    """Return the options that give environments their interpreters."""
    given = {one.given: one.python for one in used if one.given is not None}
    return [
        word for name, python in given.items() for word in ("--environment", f"{name}={python}")
    ]


class ServedPipeline(ServedDeployment):
    """A batch deployment of a pipeline.

    Its commands receive the values of callers as arguments: a file with commands that cannot is
    refused, with every other mistake.
    """

    def __init__(self, path: str, assets: Assets, words: Sequence[str] = ()) -> None:
        self._path = Path(path).absolute()
        document = Document.read(path)
        deployed = pipeline_deployment_of(document, assets)
        given = CallerInputs(assets, deployed.overrides, is_served=True, with_inputs=False)
        with TemporaryDirectory(prefix="daskprs-served-") as folder:
            pipeline = read_pipeline(deployed.path, PipelineFolder(folder), given)
        self._inputs = pipeline.inputs
        self._outputs = {name: bound.is_file for name, bound in pipeline.outputs.items()}
        self.environments = list(pipeline.environments)
        self._words = (*words, *_with_environments(self.environments))
        self.files = (self._path, *pipeline.files)
        self.name = str(document.content.get("name") or self._path.stem)
        self.endpoint_name = document.content.get("endpoint_name")
        self.without_effect = deployed.without_effect

    def refuse_unfit(self, call: ServedCall) -> None:
        """Refuse an invocation that the deployment cannot have."""
        if call.overrides:
            keys = ", ".join(key.rpartition(".")[2] for key in call.overrides)
            problem = f"it has no {keys}: these are of deployments of models"
            raise self._refused(problem, "")
        for name in (*call.data, *call.literals):
            if name not in self._inputs:
                problem = f"it has no input {name!r}; {nearest_of(name, [*self._inputs])}"
                raise self._refused(problem, f"InputData.{name}")
        for name, form in self._inputs.items():
            wrong = self._problem(name, form, call)
            if wrong is not None:
                problem = f"the input {name!r}: {wrong}"
                raise self._refused(problem, f"InputData.{name}")
        for name in call.outputs:
            if name not in self._outputs:
                problem = f"it has no output {name!r}; {nearest_of(name, [*self._outputs])}"
                raise self._refused(problem, f"OutputData.{name}")
            if self._outputs[name] != call.is_file[name]:
                right = "UriFile" if self._outputs[name] else "UriFolder"
                problem = f"the output {name!r} is a {right}"
                raise self._refused(problem, f"OutputData.{name}")

    def _problem(self, name: str, port: Any, call: ServedCall) -> str | None:
        """Return the fault of an input of an invocation."""
        form = port if isinstance(port, InputForm) else InputForm(default=port)
        if name in call.data:
            if not is_place(port):
                return "it is a value: send it as a Literal"
            known = KINDS_OF.get(as_type(form.type) or "", {"UriFile", "UriFolder"})
            return None if call.kinds[name] in known else f"it is a {form.type}"
        if name in call.literals:
            return (
                "it is a place of data" if is_place(port) else self._wrong_literal(form, call, name)
            )
        is_given = form.default is not None or form.place is not None or form.optional
        return None if is_given else "it is missing"

    def _wrong_literal(self, form: InputForm, call: ServedCall, name: str) -> str | None:
        try:
            return wrong_value(form, foreign(_text(call.literals[name]), form.type))
        except ValueError as error:
            return str(error)

    def _refused(self, problem: str, target: str) -> Refusal:
        """Return the answer to an invocation that does not fit."""
        end = "" if problem.endswith("?") else "."
        message = f"{self.name} is a deployment of a pipeline: {problem}{end}"
        return Refusal(400, "BadRequest", message, target=f"properties.{target}".rstrip("."))

    def planned(self, call: ServedCall, folder: Path) -> Planned:
        """Return what a job in a folder does for an invocation."""
        job = PipelineFolder(folder / "job" / folder.name)  # beside it lie results of its steps
        inputs = {**call.data, **{name: _text(value) for name, value in call.literals.items()}}
        own = folder / "output"
        outputs = {name: call.outputs.get(name, own / name) for name in self._outputs}
        words = [
            *("daskprs", "invoke", str(self._path), "--values-as-arguments"),
            *("--job-dir", str(job), *self._words),
            *(word for name, value in inputs.items() for word in ("--input", f"{name}={value}")),
            *(word for name, path in outputs.items() for word in ("--output", f"{name}={path}")),
        ]
        places = {str(path): call.is_file[name] for name, path in call.outputs.items()}
        return Planned(words, own, {}, places)


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a value
    """Return a literal as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def served_deployment(path: str, assets: Assets, words: Sequence[str]) -> ServedDeployment:
    """Return the deployment in a file, of a model or of a pipeline."""
    is_pipeline = is_of_pipeline(Document.read(path).content)
    return (ServedPipeline if is_pipeline else ServedDeployment)(path, assets, words)


class Deployments:
    """Several deployments of different names; a single one is the default.

    `traffic` has the percentages of the requests that name none, by deployment.
    """

    def __init__(
        self,
        known: Sequence[ServedDeployment],
        default: str | None = None,
        traffic: Mapping[str, int] | None = None,
    ) -> None:
        self._known = {one.name: one for one in known}
        self.traffic = dict(traffic or {})
        if len(self._known) < len(known):
            names = ", ".join(one.name for one in known)
            msg = f"serve: deployments need different names, got {names}."
            raise OptionError(msg)
        if default is not None and default not in self._known:
            msg = f"--default {default}: unknown deployment; there are {self._listed()}."
            raise OptionError(msg)
        self._check_traffic(default)
        self.default = next(iter(self._known)) if len(self._known) == 1 else default
        self.warning = ""
        """What an operator has to know before the service starts."""
        if self.default is None and not self.traffic:
            self.warning = (
                f"there is no default deployment: a request that names none by the header {HEADER} "
                f"is refused. Give --default NAME, or --traffic: there are {self._listed()}."
            )

    def _check_traffic(self, default: str | None) -> None:
        for name, percent in self.traffic.items():
            if name not in self._known:
                msg = f"--traffic {name}={percent}: unknown deployment; there are {self._listed()}."
                raise OptionError(msg)
        total = sum(self.traffic.values())
        if self.traffic and total != ALL:
            msg = f"--traffic: the percentages have to make {ALL}, and make {total}."
            raise OptionError(msg)
        if self.traffic and default is not None:
            msg = f"--default {default}: --traffic says already where requests go that name none."
            raise OptionError(msg)

    @property
    def names(self) -> list[str]:
        """Return the names of the deployments."""
        return list(self._known)

    def chosen(self, name: str | None, request_id: str | None = None) -> ServedDeployment:
        """Return the deployment that a request names, or the default.

        Where traffic is split, the request's id decides, so that a retry has the same deployment.
        """
        wanted = name or (self._by_traffic(request_id) if self.traffic else self.default)
        found = None if wanted is None else self._known.get(wanted)
        if found is not None:
            return found
        why = f"there is none called {wanted!r}" if wanted else "this endpoint has no default one"
        message = f"{NO_DEPLOYMENT}: {why}. By the header {HEADER} choose one of {self._listed()}."
        raise Refusal(404, "NoValidDeployment", message, target=HEADER)

    def _by_traffic(self, request_id: str | None) -> str:
        seed = (request_id or token_hex(8)).encode()
        point = int.from_bytes(sha256(seed).digest()[:8]) % ALL
        ends = accumulate(self.traffic.values())
        return next(name for name, end in zip(self.traffic, ends, strict=True) if point < end)

    def _listed(self) -> str:
        return ", ".join(self._known)
