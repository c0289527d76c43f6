"""The request for a job: a call of `parallel_run`, checked, and saved in the job folder.

All checks that are cheap run before anything is started. A saved call allows any process to repeat
the call: paths are absolute, and objects of the caller's process (a frame, a function, a client)
are saved by name only, so that an error can say why only the caller can resume the job. Environment
variables are saved by name, too: a resume takes their values from its caller.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs import _plugins
from daskprs._agent.child.cost_call import COST
from daskprs._agent.foreign.entry_script import IMPORTING
from daskprs._agent.script.checked_interpreter import check_interpreter
from daskprs._agent.script.checked_preload import check_preload
from daskprs._agent.script.checked_script import CheckedScript, check_script_of
from daskprs._agent.script.side_inputs import check_side_inputs
from daskprs._agent.script.stage_functions import (
    refuse_missing_cost,
    refuse_missing_functions,
    with_functions,
)
from daskprs._core.stages import POSTPROCESS, PREPROCESS
from daskprs._folders.foreign_folder import refuse_foreign
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun, refuse_a_driver
from daskprs._folders.rows_seal import variables_key
from daskprs._inputs.costs import CostSource
from daskprs._inputs.files.discover import places_below
from daskprs._inputs.files.listing import watched_listing
from daskprs._inputs.open_source import has_labels, open_source
from daskprs._inputs.source.included import PATH, Included, included_columns
from daskprs._inputs.source.input_file import is_url
from daskprs._job.call_form import calls_of
from daskprs._job.checked_output import checked_output, output_form
from daskprs._job.inline_call import refuse_work_elsewhere
from daskprs._options.client_rules import check_client, current_client, refuse_own_loop
from daskprs._options.output_path import in_terms_of, output_alone
from daskprs._options.rules import (
    check_folder,
    check_job_dir,
    refuse_lost_metrics,
    working_directory,
)
from daskprs._options.run_options import TABLE, Digest, RunOptions, is_place
from daskprs._options.site_defaults import default_job_dir, site_defaults
from daskprs._report.humanize import counted, duration
from daskprs._report.listeners import report_listing
from daskprs._system import forks
from daskprs._system.atomic_file import write_json
from daskprs._system.hidden_values import HiddenValues
from daskprs._system.private_folder import not_entered, refuse_closed
from daskprs._system.regular_files import read_json
from daskprs._system.seal import NO_KEY, SealKey
from daskprs._system.user_key import keyed_digest
from daskprs.errors import JobFolderError, Option, OptionError, OutputError, ScriptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from distributed import Client

    from daskprs._core.calls import Calls
    from daskprs._core.pieces import Range
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.source.source import Source
    from daskprs._output.publish.remote import RemoteOutput
    from daskprs._output.spec import OutputSpec
    from daskprs._system.masks import Mask

FORM = 1
MOST_BYTES = 1 << 30
"""Maximum size of a saved call in bytes: it may name millions of files."""
NOT_SAVED = {name for name, row in TABLE.items() if row.is_of_one_run} | {"source_directory"}
"""Options that are not saved with the call; the source directory is saved beside the script."""


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
    included: Included | None = None
    """The columns of the input that stand beside what `run` returns."""
    listed: str = ""
    """A text with the number of files and the time of their listing, if the input has files."""
    may_be_empty: bool = False
    """Whether a job is Completed though none of its items succeeded: `run` may be a filter."""
    warning: str = ""
    """The warning when the job begins; it names options."""
    calls: Calls | None = None
    """The calls of `run` at the same time; None: a process makes one after the other."""
    has_labels: bool = False
    """Whether the input has an index that `run` does not see."""
    items: Range | None = None
    """The items of each mini-batch that run; None: all of them."""
    names_output: bool = True
    """Whether the arguments of the script name the output folder."""
    digest: Digest = keyed_digest
    """Makes the digests of values of environment variables, by the key of the caller."""

    def with_variable_files(self, files: Mapping[str, str]) -> CheckedCall:
        """Return the call with the files of its environment variables, by the option of a resume.

        A message that names a resume names them, since the folder keeps no values.
        """
        return replace(self, kept={**self.kept, "variable_files": dict(files)})

    @property
    def mask(self) -> Mask:
        """Masks the secrets."""
        return self.options.mask

    @property
    def own_places(self) -> tuple[Path, ...]:
        """The places that the job writes to, which are no source of the script.

        What the script needs may lie beside its output: ``output="scores.csv"`` means the working
        directory.
        """
        if self.options.output is None or self.target is None:
            return self.folder.path, self.output_dir
        unfinished = self.target.parent.glob(f".{glob.escape(self.target.name)}.*")
        return self.folder.path, self.target, *unfinished

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
    lenient: bool = False,
    data_folders: Iterable[Path] = (),
    names_output: bool = True,
    blocks: bool = True,
    key: bytes | None = None,
    rows_key: SealKey = NO_KEY,
) -> CheckedCall:
    """Return the checked call, without starting anything.

    `blocks` says that the job occupies the thread of the call. `key` is the key of the job's
    variables, and `rows_key` that of its rows, where the caller is another user, or on another
    machine.

    With `text` an output file is written even without an `output_dir`. Files in `data_folders` are
    not source, though these folders lie in the source directory. With `lenient` a warning takes the
    place of an error where a job of another system would go on, and the context goes to any second
    parameter of `run`, as in Azure's entry scripts. `names_output` says whether the arguments of
    the script name the output folder.

    Raise `UsageError` when an option, the script, the input or the output cannot be used, and
    `JobFolderError` when the folder already holds a job, and this call is not a resume.
    """
    begun_s = time.monotonic()
    forks.refuse()
    _refuse_import()
    options = options.with_secrets(os.environ)
    refuse_work_elsewhere(data, options)
    client = check_client(client, blocks=blocks)
    if type(data).__name__ == "Bag":
        refuse_own_loop(current_client())  # it is to compute the paths that a Bag may hold
    check_job_dir(job_dir)
    check_folder("output_dir", output_dir)
    if options.output is not None and output_dir is not None:
        raise output_alone(options.output, Option("output_dir", os.fspath(output_dir)))
    output_folder = options.output_folder or output_dir
    checked = _checked_script(data, script, options, data_folders, lenient=lenient)
    job_id = secrets.token_hex(4)
    folder = JobFolder(job_dir or default_job_dir(checked.name, job_id), rows_key)
    form = output_form(data, options, output_folder, text=text, lenient=lenient)
    on_cluster = client is not None or current_client() is not None
    check_preload(options.imported_once, checked.root, elsewhere=on_cluster)
    calls = calls_of(options, checked)  # before anything is looked at that takes time
    source, listed, included = _checked_source(
        data, checked, options, folder, keep_labels=form.typed, on_cluster=on_cluster
    )
    _refuse_to_resume(folder, options, is_named=job_dir is not None)
    try:
        unit = source.unit
        place = checked_output(
            output_folder, folder, options, form, data, unit=unit, lenient=lenient
        )
    except OutputError as error:
        told = in_terms_of(options["output"], error)
        if not options.resume:
            refuse_a_driver(folder)
        refuse_an_old_folder(folder, options, told)
        raise told from None
    if not options.resume:
        refuse_a_driver(folder)  # else the advice is to resume a job that is at work
    if not has_begun(folder):
        # A resume may run on another machine: its job goes on, and says that it has no such file.
        refuse_lost_metrics(options.metrics_file)
    refuse_an_old_folder(folder, options)
    kept = kept_call(
        data,
        checked,
        options,
        client=client,
        output_dir=output_dir,
        text=text,
        lenient=lenient,
        names_output=names_output,
    )
    _refuse_secrets(kept, options)
    return CheckedCall(
        begun_s,
        options,
        client,
        checked,
        source,
        job_id,
        folder,
        place.output_dir,
        form,
        place.target,
        kept,
        place.remote,
        included,
        listed=listed,
        warning=place.warning,
        calls=calls,
        has_labels=has_labels(data),
        names_output=names_output,
        digest=lambda text: keyed_digest(text, key or variables_key(folder)),
    )


def script_of(data: Any, script: Any, options: RunOptions) -> CheckedScript:
    """Return the script, checked, with the functions of stages and costs beside it."""
    given = {PREPROCESS: options.preprocess, POSTPROCESS: options.postprocess}
    functions = {stage: one for stage, one in given.items() if one is not None}
    cost = options.mini_batch_cost
    beside = {} if cost is None or isinstance(cost, str) else {COST: cost}
    script = with_functions(script, functions | beside)
    elsewhere = options.python is not None
    checked = check_script_of(data, script, options.source_directory, compiles_elsewhere=elsewhere)
    refuse_missing_functions(checked, functions)
    return checked


def _checked_script(
    data: Any, script: Any, options: RunOptions, data_folders: Iterable[Path], *, lenient: bool
) -> CheckedScript:
    """Return the script, checked, and check the files that it reads beside the input."""
    checked = replace(
        script_of(data, script, options), data_folders=tuple(data_folders), any_second=lenient
    )
    check_side_inputs(options.side_inputs)
    return checked


def _checked_source(
    data: Any,
    script: CheckedScript,
    options: RunOptions,
    folder: JobFolder,
    *,
    keep_labels: bool,
    on_cluster: bool,
) -> tuple[Source, str, Included | None]:
    """Open the input, and check it against the interpreter.

    Also return what to log about the input, and its columns that stand in the output.
    """
    reading = replace(
        options.reading(),
        keep_labels=keep_labels,
        path_aside=PATH in (options.include_columns or ()),
        batch_format=options.batch_format,
    )
    source, listed = _opened(data, reading, options, folder)
    if isinstance(source, CostSource):
        source.kept = folder.cost_plan
        _check_cost(source, script, options)
    check_interpreter(options, script, source.unit, may_be_elsewhere=on_cluster)
    may_grow = options.resume == "extend" or "input" in options.accept_changes
    included = included_columns(source, options.include_columns, may_grow=may_grow)
    if script.root is not None:  # the snapshot of the script leaves out the input
        script.inputs = tuple(places_below(data, script.root))
    return source, listed, included


def _check_cost(source: CostSource, script: CheckedScript, options: RunOptions) -> None:
    """Refuse what is neither a column of the input nor a function that agents can call."""
    name = options.mini_batch_cost
    if not source.is_function or not isinstance(name, str):
        return
    refuse_missing_cost(script, name, source.columns)
    if options.python is not None:
        msg = (
            f"{Option('python', str(options.python))}: not with {Option(COST, name)}, a function, "
            "which runs in daskprs's interpreter. It can be a column of the input."
        )
        raise OptionError(msg)


def _refuse_to_resume(folder: JobFolder, options: RunOptions, *, is_named: bool) -> None:
    """Refuse a folder that the caller may not enter, or may not take a job from."""
    if options.resume and not is_named:
        msg = (
            f"{Option('resume', value=options.resume)}: name the folder of the job to go on with "
            f"by {Option('job_dir')}."
        )
        raise OptionError(msg)
    refuse_closed(folder.path)
    if options.resume and not options.trust:
        refuse_foreign(folder)


def _opened(
    data: Any, reading: ReadOptions, options: RunOptions, folder: JobFolder
) -> tuple[Source, str]:
    """Open the input, and show how far that is; also return what to log about it."""
    begun_s = time.monotonic()
    with watched_listing() as listing:

        def how_far() -> str:
            return options.mask.text(listing.how_far)

        with report_listing(folder, how_far, progress=options.progress):
            source = open_source(data, reading)
    if not listing.listed:
        return source, ""
    took = duration(time.monotonic() - begun_s)
    return source, f"{counted(listing.listed, 'file')}, listed and looked at in {took}"


def _refuse_import() -> None:
    """Refuse a job that an entry script starts while an agent imports it: each would start more."""
    process, _, script = os.environ.get(IMPORTING, "").partition(" ")
    if process == str(os.getpid()):
        msg = (
            f"parallel_run: an agent imports the entry script {Path(script).name}, which starts a "
            'job while it is imported. Put the call under `if __name__ == "__main__":`.'
        )
        raise ScriptError(msg)


def check_kept_call(
    folder: JobFolder,
    resume: bool | str,  # noqa: FBT001 - an option
    *,
    script: str | None = None,
    client: str | None = None,
    key: bytes | None = None,
    variable_files: Mapping[str, str] | None = None,
    **changes: Any,
) -> CheckedCall:
    """Return the saved call of a job, checked, to resume the job.

    `script`, `client` and the options in `changes` replace those of the job. An empty address as
    `client` means this machine instead of the job's cluster. Dask's config has been read when the
    job was called: now it counts only for options that are not saved. `key` is as in `check_call`.

    Values of environment variables come from `changes`, else from Dask's config or from the
    environment of this process. Those of `changes` may be of `variable_files`, by option.
    """
    call = read_call(folder)
    _refuse_objects(folder, call, resume)
    if not changes.get("trust"):
        refuse_foreign(folder, str(script or call["script"]))
    of_site = site_defaults()
    of_this_run = {name: value for name, value in of_site.items() if TABLE[name].is_of_one_run}
    root = call["source_directory"]
    if script is not None and not (root and Path(script).resolve().is_relative_to(root)):
        root = None
    saved = {"source_directory": root, **call["options"]}
    around = {**os.environ, **(of_site.get("environment_variables") or {})}
    given = changes.pop("environment_variables", None) or {}
    changes["environment_variables"] = variables_of_caller(folder, call, given, around)
    options = {**of_this_run, **saved, **changes, "resume": resume}
    checked = check_call(
        call["data"],
        script or call["script"],
        RunOptions(**options),
        client=(call["client"] if client is None else client) or None,
        job_dir=folder.path,
        output_dir=call["output_dir"],
        text=call["text"],
        lenient=bool(call.get("lenient")),
        data_folders=map(Path, call.get("data_folders", ())),
        names_output=call.get("names_output", True),
        key=key,
        rows_key=folder.key,
    )
    return checked.with_variable_files(variable_files or files_of_variables(call))


def files_of_variables(call: Mapping[str, Any]) -> dict[str, str]:
    """Return the files by which a saved call set variables, by the option of a resume.

    They become words of a command, and a folder may be from anybody: only such options are taken.
    """
    files = call.get("variable_files")
    known = _plugins.own_names("variable_files")
    named = files.items() if isinstance(files, dict) else ()
    return {name: str(file) for name, file in named if name in known}


def variables_of_caller(
    folder: JobFolder,
    call: Mapping[str, Any],
    given: Mapping[str, str],
    around: Mapping[str, str],
) -> HiddenValues:
    """Return the environment variables of a saved call, with the values of the resuming caller.

    Those that are not `given` are taken from what is `around`.
    """
    kept, names = call["options"].get("environment_variables") or {}, call.get("variables", ())
    needed = {name: around[name] for name in names if name in around}
    found = HiddenValues({**kept, **needed, **given})
    lacking = [name for name in names if name not in found]
    if lacking:
        msg = (
            f"the job in {folder} needs environment variables whose values it does not keep: "
            f"{', '.join(lacking)}. Set them in the environment of this call, or give them by "
        )
        ways: list[str | Option] = []
        for name, file in files_of_variables(call).items():
            ways += [Option(name, file), " or "]
        raise OptionError(msg, *ways, Option("environment_variables"), ".")
    return found


def refuse_an_old_folder(
    folder: JobFolder, options: RunOptions, output: OutputError | None = None
) -> None:
    """Refuse to begin a new job in a folder where a job has begun.

    `output` is why the output would be refused next.
    """
    if not options.resume and has_begun(folder):
        go_on = Option("resume", value=True)
        told = f"the folder {folder} holds a job already. Go on with it by ", go_on
        other = ", or use another ", Option("job_dir"), "."
        also = () if output is None else (" A new job has to mend this, too: ", *output.args)
        raise JobFolderError(*told, *other, *also)


def kept_call(
    data: Any,
    script: CheckedScript,
    options: RunOptions,
    *,
    client: Any,
    output_dir: str | PathLike[str] | None,
    text: bool,
    lenient: bool,
    names_output: bool,
) -> dict[str, Any]:
    """Return a call as JSON values."""
    variables = options.environment_variables or {}
    ours = {name: value for name, value in variables.items() if is_place(name)}
    kept, objects = {"environment_variables": ours} if ours else {}, []
    for name, value in options.changed().items():
        if name in NOT_SAVED or name == "environment_variables":
            continue
        try:
            kept[name] = json.loads(json.dumps(value))
        except TypeError:
            objects.append(f"{name}={value!r}")
    if script.pickled is not None:
        objects.append(f"the script {script.name}")
    paths = absolute_paths(data)
    if paths is None:
        objects.append(f"data, a {type(data).__module__}.{type(data).__qualname__}")
    return {
        "form": FORM,
        "data": paths,
        "script": _place_of(script),
        "source_directory": None if script.root is None else str(script.root),
        "data_folders": [str(folder) for folder in script.data_folders],
        "options": kept,
        "variables": sorted(variables.keys() - ours.keys()),
        "client": client if isinstance(client, str) else None,
        "output_dir": None if output_dir is None else _absolute(os.fspath(output_dir)),
        "text": text,
        "lenient": lenient,
        "names_output": names_output,
        "objects": objects,
    }


def _refuse_secrets(kept: Mapping[str, Any], options: RunOptions) -> None:
    """Reject a call that has the value of a secret in what the job folder keeps of the call."""
    mask = options.mask
    places = {**kept, **kept["options"], "options": None, "variables": None, "secrets": None}
    for name, value in places.items() if mask else ():
        text = json.dumps(value)
        if mask.text(text) != text:
            shown = Option(name) if name in TABLE else name
            msg = (
                f"{shown}: the value of one of the secrets {', '.join(options.secrets or ())} "
                "stands in it, and the job folder keeps it. Let the script read the secret from "
                "its environment, by os.environ."
            )
            raise OptionError(msg)


def keep_call(folder: JobFolder, call: Mapping[str, Any]) -> None:
    """Write a call into the job folder."""
    write_json(folder.call, call, indent=1)


def read_call(folder: JobFolder) -> dict[str, Any]:
    """Return the saved call of a job; reject a folder without one that this version can read."""
    try:
        call: dict[str, Any] = read_json(folder.call, MOST_BYTES)
    except FileNotFoundError:
        msg = f"there is no job in {folder}: it has no {folder.call.name}."
        raise JobFolderError(msg) from None
    except PermissionError:
        raise not_entered(folder.path) from None
    except (OSError, ValueError) as error:
        msg = f"{folder.call} cannot be read: {error}"
        raise JobFolderError(msg) from error
    if not isinstance(call, dict) or call.get("form") != FORM:
        msg = f"{folder.call} was written by another version of daskprs. Use that version."
        raise JobFolderError(msg)
    return call


def _refuse_objects(folder: JobFolder, call: Mapping[str, Any], resume: bool | str) -> None:  # noqa: FBT001 - the option
    """Reject a call that needs objects of its caller's process; the error names these objects."""
    if call["objects"]:
        msg = (
            f"the job in {folder} was called with what only its caller has: "
            f"{'; '.join(call['objects'])}. To go on, {in_its_program(folder, resume)}."
        )
        raise JobFolderError(msg)


def in_its_program(folder: JobFolder, resume: bool | str = True) -> str:  # noqa: FBT001, FBT002 - the option
    """Return what resumes a job that was called with objects of a program."""
    if folder.collection.exists():
        return "compute its lazy collection again in its program"
    return f"call parallel_run(…, job_dir={str(folder)!r}, resume={resume!r}) in its program"


def _place_of(script: CheckedScript) -> str | None:
    """Return the path or name by which a later run finds the script."""
    if script.pickled is not None:
        return None
    if script.module is not None or script.root is None or script.file is None:
        return script.module
    return str(script.root / script.file)


def absolute_paths(data: Any) -> list[str] | str | None:
    """Return input paths as absolute ones or URLs; None for input that is not paths."""
    if isinstance(data, (str, os.PathLike)):
        return _absolute(os.fspath(data))
    if isinstance(data, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) for p in data):
        return [_absolute(os.fspath(path)) for path in data]
    return None


def _absolute(path: str) -> str:
    return path if is_url(path) else str(Path.cwd() / path)
