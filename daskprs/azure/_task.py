"""A task: the form to which every Azure surface reduces a run of `parallel_run`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.script.checked_script import check_script
from daskprs._options.run_options import RunOptions
from daskprs._options.site_defaults import options_of_call
from daskprs._options.time_rules import LONGEST_S
from daskprs._output.publish.output_file import check_output_file
from daskprs._output.publish.remote import is_remote
from daskprs.azure._append_row_settings import frame_settings
from daskprs.azure._assets import Assets
from daskprs.azure._missing_modules import refuse_missing_modules
from daskprs.azure._mltable.place import located
from daskprs.azure._run_place import RunPlace
from daskprs.azure._step_logs import link_driver_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Client

    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._job.frontend import Surface
    from daskprs._job.request import CheckedCall
    from daskprs._job.result import ParallelRunResult


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run of an entry script, in the words of `daskprs.parallel_run`."""

    name: str
    """The name of the step or of the deployment."""
    data: Any
    """The input, as `data` of `daskprs.parallel_run`."""
    script: str
    """The entry script: a path (absolute or relative to `source_directory`) or a dotted name."""
    source_directory: Path | None = None
    """The folder that the script imports from; None: the script's own folder."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options by `daskprs.RunOptions` name; they override the settings file beside the script."""
    job_dir: Path | None = None
    output_dir: Path | str | None = None
    names_output: bool = True
    """Whether the arguments of the script name the output folder, by ``--output``."""
    client: Client | str | None = None
    assets: Assets = field(default_factory=Assets)
    """The places of URLs that an MLTable names."""
    data_folders: tuple[Path, ...] = ()
    """Datastore folders; they do not count as source, though they lie beside the script."""
    other_python: str = ""
    """The option by which the caller names another interpreter for the script, for a message."""
    variable_files: Mapping[str, str] = field(default_factory=dict)
    """The files that have set environment variables, by the option of ``daskprs resume``."""
    ports: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    """The inputs and outputs that scripts find by their names in their run."""
    has_workspace: bool = True
    """Whether scripts reach a workspace; those of pipeline files do not."""

    def with_variables(self, more: Mapping[str, str]) -> Task:
        """Return this task with more environment variables for its agents; its own win."""
        variables = {**more, **(self.options.get("environment_variables") or {})}
        return replace(self, options={**self.options, "environment_variables": variables})

    def checked(self, **changes: Any) -> CheckedCall:
        """Return the call with changed options, after every check that costs little."""
        from daskprs._job.request import check_call

        with located(self.assets.located):
            call = check_call(
                self.data,
                self._script,
                self.run_options(**changes),
                client=self.client,
                job_dir=self.job_dir,
                output_dir=self.output_dir,
                text=True,
                lenient=True,
                data_folders=self.data_folders,
                names_output=self.names_output,
            )
        self._refuse_missing_modules(call.script, call.options)
        return call.with_variable_files(self.variable_files)

    def check(self, *, with_data: bool = True, **changes: Any) -> None:
        """Check a task that does not run yet, without looking at its job folder.

        `with_data` says whether its input and side inputs already exist.
        """
        if with_data:
            replace(self, job_dir=None).checked(**changes)
            return
        options = self.run_options(**changes)
        script = check_script(self._script, options.source_directory)
        self._refuse_missing_modules(script, options)
        has_rows = options.output_action == "append_row"
        if has_rows and self.output_dir is not None and not is_remote(self.output_dir):
            target = Path(self.output_dir) / options.append_row_file_name
            check_output_file(target, overwrite=options.overwrite)

    def _refuse_missing_modules(self, script: CheckedScript, options: RunOptions) -> None:
        """Refuse missing imports of the script, unless another machine may have them."""
        if self.client is None and script.root is not None and script.file is not None:
            more = (options.environment_variables or {}).get("PYTHONPATH", "").split(":")
            refuse_missing_modules(
                script.root / script.file,
                script.root,
                [*filter(None, more)],
                None if options.python is None else str(options.python),
                self.other_python,
                has_workspace=self.has_workspace,
            )

    def run_options(self, **changes: Any) -> RunOptions:
        """Return all options, checked, with those of the settings file and of Dask's config."""
        return _as_on_azure(options_of_call(self._given(changes)))

    def _given(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the task and of the settings file beside the script."""
        settings = frame_settings(self._folder_of_script())
        root = {} if self.source_directory is None else {"source_directory": self.source_directory}
        return {**settings, **root, **self.options, **changes}

    def run(
        self, *, progress: bool | None = None, surface: Surface | None = None, **changes: Any
    ) -> ParallelRunResult:
        """Run the task with changed options to its end, and return its result."""
        from daskprs._job.prestart import prestart

        if progress is not None:
            changes["progress"] = progress
        early = _as_on_azure(RunOptions(**self._given(changes)))
        with prestart(early, self.client, lambda: self.run_options(**changes)):
            from daskprs._job.job import Job

            call = self.checked(**changes)
            link_driver_log(call.folder)
            if any(self.ports):
                RunPlace(call.folder.path).keep_ports(*self.ports)
            return Job(call, surface).run()

    @property
    def _script(self) -> str:
        """The entry script; the source directory comes before the working directory."""
        inside = None if self.source_directory is None else self.source_directory / self.script
        return str(inside) if inside is not None and inside.is_file() else self.script

    def _folder_of_script(self) -> Path:
        root = self.source_directory or Path()
        if self.script.endswith(".py"):
            return (root / self.script).parent
        return root.joinpath(*self.script.split(".")[:-1])


def _as_on_azure(options: RunOptions) -> RunOptions:
    """Return the options with the defaults of Azure, where nothing has set another value.

    Each process has a GPU, whatever the script does, and `init` has the time of three calls, up to
    the limit of all times.
    """
    if options.finds_gpu_use:
        options = options.replace(gpus_per_process=1)
    if options.init_timeout is None:
        init = 3 * float(options.run_invocation_timeout) + 30
        options = options.replace(init_timeout=min(init, LONGEST_S))
    return options
