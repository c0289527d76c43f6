"""The specification that all agents of a job receive, made from the caller's arguments."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from daskprs.agent.node.environment import system_arguments
from daskprs.agent.protocol.messages import JobSpec
from daskprs.agent.script.side_inputs import side_inputs_of
from daskprs.system.file_lock import boot_id

if TYPE_CHECKING:
    from daskprs.agent.script.checked_script import CheckedScript
    from daskprs.folders.job_folder import JobFolder
    from daskprs.inputs.source.source import Source
    from daskprs.options.run_options import RunOptions
    from daskprs.output.spec import OutputSpec


def agent_spec(
    job_id: str,
    script: CheckedScript,
    source: Source,
    options: RunOptions,
    output: OutputSpec,
    folder: JobFolder,
    epoch: int,
    output_dir: str,
) -> JobSpec:
    """Return the agents' specification, and copy the script's folder to the job folder."""
    return JobSpec(
        job_id=job_id,
        script=script.travel(folder.snapshot),
        arguments=system_arguments(
            options.arguments,
            logging_level=options.logging_level,
            output_dir=output_dir,
            mini_batch_size=options.mini_batch_size,
            error_threshold=options.error_threshold,
            run_invocation_timeout=options.run_invocation_timeout,
            run_max_try=options.run_max_try,
            process_count_per_node=options.process_count_per_node,
            partition_keys=options.partition_keys,
        ),
        environment=dict(options.environment_variables or {}),
        reader=pickle.dumps(source.reader()),
        unit=source.unit,
        output=output,
        job_dir=str(folder),
        epoch=epoch,
        boot_id=boot_id(),
        output_dir=output_dir,
        logging_level=options.logging_level,
        start_method=options.start_method,
        side_inputs=side_inputs_of(options.side_inputs),
    )
