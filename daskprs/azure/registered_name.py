"""Names of what is registered, as names of files."""

from __future__ import annotations

from urllib.parse import quote

from daskprs.errors import OptionError


def file_of_name(name: str) -> str:
    """Return the name of the file or folder for a name.

    Raises
    ------
    OptionError
        For a name that would lead out of the folder.

    """
    quoted = quote(name, safe="")
    if quoted in ("", ".", ".."):
        msg = f"{name!r} is not a name: use one with letters or digits."
        raise OptionError(msg)
    return quoted
