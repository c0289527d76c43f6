"""A checked deployment: its keys with everything they refer to, or all mistakes in it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.script.checked_script import check_script
from daskprs._suggest import nearest
from daskprs.azure._assets import bare_name
from daskprs.azure._deployments.form import (
    Code,
    Compute,
    DeploymentSettings,
    ModelDeployment,
    ModelForm,
)
from daskprs.azure._deployments.model_folder import DRIVER, OF_MLFLOW, is_mlflow
from daskprs.azure._pipelines.component import YamlSource, without_python
from daskprs.azure._yaml_files.form import Key, filled_as_far, ineffective
from daskprs.azure._yaml_files.mistakes import Mistake
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daskprs.azure._assets import Assets, NamedEnvironment
    from daskprs.azure._yaml_files.document import Document, Loc

SCRIPT: Loc = ("code_configuration", "scoring_script")
INSTANCE_COUNT = "instance_count"
HOLDERS_OF_COUNT = ("resources", "settings", "compute")
SETTINGS = "settings"


@dataclass(frozen=True)
class Deployment:
    """A checked deployment of a model."""

    name: str
    endpoint_name: str | None
    settings: DeploymentSettings
    instance_count: int
    script: str
    source_directory: Path
    model: Path | None
    model_name: str
    """The model's name for scripts; for a model without a name, that of its file or folder."""
    environment: NamedEnvironment
    without_effect: tuple[Key, ...]

    @property
    def by_mlflow(self) -> bool:
        """Whether MLflow scores, not a script of the deployment's own."""
        return self.source_directory == DRIVER.parent

    def options(self) -> dict[str, Any]:
        """Return the deployment's options, by the names of `daskprs.RunOptions`."""
        settings, python = self.settings, self.environment.python
        return {
            **({} if python is None else {"python": python}),
            "input_type": "files",
            "mini_batch_size": settings.mini_batch_size,
            "node_count": self.instance_count,
            "process_count_per_node": settings.max_concurrency_per_instance,
            "error_threshold": settings.error_threshold,
            "allowed_failed_count": -1,
            "run_invocation_timeout": settings.retry_settings.timeout,
            "run_max_try": max(1, settings.retry_settings.max_retries),
            "fail_on_timeout": True,
            "output_action": settings.output_action,
            "append_row_file_name": settings.output_file_name,
            "logging_level": settings.logging_level,
            "environment_variables": settings.environment_variables or {},
        }


def deployment_of(
    document: Document, content: Any, assets: Assets
) -> tuple[Deployment | None, list[Mistake]]:
    """Return the deployment in a document, whose content may be changed, and all mistakes in it."""
    content = {} if content is None else content
    form, mistakes, wrong = filled_as_far(ModelDeployment, content, document)
    if form is None:
        return None, mistakes
    source = YamlSource.of(document)
    found = _DeploymentReader(form, source, assets, mistakes, wrong).deployment()
    return (None if mistakes else found), mistakes


