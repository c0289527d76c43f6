"""Casts between types of Arrow that change no value.

Types form families. Within a family a value is cast where the other type holds it. Between families
nothing is cast, unless the option `dtypes` asks for the type: the table `BY_DTYPES` says which. The
number 20200101 is never a moment, and a moment is never a number.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

is_ = pa.types
MOST_DIGITS = 76
"""Digits of the largest decimal of Arrow."""
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of Arrow, pandas and daskprs for values that a type does not hold."""
INDEX_TYPE = pa.int32()
"""The type of the indices in every dictionary: one mini-batch may have more values than another."""


class Asked(IntEnum):
    """The source of a type, which decides which values may be cast to the type."""

    NOT = 0
    """Rows have it in common, or a collection announces it: each value stays what it is."""
    SCHEMA = 1
    """The option `schema` names it: floats are rounded to shorter floats and to decimals, too."""
    DTYPES = 2
    """The option `dtypes` names it: values also leave their family, as `BY_DTYPES` says."""


# ---- types ----


def is_text(type_: pa.DataType) -> bool:
    """Say whether a type of Arrow is text."""
    return bool(is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    kinds = (is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary, is_.is_binary_view)
    return any(kind(type_) for kind in kinds)


def _is_number(type_: pa.DataType) -> bool:
    return bool(is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_))


FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "number": _is_number,
    "boolean": is_.is_boolean,
    "text": is_text,
    "bytes": _is_bytes,
    "date": is_.is_date,
    "time": is_.is_time,
    "timestamp": lambda type_: is_.is_timestamp(type_) and type_.tz is None,
    "timestamp with a zone": lambda type_: is_.is_timestamp(type_) and type_.tz is not None,
    "duration": is_.is_duration,
}
BY_DTYPES = {
    "number": {"boolean", "text"},
    "boolean": {"number", "text"},
    "text": {"number", "boolean", "bytes", "date", "timestamp", "timestamp with a zone"},
    "bytes": {"text"},
    "date": {"timestamp", "text"},
    "time": {"text"},
    "timestamp": {"date", "text"},
    "timestamp with a zone": {"text"},
}
"""By family: the other families that its values become where the option `dtypes` asks for one.

False and true are 0 and 1, and no other number is a boolean. A date is its midnight. Text has to be
written as Arrow writes the value, except for floats, which are the ones nearest to the text.
"""


def settled_type(
    known: pa.DataType, new: pa.DataType, asked: Asked = Asked.NOT
) -> pa.DataType | None:
    """Return the known type, with what the new type says about nulls in it.

    Return None if values of the new type are not cast to the known one, whatever they are.
    """
    if is_.is_null(known):
        return normal(new)
    if is_.is_null(new) or known == new:
        return known
    if is_.is_dictionary(known):
        values = settled_type(known.value_type, _values(new), asked)
        return values and pa.dictionary(known.index_type, values, known.ordered)
    if new != _values(new):
        return settled_type(known, _values(new), asked)
    if is_.is_nested(known) and is_.is_nested(new):
        return _settled_nested(known, new, asked)
    return known if _is_in_table(_family(new), _family(known), asked) else None


def _settled_nested(known: pa.DataType, new: pa.DataType, asked: Asked) -> pa.DataType | None:
    if is_.is_struct(known) and is_.is_struct(new):
        if {one.name for one in known} != {one.name for one in new}:
            return None
        inner = [(one, settled_type(one.type, new.field(one.name).type, asked)) for one in known]
        if any(type_ is None for _, type_ in inner):
            return None
        return pa.struct([one.with_type(type_) for one, type_ in inner])
    if is_.is_map(known) and is_.is_map(new):
        key = settled_type(known.key_type, new.key_type, asked)
        item = settled_type(known.item_type, new.item_type, asked)
        return key and item and pa.map_(key, item, known.keys_sorted)
    if _is_list(known) and _is_list(new):
        value = settled_type(known.value_type, new.value_type, asked)
        return value and _list_of(known, known.value_field.with_type(value))
    return None


OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Plain types in place of views, of which Arrow takes no rows."""


def normal(type_: pa.DataType) -> pa.DataType:
    """Return a type in which everything may be null, and dictionaries have room.

    A dictionary has plain text and bytes in place of views, which Arrow can neither take nor write.
    """
    if isinstance(type_, pa.RunEndEncodedType):
        return normal(type_.value_type)
    if is_.is_dictionary(type_):
        value = normal(type_.value_type)
        return pa.dictionary(INDEX_TYPE, OF_VIEWS.get(value, value), type_.ordered)
    if is_.is_struct(type_):
        return pa.struct([pa.field(one.name, normal(one.type)) for one in type_])
    if is_.is_map(type_):
        return pa.map_(normal(type_.key_type), normal(type_.item_type), type_.keys_sorted)
    if _is_list(type_):
        return _list_of(type_, pa.field("item", normal(type_.value_type)))
    return type_


def _values(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values, however they are encoded."""
    encoded = is_.is_dictionary(type_) or isinstance(type_, pa.RunEndEncodedType)
    return type_.value_type if encoded else type_


def _is_list(type_: pa.DataType) -> bool:
    views = (is_.is_list_view, is_.is_large_list_view)
    kinds = (is_.is_list, is_.is_large_list, is_.is_fixed_size_list, *views)
    return any(kind(type_) for kind in kinds)


def _list_of(like: pa.DataType, value: pa.Field) -> pa.DataType:
    """Return a list of the same kind with other values."""
    if is_.is_fixed_size_list(like):
        return pa.list_(value, like.list_size)
    if is_.is_large_list(like):
        return pa.large_list(value)
    if is_.is_list_view(like):
        return pa.list_view(value)
    if is_.is_large_list_view(like):
        return pa.large_list_view(value)
    return pa.list_(value)


def has_null_type(type_: pa.DataType) -> bool:
    """Say whether a type, or one inside it, holds nulls alone."""
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    if is_.is_dictionary(type_):
        inner = [type_.value_type]
    return bool(is_.is_null(type_)) or any(map(has_null_type, inner))


def _is_in_table(family: str | None, wanted: str | None, asked: Asked) -> bool:
    if family is None or wanted is None:
        return False
    return family == wanted or (asked is Asked.DTYPES and wanted in BY_DTYPES.get(family, ()))


def _family(type_: pa.DataType) -> str | None:
    return next((name for name, has in FAMILIES.items() if has(type_)), None)


# ---- values ----


def cast_exactly(
    column: pa.ChunkedArray, type_: pa.DataType, asked: Asked = Asked.NOT
) -> pa.ChunkedArray:
    """Return a column as another type; raise `pyarrow.ArrowException` if a value would change.

    Whether values may be cast between these types at all is for `settled_type` to say.
    """
    # Dictionaries of an extension type are equal for Arrow, whatever the type of their indices.
    is_coded = is_.is_dictionary(type_) and is_.is_dictionary(column.type)
    if column.type == type_ and not (is_coded and column.type.index_type != type_.index_type):
        return column
    return pa.chunked_array([_cast_array(chunk, type_, asked) for chunk in column.chunks], type_)


def checked_cast(column: pa.ChunkedArray, type_: pa.DataType, asked: Asked) -> pa.ChunkedArray:
    """Return a column as another type; `pyarrow.ArrowInvalid` shows what would change."""
    if settled_type(type_, column.type, asked) is None:
        raise pa.ArrowInvalid(no_cast(column.type, type_))
    try:
        return cast_exactly(column, type_, asked)
    except pa.ArrowException as error:
        row = first_changed_row(column, type_, asked)
        shown = "" if row is None else f", got {column[row].as_py()!r}"
        msg = f"a value would change{shown} ({error})"
        raise pa.ArrowInvalid(msg) from error


def no_cast(from_: pa.DataType, to: pa.DataType) -> str:
    """Return the reason why values of a type are never cast to another."""
    return (
        f"there is no conversion from {from_} to {to}; the page about inputs lists all conversions"
    )


def first_changed_row(column: pa.ChunkedArray, type_: pa.DataType, asked: Asked) -> int | None:
    """Return the first row whose value a cast would change; None if no single row has one."""
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if _is_changed(column.slice(low, middle + 1 - low), type_, asked):
            high = middle
        else:
            low = middle + 1
    return low if low < len(column) else None


def _is_changed(column: pa.ChunkedArray, type_: pa.DataType, asked: Asked) -> bool:
    try:
        cast_exactly(column, type_, asked)
    except pa.ArrowException:
        return True
    return False


