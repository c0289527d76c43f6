"""The version of a script that made rows: its files by their digests, and where they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs._agent.script.snapshot import digests_of
from daskprs._output.journal.changes import is_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder


def files_of(recorded: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the files of a script, as a fingerprint of a run has them."""
    return {
        path: digest
        for path, digest in recorded.get("script", {}).get("files", {}).items()
        if digest and not is_log(path)
    }


def snapshots_with(folder: JobFolder, files: Mapping[str, str]) -> list[Path]:
    """Return the snapshots in a job folder that have these files with these digests."""
    if not folder.snapshot.is_dir():
        return []
    there = sorted(one for one in folder.snapshot.iterdir() if not one.name.startswith("."))
    return [one for one in there if has_files(one, files)]


def has_files(root: Path, files: Mapping[str, str]) -> bool:
    """Say whether a folder has these files with these digests."""
    try:
        return digests_of(root, files) == files
    except OSError:
        return False
