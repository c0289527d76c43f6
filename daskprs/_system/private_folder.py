"""Folders that only their owner may enter, and whose new files are the owner's alone as well.

The second is a default ACL, which a file system without ACLs does not have. There the folder alone
keeps others out.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.errors import JobFolderError, Option

if TYPE_CHECKING:
    from collections.abc import Collection

DEFAULT_ACL = "system.posix_acl_default"
_USER, _GROUP, _OTHER = 0x01, 0x04, 0x20
_ALL, _NOTHING, _NO_ID = 7, 0, 0xFFFFFFFF
OWNER_ALONE = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", whose, may, _NO_ID)
    for whose, may in ((_USER, _ALL), (_GROUP, _NOTHING), (_OTHER, _NOTHING))
)
"""The ACL in the form of the kernel: a version, then entries of a tag, permissions and an id."""
OTHERS = 0o077


def make_private(folder: Path, own: Collection[str] = ()) -> str:
    """Make a folder private, with all that will be made in it.

    Return a warning where this keeps others out of what is in the folder, but for `own`; else an
    empty text.
    """
    found = next((name for path in sorted(folder.iterdir()) if (name := path.name) not in own), "")
    was_open = not is_private(folder)
    folder.chmod(0o700)
    with suppress(OSError):
        os.setxattr(folder, DEFAULT_ACL, OWNER_ALONE)
    if not (found and was_open):
        return ""
    return (
        f"the folder {folder} held other files, such as {found}, and only its owner may enter it "
        f"from now on. Use a folder of its own for a job, or keep this one open by "
        f"{Option('shared', value=True)}. It is opened again by: chmod go=u-w {folder}"
    )


def is_private(folder: Path) -> bool:
    """Say whether only the owner may enter a folder."""
    return folder.stat().st_mode & OTHERS == 0


def is_made_private(folder: Path) -> bool:
    """Say whether `make_private` has made a folder private for this very user.

    The ACL is the mark: a folder that comes out of an archive, or is copied from another user, has
    none, unless its ACLs were asked for.
    """
    try:
        status = folder.stat()
        acl = os.getxattr(folder, DEFAULT_ACL)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & OTHERS and acl == OWNER_ALONE


def not_entered(folder: Path) -> JobFolderError:
    """Return the error for a folder of another user that this one may not enter."""
    return JobFolderError(
        f"{folder} belongs to another user, and only its owner may enter it. Let its owner make it "
        f"with {Option('shared', value=True)}."
    )


def refuse_closed(folder: Path) -> None:
    """Refuse a folder that exists, and that this user may not enter."""
    is_there = os.path.isdir(folder)  # noqa: PTH112 - it never raises
    if is_there and not os.access(folder, os.R_OK | os.X_OK):
        raise not_entered(folder)


def keep_private(folder: Path) -> None:
    """Take away what copied files have brought along for others, if the folder is private."""
    if is_private(folder):
        for place, folders, files in os.walk(folder):
            for name in (*folders, *files):
                path = Path(place, name)
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & ~OTHERS)
