"""What all agents of a job receive, and the limits of the job."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

from daskprs._agent.node.environment import system_arguments
from daskprs._agent.protocol.messages import INLINE, JobSpec
from daskprs._agent.script.plugin_stand_ins import plugin_stand_ins
from daskprs._agent.script.side_inputs import side_inputs_of
from daskprs._folders.rows_seal import rows_key
from daskprs._inputs.source.batch_format import batch_form
from daskprs._job.fitting_size import with_known_size
from daskprs._job.flags import command_to_debug
from daskprs._system.file_lock import boot_id
from daskprs._system.hidden_values import HiddenValues

if TYPE_CHECKING:
    from daskprs._core.limits import Limits
    from daskprs._job.request import CheckedCall


def limits_of(call: CheckedCall) -> Limits:
    """Return the limits of a job, with what earlier runs have found out.

    GPUs stay hidden that were unused, and calls of `run` have the size that fits the memory.
    """
    options, folder = call.options, call.folder
    limits = with_known_size(call, options.limits())
    if call.calls is not None:
        limits = replace(limits, calls=call.calls.at_once)
    if options.start_method == INLINE:
        return limits.without_kills()
    if options.finds_gpu_use and folder.gpus_hidden.exists():
        return replace(limits, gpus_per_process=0.0)
    return limits


def job_spec(call: CheckedCall, epoch: int) -> JobSpec:
    """Return what all agents receive, and copy the script's folder to the job folder."""
    options = call.options
    output_dir = str(call.named_output_dir)
    return JobSpec(
        job_id=call.job_id,
        # In this process the script is run where it lies: breakpoints name its file.
        script=(
            call.script.at(call.script.root)
            if options.start_method == INLINE
            else call.script.travel(call.folder.snapshot)
        ),
        arguments=system_arguments(options, output_dir if call.names_output else None),
        environment=HiddenValues(options.environment_variables or {}),
        python=None if options.python is None else str(options.python),
        secrets=tuple(options.secrets or ()),
        reader=pickle.dumps(call.source.reader()),
        unit=call.source.unit,
        output=call.output._replace(key=rows_key(call.folder)),
        job_dir=str(call.folder),
        epoch=epoch,
        boot_id=boot_id(),
        output_dir=output_dir,
        logging_level=options.logging_level,
        start_method=options.start_method,
        limits=limits_of(call),
        side_inputs=side_inputs_of(options.side_inputs),
        batch_form=batch_form(call.source, options.batch_format),
        included=call.included,
        resource_interval_s=float(options.resource_monitor_interval),
        profiling_module=options.profiling_module,
        stand_ins=plugin_stand_ins(elsewhere=options.python is not None),
        stages=options.stages,
        preload=options.imported_once,
        calls=call.calls,
        rate_limit=options.limit_of_rate,
        debug_by=command_to_debug(call.kept, call.folder.path),
        # By this beginning, scripts see that they reach no workspace by their run.
        run_id=f"OfflineRun_{call.folder.path.name}",
    )
