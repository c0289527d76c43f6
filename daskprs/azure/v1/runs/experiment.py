"""`Experiment`: runs pipelines and scripts, here and to their end."""

from __future__ import annotations

import re
import secrets
from itertools import count
from typing import TYPE_CHECKING, Any, overload

from daskprs.azure.reuse import ReusableResults
from daskprs.azure.v1.config.parameter import refuse_unknown
from daskprs.azure.v1.runs.runs import PipelineRun, StepRun
from daskprs.azure.v1.runs.script_run import Run
from daskprs.azure.v1.runs.script_step import ScriptRunConfig
from daskprs.folders.job_folder import default_path
from daskprs.folders.pipeline_folder import PipelineFolder, write_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distributed import Client

    from daskprs.azure.v1.runs.pipeline import Pipeline
    from daskprs.azure.v1.workspace import Workspace


class Experiment:
    """Runs pipelines: here, now, and to their end.

    Parameters
    ----------
    workspace : Workspace, optional
        The workspace whose models scripts find.
    name : str
        The name of the experiment, which its runs bear.

    """

    def __init__(self, workspace: Workspace | None = None, name: str = "experiment") -> None:
        self.workspace = workspace
        self.name = name

    def start_logging(self, **_: Any) -> Run:
        """Return a run of what follows in this process."""
        folder = default_path(self.name, secrets.token_hex(4)).absolute()
        return Run(folder, self.workspace, experiment_name=self.name)

    @overload
    def submit(self, config: Pipeline, **given: Any) -> PipelineRun: ...

    @overload
    def submit(self, config: ScriptRunConfig, **given: Any) -> StepRun: ...

    def submit(
        self,
        config: Pipeline | ScriptRunConfig,
        *,
        pipeline_parameters: Mapping[str, Any] | None = None,
        regenerate_outputs: bool = False,
        client: Client | str | None = None,
        progress: bool | None = None,
        **_: Any,
    ) -> PipelineRun | StepRun:
        """Run the steps of a pipeline one after the other, and return the finished run.

        Parameters
        ----------
        config
            The pipeline, or one script.
        pipeline_parameters
            Values of parameters by name; the others are at their defaults.
        regenerate_outputs
            Run every step, whether or not an earlier run has done the same.
        client, progress
            As those of `daskprs.parallel_run`.

        Raises
        ------
        UsageError, JobFolderError, ParallelRunFailed, ParallelRunCanceled
            As by `daskprs.parallel_run`, of the first step that does.

        """
        parameters = pipeline_parameters or {}
        refuse_unknown(parameters, config.parameters())
        parent = PipelineFolder(default_path(self.name, secrets.token_hex(4)))
        steps = [config] if isinstance(config, ScriptRunConfig) else config.steps
        _keep_record(parent, self.name, [])
        runs: list[StepRun] = []
        for step in steps:
            place = _folder_of(step.name, parent, runs)
            outcome = step.execute(
                place,
                parameters=parameters,
                workspace=getattr(config, "workspace", None) or self.workspace,
                client=client,
                parent=parent,
                results=None if regenerate_outputs else ReusableResults(parent.results),
                progress=progress,
            )
            runs.append(StepRun(step, place, parent.path.name, outcome))
            _keep_record(parent, self.name, runs)
        if isinstance(config, ScriptRunConfig):
            return runs[0]
        return PipelineRun(parent.path.name, parent.path, runs)


def _folder_of(name: str, parent: PipelineFolder, runs: list[StepRun]) -> Path:
    """Return a unique folder for a step; its name needs no quotes in a shell."""
    plain = re.sub(r"[^\w.-]+", "-", name)
    taken = {one.folder.name for one in runs}
    names = (plain if at == 0 else f"{plain}-{at}" for at in count())
    return parent.step(next(one for one in names if one not in taken))


def _keep_record(folder: PipelineFolder, name: str, runs: list[StepRun]) -> None:
    """Write the record of the steps so far, which marks the folder as that of a run."""
    folder.path.mkdir(parents=True, exist_ok=True)
    write_record(folder, name, {one.folder.name: {"status": "Completed"} for one in runs})