@dataclass(frozen=True)
class _DeploymentReader:
    """One form on its way to a deployment."""

    form: ModelDeployment
    source: YamlSource
    assets: Assets
    mistakes: list[Mistake]
    left_out: frozenset[str]

    def deployment(self) -> Deployment:
        form = self.form
        model, model_name = self._model()
        script, root = self._script(model)
        name = form.name or Path(self.source.document.name).stem
        environment = self.assets.environment(form.environment, self.source.base, name)
        unused, place = self.assets.unused_environments([environment]), self.source.place()
        self.mistakes.extend(Mistake(place, *one) for one in unused)
        return Deployment(
            name,
            form.endpoint_name,
            self._settings(),
            self._instance_count(),
            script,
            root,
            model,
            model_name,
            environment,
            (
                *_once(ineffective(form)),
                *without_python(form.environment, environment, "environment"),
            ),
        )

    def _wrong(self, loc: Loc, problem: str) -> None:
        self.mistakes.append(self.source.mistake(problem, *loc))

    def _place(self, reference: str, loc: Loc) -> Path | None:
        """Return the local path of a reference in the file, if it exists."""
        try:
            path = self.assets.place(reference, self.source.base)
            is_there = path.exists()
        except (UsageError, OSError) as error:  # a name that is too long, say
            self._wrong(loc, str(error))
            return None
        if not is_there:
            problem = f"the file or folder {str(path)!r} does not exist.{nearest(path)}"
            if bare_name(reference, self.source.base):
                problem += (
                    f" Nor is there an asset of this name: give its place by --asset "
                    f"{reference}=PATH, or register it."
                )
            self._wrong(loc, problem)
            return None
        return path.resolve()

    # ---- what scores, and with what ----

    def _model(self) -> tuple[Path | None, str]:
        match self.form.model:
            case ModelForm(path=None, local_path=None):
                self._wrong(("model",), "it has no path")
                return None, ""
            case ModelForm(path=path, local_path=local, name=name):
                below = ("path",) if path else ("local_path",) if local else ()
                found = self._place(path or local or "", ("model", *below))
            case str(reference):
                found = self._place(reference, ("model",))
                name = _asset_name(reference, self.source.base)
            case None:
                return None, ""
        return found, name or (found.name if found else "")

    def _script(self, model: Path | None) -> tuple[str, Path]:
        code = self.form.code_configuration
        if code is None and not self.left_out.isdisjoint(("model", "code_configuration")):
            return "", self.source.base
        if code is None:
            if self.form.model is None:
                self._wrong((), "it has neither a code_configuration nor a model")
            elif model is not None and not is_mlflow(model):
                problem = (
                    f"it is missing, and the model {model} is not an MLflow model, which needs "
                    f"none: it has no file {OF_MLFLOW}"
                )
                self._wrong(("code_configuration",), problem)
            return DRIVER.name, DRIVER.parent
        root = self.source.base if code.code is None else self._code(code.code)
        if root is not None:
            try:
                check_script(root / code.scoring_script, root)
            except UsageError as error:
                self._wrong(SCRIPT, str(error))
        return code.scoring_script, root or self.source.base

    def _code(self, code: str | Code) -> Path | None:
        loc: Loc = ("code_configuration", "code")
        reference = code if isinstance(code, str) else code.path or code.local_path
        if reference is None:
            self._wrong(loc, "it has no path")
            return None
        root = self._place(reference, loc)
        if root is not None and not root.is_dir():
            self._wrong(loc, f"{str(root)!r} is not a folder: the script's name stands beside it")
            return None
        return root

    # ---- how ----

    def _settings(self) -> DeploymentSettings:
        """Return the settings, from either place that may hold them."""
        form = self.form
        inner = form.settings or DeploymentSettings()
        own = form.model_fields_set & DeploymentSettings.model_fields.keys()
        for name in sorted(own & inner.model_fields_set):
            self._wrong((name,), f"it stands in settings, too: {getattr(inner, name)!r}")
        return inner.model_copy(update={name: getattr(form, name) for name in own})

    def _instance_count(self) -> int:
        form = self.form
        counts = {
            ("resources", "instance_count"): form.resources and form.resources.instance_count,
            ("settings", "instance_count"): form.settings and form.settings.instance_count,
            ("instance_count",): form.instance_count,
            ("compute", "instance_count"): isinstance(form.compute, Compute)
            and form.compute.instance_count,
        }
        given = {loc: count for loc, count in counts.items() if count}
        first = next(iter(given.values()), 1)
        for loc, count in given.items():
            if count != first:
                self._wrong(loc, f"another instance_count is {first}, this one {count}")
        return int(first)


def _asset_name(reference: str, base: Path) -> str | None:
    if bare := bare_name(reference, base):
        return bare["name"]
    if not reference.startswith("azureml:"):
        return None
    return reference.removeprefix("azureml:").partition("@")[0].partition(":")[0] or None


def _once(keys: Iterator[Key]) -> Iterator[Key]:
    """Yield each key once, without the keys inside another key."""
    shown: set[str] = set()
    for key in keys:
        if key.name not in shown and key.name.rpartition(".")[0] not in shown:
            shown.add(key.name)
            yield key


# ---- changes of an invocation ----


def changed(content: Any, changes: Mapping[str, Any]) -> Any:
    """Return a changed copy of a file's content, for values by dotted key: ``settings.timeout``.

    Both forms of files take both ways to name a setting.
    """
    if not isinstance(content, dict) or not changes:
        return content
    content = copy.deepcopy(content)
    for key, value in changes.items():
        way = key.split(".")
        if way[-1] == INSTANCE_COUNT and way[:-1] in ([], *([one] for one in HOLDERS_OF_COUNT)):
            for holder in (content, *map(content.get, HOLDERS_OF_COUNT)):
                if isinstance(holder, dict):
                    holder.pop(INSTANCE_COUNT, None)
            way = ["resources", INSTANCE_COUNT]
        elif way[0] == SETTINGS and len(way) > 1 and way[1] in content:
            way = way[1:]
        elif way[0] in DeploymentSettings.model_fields and way[0] not in content:
            way = [SETTINGS, *way]
        _put(content, way, value)
    return content


def _put(content: dict[str, Any], way: list[str], value: Any) -> None:
    *above, last = way
    for name in above:
        inner = content.get(name)
        if not isinstance(inner, dict):
            inner = content[name] = {}
        content = inner
    content[last] = value
