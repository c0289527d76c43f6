"""Checks of a `parallel_run` call: all that are cheap run before anything is started."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.script.checked_script import CheckedScript, check_script_of
from daskprs.agent.script.side_inputs import check_side_inputs
from daskprs.errors import JobFolderError, Option, OptionError
from daskprs.folders.job_folder import JobFolder, default_path
from daskprs.folders.job_lock import has_begun
from daskprs.inputs.files.discover import places_below
from daskprs.inputs.open_source import open_source
from daskprs.job.saved_request import kept_call, read_call, refuse_objects
from daskprs.options.rules import check_client, check_job_dir, working_directory
from daskprs.options.run_options import RunOptions
from daskprs.output.publish.output_file import check_output_dir, check_output_file
from daskprs.output.publish.remote import RemoteOutput, is_remote
from daskprs.output.spec import OutputSpec
from daskprs.system import forks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from distributed import Client

    from daskprs.inputs.source.source import Source


@dataclass(frozen=True)
class CheckedCall:
    """The checked call of a job: its work, and its folders."""

    begun_s: float
    """Time of the call in seconds, on a monotonic clock."""
    options: RunOptions
    client: Client | str | None
    script: CheckedScript
    source: Source
    job_id: str
    folder: JobFolder
    output_dir: Path
    """The local output folder; for a remote one, the folder where its file is made."""
    output: OutputSpec
    target: Path | None
    """The output file; None if no text is written."""
    kept: dict[str, Any]
    """The call as the job folder keeps it."""
    remote: RemoteOutput | None = None
    """The final destination of the output file, if that is a URL."""

    @property
    def named_output_dir(self) -> Path | str:
        """The output folder as scripts and people know it."""
        return self.output_dir if self.remote is None else self.remote.url


@working_directory()
def check_call(
    data: Any,
    script: Any,
    options: RunOptions,
    *,
    client: Client | str | None = None,
    job_dir: str | PathLike[str] | None = None,
    output_dir: str | PathLike[str] | None = None,
    text: bool = False,
    data_folders: Iterable[Path] = (),
) -> CheckedCall:
    """Return the checked call, without starting anything.

    With `text` an output file is written even without an `output_dir`. Files in `data_folders` are
    not source, though these folders lie in the source directory.

    Raises
    ------
    UsageError
        When an option, the script, the input or the output cannot be used.
    JobFolderError
        When the folder already holds a job, and this call is not a resume.

    """
    begun_s = time.monotonic()
    forks.refuse()
    client = check_client(client)
    check_job_dir(job_dir)
    checked = check_script_of(data, script, options.source_directory)
    checked.data_folders = tuple(data_folders)
    check_side_inputs(options.side_inputs)
    rows = options.output_action == "append_row"
    typed = rows and (options.keep_rows or not (text or output_dir))
    source = open_source(data, replace(options.reading(), keep_labels=typed))
    if checked.root is not None:
        checked.inputs = tuple(places_below(data, checked.root))
    if options.resume and job_dir is None:
        raise OptionError(
            Option("resume", value=options.resume),
            ": name the folder of the job to go on with by ",
            Option("job_dir"),
            ".",
        )
    job_id = secrets.token_hex(4)
    folder = JobFolder(job_dir or default_path(checked.name, job_id))
    far = is_remote(output_dir)
    place = check_output_dir(folder.output if far or not output_dir else output_dir)
    output = OutputSpec(
        text=rows and (text or output_dir is not None),
        typed=typed,
        header=options.append_row_dataframe_header,
        separator=options.append_row_dataframe_sep,
    )
    target = place / options.append_row_file_name if output.text else None
    remote = None
    if far:
        name = options.append_row_file_name if output.text else None
        remote = RemoteOutput(str(output_dir), name)
        remote.check(folder.upload, overwrite=options.overwrite)
    elif target is not None and not options.resume:
        check_output_file(target, overwrite=options.overwrite)
    refuse_an_old_folder(folder, options)
    kept = kept_call(data, checked, options, client=client, output_dir=output_dir, text=text)
    return CheckedCall(
        begun_s,
        options,
        client,
        checked,
        source,
        job_id,
        folder,
        place,
        output,
        target,
        kept,
        remote,
    )


def check_kept_call(
    folder: JobFolder,
    resume: bool | str,  # noqa: FBT001 - an option
    *,
    script: str | None = None,
    client: str | None = None,
    **changes: Any,
) -> CheckedCall:
    """Return the saved call of a job, to resume the job.

    Parameters
    ----------
    folder
        The job folder.
    resume
        As the option.
    script, client
        In place of those of the job; no address: not on its cluster.
    changes
        Options that differ from the saved call.

    Raises
    ------
    JobFolderError
        When the folder holds no job, or its call cannot be made again.
    UsageError
        As `check_call` does.

    """
    call = read_call(folder)
    refuse_objects(folder, call)
    root = call["source_directory"]
    if script is not None and not (root and Path(script).resolve().is_relative_to(root)):
        root = None
    options = {"source_directory": root, **call["options"], **changes, "resume": resume}
    return check_call(
        call["data"],
        script or call["script"],
        RunOptions.from_names(**options),
        client=(call["client"] if client is None else client) or None,
        job_dir=folder.path,
        output_dir=call["output_dir"],
        text=call["text"],
        data_folders=map(Path, call.get("data_folders", ())),
    )


def refuse_an_old_folder(folder: JobFolder, options: RunOptions) -> None:
    """Refuse to begin a new job in a folder where a job has begun.

    Raises
    ------
    JobFolderError
        Unless this is a resume.

    """
    if not options.resume and has_begun(folder):
        told = f"the folder {folder} holds a job already. Go on with it by "
        raise JobFolderError(
            told,
            Option("resume", value=True),
            ", or use another ",
            Option("job_dir"),
            ".",
        )
