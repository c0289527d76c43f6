"""Folders that daskprs itself has made, and which are input only where somebody names them."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from daskprs import _plugins
from daskprs._folders.job_folder import is_of_a_job
from daskprs._folders.joint_folder import joint_folder_at

if TYPE_CHECKING:
    from collections.abc import Collection


def is_own(path: str, names: Collection[str]) -> bool:
    """Say whether a folder is one of a job, of several jobs, or another one of daskprs.

    It goes by the names of what lies in it; those of folders end with a slash.
    """
    own, marks = of_plugins()
    if is_of_a_job(names) or os.path.basename(path.rstrip("/")) in own:  # noqa: PTH119 - as many as there are folders
        return True
    if not any(mark in names for mark in marks):
        return False
    joint = joint_folder_at(path)
    return joint is not None and joint.lock.exists()  # others have a file of this name, too


@cache
def of_plugins() -> tuple[set[str], tuple[str, ...]]:
    """Return the names of folders that plugins make, and of files by which others are known."""
    names = {name for plugin in _plugins.own() for name in plugin.own_folders}
    return names, tuple(_plugins.own_names("folders"))
