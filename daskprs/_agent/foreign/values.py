"""Values between two interpreters, which may have other versions of Python, NumPy and pandas.

A message is a pickle. Plain values of Python are in it as they are. Pickles of arrays and frames
suit one version only: so their parts are in it, out of which the other side builds its own. Of an
object of any other class its text is in it, and stands for the object: see `Elsewhere`.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import io
import pickle
import re
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, Callable, NoReturn, cast

PICKLE_PROTOCOL = 5
PLAIN: dict[str, Any] = {
    kind.__qualname__: kind
    for kind in (
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, range, set, slice),
        *(str, tuple, type(None), dt.date, dt.datetime, dt.time),
        *(dt.timedelta, dt.timezone, decimal.Decimal, uuid.UUID),
        collections.OrderedDict,
    )
}
"""Classes whose pickles every interpreter reads, by name."""
_PLAIN_KINDS = {*PLAIN.values()}
OLD_STRINGS = 3
"""The version of pandas in which strings got a type of their own."""
_FREQUENCIES = {"A": "Y", "H": "h", "L": "ms", "N": "ns", "S": "s", "T": "min", "U": "us"}
"""Names of frequencies since pandas 2.2, by the older ones."""
_OLD_FREQUENCY = re.compile(r"^(\d*)(A(?=-)|[HLNSTU]$)")


class CannotTravel(TypeError):  # noqa: N818 - it says what is wrong
    """A value that has no form that the other interpreter could read."""


class Elsewhere:
    """An object of a class of the other interpreter; the class has the same name here."""

    def __init__(self, text: str, representation: str, plain: str) -> None:
        self._text = text
        self._representation = representation
        self._plain = plain

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._representation

    def __reduce__(self) -> NoReturn:
        """Refuse to be kept: only the other interpreter has the class."""
        name, plain = type(self).__qualname__, self._plain
        advice = f". Return {plain}(...) of it" if plain else ""
        msg = (
            f"the script runs under another interpreter, by python=, and an object of its class "
            f"{name} cannot leave that interpreter{advice}"
        )
        raise CannotTravel(msg)


def dumped(value: Any) -> bytes:
    """Return a value as bytes.

    Raise `CannotTravel` if something in it has no form that the other side could read.
    """
    file = io.BytesIO()
    _Pickler(file, PICKLE_PROTOCOL).dump(value)
    return file.getvalue()


def loaded(data: bytes | bytearray) -> Any:
    """Return the value that the other side has made bytes of."""
    return _Unpickler(io.BytesIO(data)).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Return what the other side builds a value of, unless that is plain."""
        if type(value) is dt.datetime and isinstance(_zone_name(value.tzinfo), str):
            local, offset = value.replace(tzinfo=None), value.utcoffset()
            return build, ("moment", local, _zone_name(value.tzinfo), offset)
        if type(value) in _PLAIN_KINDS or value is build or _is_plain_class(value):
            return NotImplemented
        return build, _parts_of(value)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return one of the known classes; nothing else is ever looked up."""
        if name == build.__name__:
            return build
        try:
            return PLAIN[name]
        except KeyError:
            msg = f"{module}.{name} is not known here"
            raise pickle.UnpicklingError(msg) from None


def _is_plain_class(value: Any) -> bool:
    return isinstance(value, type) and value in _PLAIN_KINDS and value is not type(None)


def _parts_of(value: Any) -> tuple[Any, ...]:
    """Return the name of a form, and the parts of a value in this form."""
    if isinstance(value, dt.tzinfo):
        return "zone", _zone_name(value)
    if isinstance(value, PurePath):
        return "path", str(value)
    if isinstance(value, _Strings):
        return "strings", value.texts, False, ""
    for base in type(value).__mro__:
        package = base.__module__.partition(".")[0]
        find = _OF_PACKAGES.get(package)
        parts = None if find is None else find(value)
        if parts is not None:
            return parts
    if hasattr(value, "__arrow_c_stream__") and "pyarrow" in sys.modules:
        import pyarrow as pa

        return _of_pyarrow(pa.RecordBatchReader.from_stream(value)) or ()
    kind = type(value)
    bases = (base.__name__ for base in kind.__mro__[1:-1] if base.__module__ == "builtins")
    plain = next((name for name in bases if name in PLAIN), "")
    return "elsewhere", kind.__module__, kind.__qualname__, str(value), repr(value), plain


def build(form: str, *parts: Any) -> Any:
    """Return a value of this interpreter, made of its parts."""
    return _BUILDERS[form](*parts)


def _np() -> Any:
    import numpy as np  # only where something needs it

    return np


def _pd() -> Any:
    import pandas as pd  # the same

    return pd


# ---- the standard library ----


def _zone_name(zone: Any) -> Any:
    """Return the name of a time zone, or its seconds east of Greenwich; None for none."""
    if zone is None:
        return None
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if name is not None:
        return str(name)
    offset = zone.utcoffset(None)
    if offset is not None:
        return offset.total_seconds()
    if type(zone).__name__ == "tzutc":  # of dateutil
        return 0.0
    msg = f"the time zone {zone!r} has no name"
    raise CannotTravel(msg)


def _zone(name: Any) -> Any:
    if name is None or not isinstance(name, str):
        return None if name is None else dt.timezone(dt.timedelta(seconds=name))
    try:
        from zoneinfo import ZoneInfo
    except ImportError:  # before Python 3.9
        import pytz  # type: ignore[import-untyped]

        return pytz.timezone(name)
    return ZoneInfo(name)


def _moment(local: dt.datetime, name: str, offset: dt.timedelta) -> dt.datetime:
    zone = _zone(name)
    moment = local.replace(tzinfo=zone)
    if not hasattr(zone, "localize") and moment.utcoffset() == offset:
        return moment
    return (local - offset).replace(tzinfo=dt.timezone.utc).astimezone(zone)


def _elsewhere(module: str, name: str, *said: str) -> Any:
    namespace = {"__module__": module, "__qualname__": name}
    return type(name.rpartition(".")[2], (Elsewhere,), namespace)(*said)


# ---- NumPy ----


def _of_numpy(value: Any) -> tuple[Any, ...] | None:  # noqa: PLR0911 - a row for each class
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        return "masked array", np.asarray(value.data), np.asarray(value.mask)
    if isinstance(value, np.ndarray):
        return _of_array(np, np.asarray(value))
    if isinstance(value, np.dtype):
        return "dtype", _dtype_text(value)
    if isinstance(value, (np.str_, np.bytes_)):
        return "numpy text", value.item()
    if isinstance(value, np.void) and not value.dtype.hasobject:
        return "record", np.asarray(value)
    if isinstance(value, np.generic) and not isinstance(value, (np.void, np.object_)):
        return "scalar", value.dtype.str, value.tobytes()
    return None


def _of_array(np: Any, array: Any) -> tuple[Any, ...]:
    if array.dtype.hasobject:
        if array.dtype.names is not None:
            msg = "a structured array with objects in it; make a DataFrame of it"
            raise CannotTravel(msg)
        return "objects", array.shape, array.ravel().tolist()
    data = np.ascontiguousarray(array)
    return "array", _dtype_text(array.dtype), array.shape, bytearray(data.tobytes())


def _dtype_text(dtype: Any) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _dtype_text(base), shape
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {  # `descr` would make fields of the gaps between them
        "names": list(dtype.names),
        "formats": [_dtype_text(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }


def _array(dtype: Any, shape: tuple[int, ...], data: bytearray) -> Any:
    import numpy as np

    kind = np.dtype(dtype)
    if not kind.itemsize:
        return np.zeros(shape, kind)
    return np.frombuffer(data, kind).reshape(shape)


def _objects(shape: tuple[int, ...], values: list[Any]) -> Any:
    import numpy as np

    array = np.empty(len(values), object)
    for place, value in enumerate(values):  # a list would become an axis
        array[place] = value
    return array.reshape(shape)


# ---- pandas ----


def _of_pandas(value: Any) -> tuple[Any, ...] | None:  # noqa: PLR0911 - a row for each class
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        columns = [_column_values(pd, value.iloc[:, at]) for at in range(value.shape[1])]
        return "frame", columns, value.columns, value.index, dict(value.attrs)
    if isinstance(value, pd.Series):
        return "series", _column_values(pd, value), value.index, value.name
    if isinstance(value, pd.Index):
        return _of_index(pd, value)
    if value is pd.NaT or value is getattr(pd, "NA", None):
        return ("missing", "NaT" if value is pd.NaT else "NA")
    if isinstance(value, pd.Timestamp):
        utc = value if value.tzinfo is None else value.tz_convert("UTC").tz_localize(None)
        return "timestamp", utc.asm8, _zone_name(value.tzinfo)
    if isinstance(value, pd.Timedelta):
        return "timedelta", value.asm8
    if isinstance(value, pd.Period):
        return "period", value.ordinal, _new_frequency(value.freqstr)
    if isinstance(value, pd.Interval):
        return "interval", value.left, value.right, value.closed
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return _of_extension(pd, value)
    return None


def _column_values(pd: Any, column: Any) -> Any:
    """Return the values of a column or an index, as an array of NumPy or of pandas.

    Old versions of pandas keep strings as objects, and this function finds them.
    """
    import numpy as np

    if not isinstance(column.dtype, np.dtype):
        return column.array
    values = column.to_numpy()
    if values.dtype == object and _major(pd) < OLD_STRINGS:
        found = pd.api.types.infer_dtype(values, skipna=True)
        if found == "string" or (found == "empty" and column.name in _TEXT_LABELS):
            return _Strings([one if isinstance(one, str) else None for one in values])
    return values


_TEXT = {"strings": True}
"""Metadata of the type of arrays of objects that were strings."""
_TEXT_LABELS: set[Any] = set()
"""The columns of strings in the latest frame. Old versions of pandas keep strings as objects, and
where all of them are null, only the label says that they are strings."""


class _Strings:
    """Strings of a version of pandas that has no type for them."""

    def __init__(self, texts: list[Any]) -> None:
        self.texts = texts


def _of_index(pd: Any, index: Any) -> tuple[Any, ...]:
    if isinstance(index, pd.RangeIndex):
        return "range index", index.start, index.stop, index.step, index.name
    if isinstance(index, pd.MultiIndex):
        used = index.remove_unused_levels()  # by codes: a null would turn whole numbers into floats
        return "multi index", list(used.levels), [*map(list, used.codes)], list(index.names)
    return "index", _column_values(pd, index), index.name


def _new_frequency(name: str) -> str:
    """Return the name that pandas 2.2 and newer have for the frequency of a period."""
    return _OLD_FREQUENCY.sub(lambda old: old[1] + _FREQUENCIES[old[2]], name)


def _frequency_here(name: str) -> str:
    """Return the name that this pandas has; an older one knows the new names but for years."""
    is_old = tuple(map(int, _pd().__version__.split(".")[:2])) < (2, 2)
    return name.replace("Y-", "A-") if is_old else name


def _of_extension(pd: Any, array: Any) -> tuple[Any, ...]:
    import numpy as np

    if isinstance(array.dtype, np.dtype):  # naive times
        return _of_numpy_array(pd, array)
    find = _OF_DTYPES.get(type(array.dtype).__name__)
    if find is not None:
        return find(pd, array)
    if hasattr(array, "_data") and hasattr(array, "_mask"):
        return "nullable", array._data, array._mask  # noqa: SLF001 - nothing public has both
    msg = f"values of the type {array.dtype}; use a type of NumPy or of pandas itself"
    raise CannotTravel(msg)


def _of_numpy_array(_: Any, array: Any) -> tuple[Any, ...]:
    return "same", array.to_numpy()


def _of_strings(pd: Any, array: Any) -> tuple[Any, ...]:
    texts = array.to_numpy(object, na_value=None).tolist()
    na_value = getattr(array.dtype, "na_value", pd.NA)
    storage = getattr(array.dtype, "storage", "python")
    if storage == "python" and find_spec("pyarrow") is None:
        storage = ""  # it has no choice; the other side takes what is usual there
    return "strings", texts, na_value is pd.NA, storage


def _of_arrow_column(_: Any, array: Any) -> tuple[Any, ...]:
    import pyarrow as pa

    return "arrow column", _stream_of(pa.table({"": array.__arrow_array__()}))


_OF_DTYPES: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "ArrowDtype": _of_arrow_column,
    "CategoricalDtype": lambda _, one: ("categories", one.codes, one.categories, one.ordered),
    "DatetimeTZDtype": lambda _, one: (
        "times",
        one.tz_convert(None).to_numpy(),
        _zone_name(one.dtype.tz),
    ),
    "IntervalDtype": lambda _, array: ("intervals", array.left, array.right, array.closed),
    "PeriodDtype": lambda _, array: ("periods", array.asi8, _new_frequency(array.freqstr)),
    "SparseDtype": lambda _, array: ("sparse", array.to_dense(), array.fill_value),
    "StringDtype": _of_strings,
    **dict.fromkeys(("NumpyEADtype", "PandasDtype"), _of_numpy_array),
}
"""By the class of a type of pandas: how the parts of an array are found."""


def _major(pd: Any) -> int:
    return int(pd.__version__.partition(".")[0])


def _frame(columns: list[Any], names: Any, index: Any, attrs: dict[Any, Any]) -> Any:
    import pandas as pd

    made = {}
    _TEXT_LABELS.clear()
    for place, values in enumerate(columns):
        if getattr(values.dtype, "metadata", None) == _TEXT:
            _TEXT_LABELS.add(names[place])
            values = values.view(object)  # noqa: PLW2901 - the script has no use for the metadata
        try:
            made[place] = _column(pd, values, index)
        except (ValueError, TypeError, OverflowError) as error:
            msg = f"pandas {pd.__version__} cannot hold the column {names[place]!r}: {error}"
            raise ValueError(msg) from error
    frame = pd.DataFrame(made, index=index)
    frame.columns = names
    frame.attrs.update(attrs)
    return frame


def _column(pd: Any, values: Any, index: Any, name: Any = None) -> Any:
    """Return a column whose type is that of its values, which pandas would guess anew."""
    return pd.Series(values, index=index, name=name, dtype=_kept_type(values))


def _kept_type(values: Any) -> Any:
    return object if getattr(values.dtype, "hasobject", False) else None


def _index(values: Any, name: Any) -> Any:
    import pandas as pd

    return pd.Index(values, name=name, dtype=_kept_type(values))


def _timestamp(utc: Any, zone: Any) -> Any:
    import pandas as pd

    moment = pd.Timestamp(utc)
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(_pandas_zone(zone))


def _pandas_zone(name: Any) -> Any:
    """Return a time zone as pandas takes it: its versions have classes of their own for names."""
    return name if isinstance(name, str) else _zone(name)


def _strings(texts: list[Any], has_na: bool, storage: str) -> Any:  # noqa: FBT001 - the same
    """Return strings as pandas has them; before version 3, those without NA are objects."""
    import numpy as np
    import pandas as pd

    if has_na:
        try:
            dtype: Any = pd.StringDtype(cast("Any", storage))
        except (ImportError, TypeError, ValueError):  # no pyarrow, or an old version
            dtype = pd.StringDtype()
        return pd.array(texts, dtype=dtype)
    if _major(pd) < OLD_STRINGS:
        values = _objects((len(texts),), [np.nan if one is None else one for one in texts])
        return values.view(np.dtype(object, metadata=_TEXT))
    return pd.array(texts, dtype=pd.StringDtype(na_value=np.nan))


def _nullable(data: Any, mask: Any) -> Any:
    import pandas as pd

    kinds = {"b": "BooleanArray", "f": "FloatingArray"}
    return getattr(pd.arrays, kinds.get(data.dtype.kind, "IntegerArray"))(data, mask)


# ---- Arrow and polars ----


def _of_pyarrow(value: Any) -> tuple[Any, ...] | None:
    import pyarrow as pa

    if isinstance(value, pa.RecordBatchReader):
        value = value.read_all()
    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    return ("table", _stream_of(value)) if isinstance(value, pa.Table) else None


def _stream_of(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _table(stream: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(stream).read_all()


def _arrow_column(stream: bytes) -> Any:
    try:
        import pyarrow  # noqa: F401, ICN001 - the array needs it
    except ImportError:
        msg = "a column has a type of Arrow, and pyarrow is not installed there"
        raise TypeError(msg) from None
    import pandas as pd

    return pd.arrays.ArrowExtensionArray(_table(stream).column(0))


def _of_polars(value: Any) -> tuple[Any, ...] | None:
    import polars as pl

    if isinstance(value, pl.Series):
        value = value.to_frame()
    if not isinstance(value, pl.DataFrame):
        return None
    file = io.BytesIO()
    value.write_ipc_stream(file)
    return "polars frame", file.getvalue()


def _polars_frame(stream: bytes) -> Any:
    try:
        import polars as pl
    except ImportError:
        return _table(stream)
    return pl.read_ipc_stream(io.BytesIO(stream))


_OF_PACKAGES: dict[str, Callable[[Any], tuple[Any, ...] | None]] = {
    "numpy": _of_numpy,
    "pandas": _of_pandas,
    "polars": _of_polars,
    "pyarrow": _of_pyarrow,
}
_BUILDERS: dict[str, Callable[..., Any]] = {
    "array": _array,
    "arrow column": _arrow_column,
    "categories": lambda codes, categories, ordered: _pd().Categorical.from_codes(
        codes, categories, ordered=ordered
    ),
    "dtype": lambda text: _np().dtype(text),
    "elsewhere": _elsewhere,
    "frame": _frame,
    "index": _index,
    "interval": lambda left, right, closed: _pd().Interval(left, right, closed=closed),
    "intervals": lambda left, right, closed: _pd().arrays.IntervalArray.from_arrays(
        left, right, closed=closed
    ),
    "masked array": lambda data, mask: _np().ma.MaskedArray(data, mask),  # noqa: PLW0108 - imports come late
    "missing": lambda name: getattr(_pd(), name),
    "moment": _moment,
    "multi index": lambda *parts: _pd().MultiIndex(parts[0], parts[1], names=parts[2]),
    "nullable": _nullable,
    "numpy text": lambda text: getattr(_np(), "str_" if isinstance(text, str) else "bytes_")(text),
    "objects": _objects,
    "path": Path,
    "period": lambda ordinal, freq: _pd().Period(ordinal=ordinal, freq=_frequency_here(freq)),
    "periods": lambda ordinals, freq: _pd().arrays.PeriodArray(
        ordinals, dtype=_pd().PeriodDtype(_frequency_here(freq))
    ),
    "polars frame": _polars_frame,
    "range index": lambda *parts: _pd().RangeIndex(*parts[:3], name=parts[3]),
    "record": lambda array: array[()],
    "same": lambda value: value,
    "scalar": lambda dtype, data: _np().frombuffer(data, dtype)[0],
    "series": lambda values, index, name: _column(_pd(), values, index, name),
    "sparse": lambda dense, fill: _pd().arrays.SparseArray(
        dense, dtype=_pd().SparseDtype(dense.dtype, fill)
    ),
    "strings": _strings,
    "table": _table,
    "timedelta": lambda span: _pd().Timedelta(span),
    "times": lambda utc, zone: (
        _pd().DatetimeIndex(utc).tz_localize("UTC").tz_convert(_pandas_zone(zone)).array
    ),
    "timestamp": _timestamp,
    "zone": _zone,
}
