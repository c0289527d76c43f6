"""The objects of a call that JSON does not hold, kept for a replay of a job in which work failed.

A frame is in the job folder already, as the agents read it: its source is kept, which knows where
the mini-batches lie. Of a Dask collection the tasks of failed partitions are kept. The file is one
pickle with a keyed checksum: nobody but the user who made it has it loaded.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from daskprs._folders.rows_seal import objects_key, objects_seal
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import keep_to_owner, open_regular
from daskprs._system.seal import TAG_BYTES, checksum
from daskprs.errors import JobFolderError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from daskprs._agent.script.checked_script import CheckedScript
    from daskprs._folders.job_folder import JobFolder
    from daskprs._inputs.source.source import Source
    from daskprs._job.request import CheckedCall
    from daskprs._options.run_options import RunOptions

MOST_BYTES = 64 << 20
"""Bytes of the largest pickle that is kept."""
NOT_KEPT = ("environment_variables", "secrets")
"""Options that are not among the objects: their values may be tokens."""


class KeptObjects(NamedTuple):
    """What a call has besides paths and plain values."""

    source: Source | None
    """The input, prepared; None: it is paths."""
    script: CheckedScript | None
    """The script; None: it is a file."""
    options: dict[str, Any]
    folder: str = ""
    """The job folder, which has the rows of the source."""


def keep_objects(call: CheckedCall, failed: Collection[int]) -> str:
    """Keep the objects of a call, if there are any; return why they cannot be kept, or ''.

    `failed` are the mini-batches that a replay may want.
    """
    if not call.kept["objects"]:
        return ""
    script = call.script
    try:
        objects = KeptObjects(
            None if call.kept["data"] is not None else _kept_source(call.source, failed),
            None if script.pickled is None else script,
            {
                name: value
                for name, value in call.options.changed().items()
                if name not in call.kept["options"] and name not in NOT_KEPT
            },
            str(call.folder),
        )
        body = cloudpickle.dumps(tuple(objects), protocol=5)
    except Exception as error:  # noqa: BLE001 - an object of the caller may raise anything
        return f"{type(error).__name__}: {error}"
    if len(body) > MOST_BYTES:
        return f"they have {len(body):,} bytes"
    if any(value.encode() in body for value in secret_values(call.options)):
        return "a secret stands in them"
    tag = checksum(objects_key())
    tag.update(body)
    with whole_file(call.folder.objects) as file:
        keep_to_owner(file)
        file.write(tag.digest() + body)
    return ""


def secret_values(options: RunOptions) -> Iterator[str]:
    """Yield the values of the secrets of a call."""
    variables = options.environment_variables or {}
    yield from (variables[name] for name in options.secrets or () if name in variables)


def _kept_source(source: Source, failed: Collection[int]) -> Source:
    """Return what is kept of a source: of a collection, some of its tasks."""
    some: Callable[[Collection[int]], Source] | None = getattr(source, "kept_for", None)
    return source if some is None else some(failed)


def kept_objects(folder: JobFolder, call: dict[str, Any]) -> KeptObjects:
    """Return the objects of a kept call.

    Raise `JobFolderError` when the folder does not have them, or another user may have written
    them.
    """
    if not call["objects"]:
        return KeptObjects(None, None, {})
    try:
        with open_regular(folder.objects) as file:
            tag, body = file.read(TAG_BYTES), file.read()
            objects_seal(folder).of(file).check(body, tag, str(folder.objects))
            kept = KeptObjects(*pickle.loads(body))
        if kept.source is None or kept.folder == str(folder):
            return kept
        why = f"which lay in {kept.folder}: move the folder back to there"
    except FileNotFoundError:
        why = "which the folder does not have"
    except JournalError as error:
        why = f"which are not loaded: {error}"
    except Exception as error:  # noqa: BLE001 - a class of the caller may be missing here
        why = f"which cannot be loaded: {type(error).__name__}: {error}"
    msg = (
        f"the job in {folder} was called with {'; '.join(call['objects'])}, {why.rstrip('.')}. "
        'Debug it in its program: parallel_run(…, start_method="inline").'
    )
    raise JobFolderError(msg)
