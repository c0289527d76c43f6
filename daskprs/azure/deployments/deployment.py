"""A checked deployment: its keys with everything they refer to, or all mistakes in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.script.checked_script import check_script
from daskprs.azure.deployments.form import (
    Code,
    Compute,
    DeploymentSettings,
    ModelDeployment,
    ModelForm,
)
from daskprs.azure.deployments.model_folder import DRIVER, OF_MLFLOW, is_mlflow
from daskprs.errors import UsageError
from daskprs.suggest import nearest
from daskprs.yaml_files.document import dotted
from daskprs.yaml_files.form import filled_as_far, ineffective
from daskprs.yaml_files.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.azure.assets import Assets
    from daskprs.yaml_files.document import Document, Loc
    from daskprs.yaml_files.form import Key

SCRIPT: Loc = ("code_configuration", "scoring_script")


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
    without_effect: tuple[Key, ...]

    @property
    def by_mlflow(self) -> bool:
        """Whether MLflow scores, not a script of the deployment's own."""
        return self.source_directory == DRIVER.parent

    def options(self) -> dict[str, Any]:
        """Return the deployment's options, by the names of `daskprs.RunOptions`."""
        settings = self.settings
        return {
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
    document: Document, content: Any, folder: Path, assets: Assets
) -> tuple[Deployment | None, list[Mistake]]:
    """Return the deployment that a document describes, and all mistakes in it.

    Parameters
    ----------
    document
        The file.
    content
        The content of the file, after changes.
    folder
        The folder that the file's paths are relative to.
    assets
        The known local paths of assets.

    """
    content = {} if content is None else content
    form, mistakes, wrong = filled_as_far(ModelDeployment, content, document)
    if form is None:
        return None, mistakes
    reading = _DeploymentReader(form, document, folder, assets, mistakes, wrong)
    found = reading.deployment()
    return (None if mistakes else found), mistakes


class _DeploymentReader:
    """One form on its way to a deployment."""

    def __init__(
        self,
        form: ModelDeployment,
        document: Document,
        folder: Path,
        assets: Assets,
        mistakes: list[Mistake],
        wrong: frozenset[str],
    ) -> None:
        self._form = form
        self._document = document
        self._folder = folder
        self._assets = assets
        self._mistakes = mistakes
        self._left_out = wrong

    def deployment(self) -> Deployment:
        form = self._form
        model, model_name = self._model()
        script, root = self._script(model)
        return Deployment(
            form.name or Path(self._document.name).stem,
            form.endpoint_name,
            self._settings(),
            self._instance_count(),
            script,
            root,
            model,
            model_name,
            tuple(_said(ineffective(form))),
        )

    def _wrong(self, loc: Loc, told: str) -> None:
        self._mistakes.append(Mistake(self._document.place(loc), dotted(loc), told))

    def _place(self, reference: str, loc: Loc) -> Path | None:
        """Return the local path of a reference in the file, if it exists."""
        try:
            path = self._assets.place(reference, self._folder)
            is_there = path.exists()
        except (UsageError, OSError) as error:  # a name that is too long, say
            self._wrong(loc, str(error))
            return None
        if not is_there:
            self._wrong(loc, f"there is no file or folder {str(path)!r}.{nearest(path)}")
            return None
        return path.resolve()

    # ---- what scores, and with what ----

    def _model(self) -> tuple[Path | None, str]:
        match self._form.model:
            case ModelForm(path=path, local_path=local, name=name):
                if path is None and local is None:
                    self._wrong(("model",), "it has no path")
                    return None, ""
                reference, loc = path or local or "", ("model", "path" if path else "local_path")
                found = self._place(reference, loc if path or local else ("model",))
            case str(reference):
                found, name = self._place(reference, ("model",)), _asset_name(reference)
            case None:
                return None, ""
        return found, name or (found.name if found else "")

    def _script(self, model: Path | None) -> tuple[str, Path]:
        code = self._form.code_configuration
        if code is None and not self._left_out.isdisjoint(("model", "code_configuration")):
            return "", self._folder
        if code is None:
            if self._form.model is None:
                self._wrong((), "it has neither a code_configuration nor a model")
            elif model is not None and not is_mlflow(model):
                told = (
                    f"there is none, and the model {model} is not one of MLflow's, which need "
                    f"none: it has no file {OF_MLFLOW}"
                )
                self._wrong(("code_configuration",), told)
            return DRIVER.name, DRIVER.parent
        root: Path | None = self._folder
        if code.code is not None:
            root = self._code(code.code)
        if root is not None:
            try:
                check_script(root / code.scoring_script, root)
            except UsageError as error:
                self._wrong(SCRIPT, str(error))
        return code.scoring_script, root or self._folder

    def _code(self, code: str | Code) -> Path | None:
        loc: Loc = ("code_configuration", "code")
        reference = code if isinstance(code, str) else code.path or code.local_path
        if reference is None:
            self._wrong(loc, "it has no path")
            return None
        root = self._place(reference, loc)
        if root is not None and not root.is_dir():
            self._wrong(loc, f"{str(root)!r} is no folder: the script's name stands beside it")
            return None
        return root

    # ---- how ----

    def _settings(self) -> DeploymentSettings:
        """Return the settings, from either place that may hold them."""
        form = self._form
        inner = form.settings or DeploymentSettings()
        own = form.model_fields_set & DeploymentSettings.model_fields.keys()
        for name in sorted(own & inner.model_fields_set):
            self._wrong((name,), f"it stands in settings, too: {getattr(inner, name)!r}")
        return inner.model_copy(update={name: getattr(form, name) for name in own})

    def _instance_count(self) -> int:
        form = self._form
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


def _asset_name(reference: str) -> str | None:
    if not reference.startswith("azureml:"):
        return None
    return reference.removeprefix("azureml:").partition("@")[0].partition(":")[0] or None


def _said(keys: Iterator[Key]) -> Iterator[Key]:
    """Leave out what lies in what is said already, and what says what a file is."""
    said: set[str] = {"$schema", "model.$schema"}
    for key in keys:
        if key.name not in said and key.name.rpartition(".")[0] not in said:
            said.add(key.name)
            yield key
