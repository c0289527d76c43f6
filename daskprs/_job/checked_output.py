"""The output of a job, checked before the job starts: the forms of its rows, and their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._folders.job_lock import has_begun
from daskprs._inputs.files.listed_again import listing_of
from daskprs._inputs.open_source import is_described, labels_of
from daskprs._inputs.source.sizes import parse_bytes
from daskprs._output.publish.output_file import (
    check_output_dir,
    check_output_file,
    name_of_another_format,
)
from daskprs._output.publish.remote import RemoteOutput, RemoteParts, is_remote
from daskprs._output.spec import OutputSpec
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.source.source import Unit
    from daskprs._options.run_options import RunOptions


class CheckedOutput(NamedTuple):
    """The place of an output, as `CheckedCall` has it."""

    output_dir: Path
    target: Path | None
    remote: RemoteOutput | None
    warning: str


def output_form(
    data: Any,
    options: RunOptions,
    output_dir: str | PathLike[str] | None,
    *,
    text: bool,
    lenient: bool,
) -> OutputSpec:
    """Return the forms of rows that a job keeps.

    Rows are published to an `output_dir`, or with `text`, or as a data set. Others are kept with
    their types.
    """
    rows = options.output_action == "append_row"
    is_dataset = rows and options.output_format != "text"
    typed = rows and (options.keep_rows or not (text or output_dir or is_dataset))
    is_moved = bool(options.partition_keys or options.output_partition_by)
    return OutputSpec(
        text=rows and (text or output_dir is not None or is_dataset),
        typed=typed,
        header=options.append_row_dataframe_header,
        mixed_columns=lenient and not options.append_row_dataframe_header,
        separator=options.append_row_dataframe_sep,
        tabular=options.is_tabular,
        format=options.output_format,
        partition_by=tuple(options.output_partition_by or ()),
        file_size_bytes=parse_bytes(options.output_file_size, "output_file_size"),
        single_file=options.output_single_file,
        schema=options["schema"],
        errors=options.on_error == "null",
        unlabelled=labels_of(data, is_moved=is_moved) if is_dataset and not typed else None,
    )


def checked_output(
    output_dir: str | PathLike[str] | None,
    folder: JobFolder,
    options: RunOptions,
    form: OutputSpec,
    data: Any,
    *,
    unit: Unit,
    lenient: bool,
) -> CheckedOutput:
    """Return the place of the output; refuse one that cannot be written, or that holds a file.

    One that would be input the next time, or replace input, is refused, too. `data` and `unit` are
    the input, and what it has.
    """
    far = is_remote(output_dir)
    place = check_output_dir(folder.output if far or not output_dir else output_dir)
    if form.schema is not None and not (form.typed or form.is_dataset):
        msg = (
            f"{Option('schema')}: the output is text, which has no types. Keep the rows with "
            f"types, too, by {Option('keep_rows', value=True)}, or write a data set by "
            f"{Option('output_format', 'parquet')}."
        )
        raise OptionError(msg)
    target = place / options.output_name if form.text else None
    if output_dir and target is not None and not (options.resume and has_begun(folder)):
        given = f"{str(output_dir).rstrip('/')}/{options.output_name}" if far else str(target)
        _refuse_input(data, given, folder, options, form, skips_hidden=unit == "row")
    remote = None
    if far:
        name = options.output_name if form.text else None
        is_folder = form.is_dataset and not form.single_file
        remote = (RemoteParts if is_folder else RemoteOutput)(str(output_dir), name)
        remote.check(folder.upload, overwrite=options.overwrite)
        remote.check_bucket()
    elif target is not None and not options.resume:
        check_output_file(target, overwrite=options.overwrite, is_dataset=form.is_dataset)
    return CheckedOutput(place, target, remote, _checked_name(target, options, lenient=lenient))


def _refuse_input(
    data: Any,
    output: str,
    folder: JobFolder,
    options: RunOptions,
    form: OutputSpec,
    *,
    skips_hidden: bool,
) -> None:
    """Refuse an output among the files of the input, or in the place of one."""
    file = output
    if form.is_dataset and not form.single_file:
        parts = [*(f"{name}=" for name in form.partition_by), f"part-00000-0.{form.format}"]
        file = "/".join([output, *parts])
    job = str(folder.path)
    listing = listing_of(data, output, file, skips_hidden=skips_hidden, job=job)
    if listing is None or is_described(data):
        return
    path, replaces = listing
    named, which = Option("output", output), "it"
    if options.output is None:
        named, which = Option("output_dir", output.rpartition("/")[0]), output
    why = "would replace files of" if replaces else "would be read in the next run with"
    raise OptionError(
        named, f": {which} {why} the input {path!r}. Write to a place outside of the input."
    )


def _checked_name(target: Path | None, options: RunOptions, *, lenient: bool) -> str:
    """Return a warning of the name of a file of text, or refuse it."""
    if target is None or options.output_format != "text":
        return ""
    wrong = name_of_another_format(target.name, may_be_dataset=not lenient)
    if wrong and not lenient:
        raise OptionError(wrong)
    return wrong
