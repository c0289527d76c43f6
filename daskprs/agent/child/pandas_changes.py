"""Errors of a script that an earlier pandas would not have raised, told by what they say."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Any

REMOVED = {
    *("append", "applymap", "as_matrix", "backfill", "bool", "datetime", "datetools", "first"),
    *("get_value", "is_monotonic", "iteritems", "ix", "last", "lookup", "mad", "np", "pad"),
    *("ravel", "set_value", "slice_shift", "swapaxes", "to_dense", "tshift", "view"),
    *("Float64Index", "Int64Index", "Panel", "UInt64Index"),
}
"""Names that pandas had, of its own and of its frames, series and indexes."""
_KEYWORD = re.compile(r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument")
_REFUSED = re.compile(
    r"Invalid value .* for dtype|Invalid frequency: |Cannot perform reduction .* string dtype"
)
_POSITIONAL = re.compile(r"(?:DataFrame|Series|NDFrame)\.\w+\(\) takes .* positional argument")


def hint_at_pandas(error: BaseException) -> str:
    """Return a sentence about the version of pandas for an error that it explains, else nothing."""
    pandas: Any = sys.modules.get("pandas")
    try:
        is_explained = pandas is not None and _is_explained(error, pandas)
    except BaseException:  # noqa: BLE001 - str() of a person's error may raise anything
        return ""
    if not is_explained:
        return ""
    return (
        f"This is pandas {pandas.__version__}, which refuses some of what earlier versions took. "
        "Change the line, or run the script under a Python that has an older pandas: "
        "python='/path/to/python'."
    )


def _is_explained(error: BaseException, pandas: Any) -> bool:
    match error:
        case AttributeError(name=name, obj=obj):
            home = obj.__name__ if isinstance(obj, type(sys)) else type(obj).__module__
            return name in REMOVED and _is_pandas(home)
        case ImportError(name=name):
            return _is_pandas(name)
        case TypeError() | ValueError():
            frames = traceback.extract_tb(error.__traceback__)
            is_theirs = bool(frames) and "pandas/" in frames[-1].filename
            return _is_refused(str(error), pandas, is_theirs=is_theirs)
    return False


def _is_refused(message: str, pandas: Any, *, is_theirs: bool) -> bool:
    if found := _KEYWORD.match(message):
        owner, name = found.groups()
        if owner is None:
            return hasattr(pandas, name) or (is_theirs and hasattr(pandas.DataFrame, name))
        return owner == "NDFrame" or hasattr(getattr(pandas, owner, None), name)
    return _POSITIONAL.match(message) is not None or (
        is_theirs and _REFUSED.search(message) is not None
    )


def _is_pandas(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "pandas"