def _cast_array(array: pa.Array, type_: pa.DataType, asked: Asked) -> pa.Array:
    if is_.is_null(array.type):
        return pa.nulls(len(array), type_)
    array = _plain(array)
    made = array
    if is_.is_dictionary(type_) and _values(array.type) != type_.value_type:
        if is_.is_dictionary(array.type):  # the order of the categories stays
            try:
                values = _converted(array.dictionary, type_.value_type)
            except pa.ArrowInvalid:  # perhaps one that no row has
                array = _of_used_categories(array)
                values = _converted(array.dictionary, type_.value_type)
            made = pa.DictionaryArray.from_arrays(array.indices, values)
        else:
            made = _converted(array, type_.value_type)
    if is_.is_dictionary(type_) and not is_.is_dictionary(made.type):
        made = made.dictionary_encode()  # Arrow casts text alone to dictionaries
    made = _converted(made, type_)
    leaves = zip(_leaves(array), _leaves(made), strict=False)  # nulls may become a whole struct
    if not all(_is_kept(one, other, asked) for one, other in leaves):
        msg = f"not every value of {array.type} is one of {type_}"
        raise pa.ArrowInvalid(msg)
    return made


def _of_used_categories(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return an array without the categories that none of its values has."""
    used = pc.unique(array.indices).drop_null()
    used = used.take(pc.sort_indices(used))
    codes = pc.index_in(array.indices, used)
    return pa.DictionaryArray.from_arrays(codes, array.dictionary.take(used))


def _converted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast an array, where Arrow refuses integers for their type, and not for their values."""
    if is_.is_dictionary(type_):  # Arrow makes dictionaries of text alone
        coded = array if is_.is_dictionary(array.type) else array.dictionary_encode()
        codes = coded.indices.cast(type_.index_type)
        return pa.DictionaryArray.from_arrays(codes, coded.dictionary, ordered=type_.ordered)
    if is_.is_integer(array.type) and is_.is_decimal(type_):
        array = array.cast(pa.decimal256(MOST_DIGITS, max(0, type_.scale)))
    if is_.is_decimal(array.type) and is_.is_floating(type_):
        array = array.cast(pa.string()).cast(pa.float64())  # Arrow makes 127.00001 of 127.000
    # Beyond 2 ** 53 some integers are floats: whoever compares the values sees which.
    return array.cast(type_, safe=not (is_.is_integer(array.type) and is_.is_floating(type_)))


def _plain(array: pa.Array) -> pa.Array:
    """Return an array of the type that `normal` gives it, without values of other rows."""
    if isinstance(array.type, pa.RunEndEncodedType):
        array = pc.run_end_decode(array)
    if is_.is_nested(array.type):  # Arrow casts all values of a list, beyond a slice, too
        array = pa.concat_arrays([array, array.slice(0, 0)])
    return array.cast(normal(array.type))


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the flat arrays that a nested array is made of."""
    if is_.is_dictionary(array.type):
        yield from _leaves(array.dictionary_decode())
    elif is_.is_struct(array.type):
        children = dict(zip((one.name for one in array.type), array.flatten(), strict=True))
        for name in sorted(children):
            yield from _leaves(children[name])
    elif is_.is_map(array.type):
        pairs = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        yield from _leaves(array.cast(pa.list_(pairs)))
    elif _is_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array


def _is_kept(one: pa.Array, made: pa.Array, asked: Asked) -> bool:
    """Say whether a cast array has the values, rounded where the table allows it."""
    is_rounded = is_.is_floating(one.type) and asked >= Asked.SCHEMA
    if is_rounded and is_.is_decimal(made.type):
        return True  # Arrow refuses a float that has no decimal
    if is_rounded and is_.is_floating(made.type):
        return bool(pc.is_inf(one).equals(pc.is_inf(made)))
    if is_text(one.type) and is_.is_floating(made.type):  # of any digits, but none too large
        is_odd = pc.invert(pc.is_finite(made))
        one, made = one.filter(is_odd), made.filter(is_odd)
    if is_text(one.type) and is_.is_boolean(made.type):
        one = pc.utf8_lower(one)
    return _equal(one, made)


def _equal(one: pa.Array, made: pa.Array) -> bool:
    """Say whether a cast array holds the same values; a NaN equals a NaN."""
    if is_.is_null(one.type):
        return True
    if is_.is_floating(one.type) and is_.is_decimal(made.type):
        one = one.cast(pa.float64())  # several decimals are the same short float
    if is_.is_decimal(one.type) and is_.is_floating(made.type):
        made = made.cast(pa.float64())
        if not _converted(one, pa.float64()).equals(made):
            return False
    other = _converted(made, one.type)
    if is_.is_floating(one.type):
        one, other = (array.cast(pa.float64()) for array in (one, other))
        if not pc.is_nan(one).equals(pc.is_nan(other)):
            return False
        one, other = (pc.if_else(pc.is_nan(array), None, array) for array in (one, other))
    return bool(one.equals(other))
