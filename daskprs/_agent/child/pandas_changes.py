"""Errors of a script that an earlier pandas would not have raised, told by what they say."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from typing import Any

REMOVED = {
    *("append", "applymap", "as_matrix", "asi8", "backfill", "bool", "clip_lower", "clip_upper"),
    *("convert_objects", "datetime", "datetools", "delta", "first", "from_csv", "ftypes"),
    *("get_dtype_counts", "get_value", "get_values", "is_all_dates", "is_boolean"),
    *("is_categorical", "is_floating", "is_integer", "is_lexsorted", "is_monotonic", "is_numeric"),
    *("is_object", "iteritems", "ix", "last", "lookup", "mad", "np", "pad", "ravel", "read_gbq"),
    *("reindex_axis", "rolling_mean", "scatter_matrix", "set_value", "slice_shift", "sort"),
    *("swapaxes", "take_nd", "to_dense", "to_gbq", "to_native_types", "tshift", "view", "week"),
    *("weekofyear", "Float64Index", "Int64Index", "Panel", "SparseDataFrame", "SparseSeries"),
    *("TimeGrouper", "UInt64Index"),
}
"""Names that pandas had, of its own and of its frames, series and indexes."""
MODULES = (
    *("pandas._libs.json", "pandas._libs.reduction", "pandas.core.arrays.sparse.dtype"),
    *("pandas.core.categorical", "pandas.core.index", "pandas.core.indexes.frozen"),
    *("pandas.core.indexes.numeric", "pandas.core.internals.base", "pandas.core.panel"),
    *("pandas.core.reshape.util", "pandas.core.sparse", "pandas.core.strings.base"),
    *("pandas.formats", "pandas.indexes", "pandas.io.date_converters", "pandas.io.gbq"),
    *("pandas.io.formats.latex", "pandas.io.msgpack", "pandas.json", "pandas.lib"),
    *("pandas.parser", "pandas.stats", "pandas.tools", "pandas.tslib", "pandas.types"),
    "pandas.util.testing",
)
"""Modules that pandas had: scripts import some, and pickles of frames name others."""
OF_FUNCTIONS = {
    *("closed", "convert_float", "date_parser", "delim_whitespace", "error_bad_lines"),
    *("infer_datetime_format", "keep_date_col", "mangle_dupe_cols", "na_sentinel", "numpy"),
    *("parse_cols", "prefix", "sheetname", "skip_footer", "squeeze", "tupleize_cols"),
    *("use_nullable_dtypes", "verbose", "warn_bad_lines"),
}
"""Keywords that functions of pandas took, most of them readers of files."""
OF_METHODS = {
    *("axis", "base", "broadcast_axis", "center", "closed", "codes", "col_space", "convert_dtype"),
    *("datetime_is_numeric", "downcast", "dtype", "encoding", "errors", "fastpath", "fill_axis"),
    *("how", "include_end", "include_start", "inplace", "is_copy", "keep_tz", "kind", "level"),
    *("levels", "limit", "line_terminator", "loffset", "method", "na_sentinel", "null_counts"),
    *("numeric_only", "obj", "quantile", "squeeze", "tolerance", "try_cast", "verbose"),
}
"""Keywords that methods of frames, series and indexes took."""
_NOT_IMPORTED = r"cannot import name '(\w+)'"
_KEYWORD = r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'"
_REFUSED = (
    r"Invalid value .* for dtype|Invalid frequency: |Cannot perform reduction .* string dtype"
    r"|only handle 1-dimensional arrays|Buffer has wrong number of dimensions"
    r"|Could not convert .* to numeric"
)
_POSITIONAL = r"(?:DataFrame|Series|NDFrame)\.(\w+)\(\) takes .* positional argument"


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
        case ModuleNotFoundError(name=name):
            return f"{name}.".startswith(tuple(f"{one}." for one in MODULES))
        case ImportError(name=name):
            found = re.match(_NOT_IMPORTED, str(error))
            return _is_pandas(name) and found is not None and found[1] in REMOVED
        case TypeError() | ValueError():
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            without_arrow = [file for file in files if not file.startswith("pyarrow/")]
            is_theirs = bool(without_arrow) and "pandas/" in without_arrow[-1]
            return _is_refused(str(error), pandas, is_theirs=is_theirs)
    return False


def _is_refused(message: str, pandas: Any, *, is_theirs: bool) -> bool:
    if found := re.match(_KEYWORD, message):
        owner, name, keyword = found.groups()
        if owner is None and hasattr(pandas, name):
            return keyword in OF_FUNCTIONS
        of = getattr(pandas, owner or "", pandas.DataFrame if is_theirs else None)
        is_method = owner == "NDFrame" or hasattr(of, name)
        return is_method and keyword in OF_METHODS
    if found := re.match(_POSITIONAL, message):
        return _has_keywords_alone(getattr(pandas.DataFrame, found[1], None))
    return is_theirs and re.search(_REFUSED, message) is not None


def _has_keywords_alone(function: Any) -> bool:
    """Say whether a function takes something by keyword alone: earlier ones took it by place."""
    return function is not None and any(
        one.kind is one.KEYWORD_ONLY for one in inspect.signature(function).parameters.values()
    )


def _is_pandas(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "pandas"
