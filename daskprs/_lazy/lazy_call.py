"""A call of `map_batches` whose partitions run in tasks of Dask: all that these tasks need."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from daskprs._agent.node.environment import system_arguments
from daskprs._agent.protocol.messages import JobSpec
from daskprs._inputs.collections.staged_reader import StagedReader
from daskprs._inputs.source.batch_format import BatchForm
from daskprs._output.spec import OutputSpec
from daskprs._system.file_lock import boot_id
from daskprs._system.hidden_values import HiddenValues

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import PluginStandIns
    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._core.limits import Limits
    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.collections.staging_form import StagingForm
    from daskprs._inputs.source.included import Included
    from daskprs._inputs.source.source import Unit
    from daskprs._lazy.result_form import ResultForm
    from daskprs._options.run_options import RunOptions

OnError = Literal["raise", "drop", "isolate"]


@dataclass(frozen=True, eq=False)
class LazyCall:
    """The script and the options of a call. A task returns them; the other tasks depend on it."""

    token: str
    """A digest of all that follows: the same for calls that give the same rows."""
    script: CheckedScript
    archive: bytes
    """The files that the script imports from."""
    options: RunOptions
    form: StagingForm
    unit: Unit
    included: Included | None
    """The columns of the data that stand beside what `run` returns."""
    result: ResultForm
    on_error: OnError
    stand_ins: tuple[PluginStandIns, ...] = ()

    def __dask_tokenize__(self) -> str:
        """Return the token, by which Dask tells calls apart."""
        return self.token

    @property
    def limits(self) -> Limits:
        """The limits of one partition."""
        return replace(
            self.options.limits(),
            allowed_failed_count=-1 if self.on_error == "drop" else 0,
            allowed_failed_percent=100.0,
            error_threshold=-1,
            fail_on_timeout=False,
            progress_update_timeout_s=math.inf,  # each step has a timeout of its own
        )

    def job_in(self, folder: JobFolder) -> JobSpec:
        """Return the specification of the job for agents that work in a folder of this node."""
        options, snapshot = self.options, None
        if self.script.root is not None:
            snapshot = self.script.unpacked(self.archive, folder.snapshot)
        batch_form = BatchForm(options.batch_format, {}, keeps_nan=True)
        return JobSpec(
            job_id=self.token,
            script=self.script.at(snapshot),
            arguments=system_arguments(options, str(folder.output)),
            environment=HiddenValues(options.environment_variables or {}),
            python=None if options.python is None else str(options.python),
            secrets=tuple(options.secrets or ()),
            reader=pickle.dumps(StagedReader()),
            unit=self.unit,
            output=OutputSpec(text=False, typed=True, schema=options["schema"], key=folder.key),
            job_dir=str(folder),
            epoch=1,
            boot_id=boot_id(),
            output_dir=str(folder.output),
            logging_level=options.logging_level,
            start_method=options.start_method,
            limits=options.limits(),
            batch_form=None if options.batch_format == "pandas" else batch_form,
            included=self.included,
            stand_ins=self.stand_ins,
            preload=options.imported_once,
            run_id=f"OfflineRun_{self.token}",
        )
