"""A `ParallelRunConfig` as a parallel job of a v2 pipeline: the same run, in the other words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.config.compute import name_of_compute
from daskprs.azure.v1.config.environment import Environment
from daskprs.inputs.source.sizes import DEFAULT_FILES

if TYPE_CHECKING:
    from daskprs.azure.v1.config.config_form import ConfigForm

INPUT, OUTPUT = "data", "output"


def parallel_job(form: ConfigForm, data: str, data_type: str, output: str) -> dict[str, Any]:
    """Return the job, as what stands below its name in ``jobs``.

    Parameters
    ----------
    form
        What is configured.
    data, data_type
        The path of its input, and ``uri_folder`` or ``mltable``.
    output
        The folder of its output.

    """
    size = form.mini_batch_size
    if size is None and not form.partition_keys and data_type == "uri_folder":
        size = DEFAULT_FILES  # in a job it would be 1
    count = form.allowed_failed_count
    job = {
        "type": "parallel",
        "description": form.description,
        "compute": f"azureml:{name_of_compute(form.compute_target)}",
        "inputs": {INPUT: {"type": data_type, "path": data}},
        "outputs": {OUTPUT: _output(form, output)},
        "input_data": f"${{{{inputs.{INPUT}}}}}",
        "mini_batch_size": None if size is None else str(size),
        "partition_keys": form.partition_keys,
        "max_concurrency_per_instance": form.process_count_per_node,
        "error_threshold": form.error_threshold,
        "mini_batch_error_threshold": -1 if count is None else count,
        "logging_level": form.logging_level,
        "retry_settings": {
            "max_retries": form.run_max_try - 1,
            "timeout": form.run_invocation_timeout,
        },
        "resources": {"instance_count": form.node_count},
        "environment_variables": form.all_variables(),
        "task": _task(form),
    }
    return {name: value for name, value in job.items() if value is not None}


def _output(form: ConfigForm, folder: str) -> dict[str, str]:
    if form.output_action == "append_row" and form.append_row_file_name is not None:
        return {"type": "uri_file", "path": f"{folder}/{form.append_row_file_name}"}
    return {"type": "uri_folder", "path": folder}


def _task(form: ConfigForm) -> dict[str, Any]:
    percent = form.allowed_failed_percent
    task = {
        "type": "run_function",
        "code": form.source_directory,
        "entry_script": form.entry_script,
        "environment": _environment(form.environment),
        "program_arguments": None if percent is None else f"--allowed_failed_percent {percent}",
        "append_row_to": f"${{{{outputs.{OUTPUT}}}}}"
        if form.output_action == "append_row"
        else None,
    }
    return {name: value for name, value in task.items() if value is not None}


def _environment(environment: Any) -> str:
    """Return a reference to an environment by name."""
    if isinstance(environment, Environment) and environment.version:
        return f"azureml:{environment.name}:{environment.version}"
    return f"azureml:{getattr(environment, 'name', environment)}@latest"
