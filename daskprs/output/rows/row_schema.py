"""The one schema of rows from many mini-batches, and the casts that bring them into it.

The first mini-batch in input order that has rows fixes the schema. So the schema does not depend
on which mini-batch is done first. A column of nulls takes the first type that comes. The rows of
later mini-batches are cast, within a family of types and without the loss of any value.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from daskprs.errors import Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

is_ = pa.types
MOST_DIGITS = 76
"""Digits of the largest decimal of Arrow."""
INDEX_TYPE = pa.int32()
"""The type of the indices in every dictionary: one mini-batch may have more values than another."""


class RowSchema:
    """The schema that mini-batches have in common.

    Parameters
    ----------
    given
        The schema that the caller gives; None: the mini-batches settle it.

    """

    def __init__(self, given: pa.Schema | None = None) -> None:
        self._given = given
        self._fields: dict[str, pa.Field] | None = None
        self._origins: dict[str, str] = {}
        """By column: where its type comes from."""
        if given is not None:
            _check_names(given, "schema")
            self._fields = {field.name: field for field in given}
            self._origins = dict.fromkeys(self._fields, "schema")

    @property
    def schema(self) -> pa.Schema | None:
        """The schema; None before the first mini-batch with columns."""
        if self._given is not None:
            return self._given
        return None if self._fields is None else pa.schema(list(self._fields.values()))

    @property
    def is_settled(self) -> bool:
        """Whether no later mini-batch changes the schema: no type of it is null."""
        return self._given is not None or (
            self._fields is not None
            and not any(_has_null_type(field.type) for field in self._fields.values())
        )

    def select(self, names: Sequence[str]) -> RowSchema:
        """Return the schema of some columns."""
        some = RowSchema()
        some._fields = {name: (self._fields or {})[name] for name in names}
        some._origins = {name: self._origins[name] for name in names}
        if self._given is not None:
            some._given = pa.schema(list(some._fields.values()))
        return some

    def add(self, schema: pa.Schema, mini_batch: int) -> None:
        """Take the schema of the next mini-batch in input order.

        A schema without rows behind it counts, too: leave those out while others may come.

        Raises
        ------
        ReturnTypeError
            When no cast leads from these types to those that are settled.

        """
        where = f"mini-batch {mini_batch}"
        _check_names(schema, where)
        if self._fields is None:
            self._fields = {one.name: pa.field(one.name, normal(one.type)) for one in schema}
            self._origins = dict.fromkeys(self._fields, where)
            return
        self._check_columns(schema, where)
        for name, known in self._fields.items():
            new = schema.field(name).type
            settled = settled_type(known.type, new)
            if settled is None:
                raise self._misfit(name, where, new, "the types have no common family")
            if self._given is None and settled != known.type:
                self._fields[name] = pa.field(name, settled)
                self._origins[name] = where if is_.is_null(known.type) else self._origins[name]

    def cast(self, table: pa.Table, mini_batch: int, first_row: int = 0) -> pa.Table:
        """Return rows of a mini-batch in the schema, with its order of columns.

        Parameters
        ----------
        table
            The rows.
        mini_batch
            The number of the mini-batch, for errors.
        first_row
            The number of the first of these rows among those of the mini-batch, for errors.

        Raises
        ------
        ReturnTypeError
            When a column is missing or unknown, or a value would be lost.

        """
        where = f"mini-batch {mini_batch}"
        _check_names(table.schema, where)
        if self._fields is None:
            self.add(table.schema, mini_batch)
        self._check_columns(table.schema, where)
        columns = [
            self._cast_column(table.column(name), field, where, first_row)
            for name, field in (self._fields or {}).items()
        ]
        return pa.table(columns, schema=self.schema)

    def _cast_column(
        self, column: pa.ChunkedArray, field: pa.Field, where: str, first_row: int
    ) -> pa.ChunkedArray:
        if settled_type(field.type, column.type) is None:
            row = max(0, pc.index(column.is_valid(), value=True).as_py())
            value = f", as row {first_row + row} shows: {column[row]!s}" if len(column) else ""
            why = f"the types have no common family{value}"
            raise self._misfit(field.name, where, column.type, why)
        if not field.nullable and column.null_count:
            row = first_row + pc.index(column.is_null(), value=True).as_py()
            raise self._misfit(field.name, where, column.type, f"row {row} is null")
        try:
            return cast_exactly(column, field.type)
        except pa.ArrowException as error:
            row = _first_row_that(partial(_is_lost, type_=field.type), column)
            value = "" if row is None else f", as row {first_row + row} shows: {column[row]!s}"
            why = f"values would be lost{value} ({error})"
            raise self._misfit(field.name, where, column.type, why) from error

    def _check_columns(self, schema: pa.Schema, where: str) -> None:
        known = self._fields or {}
        missing = [name for name in known if name not in schema.names]
        extra = [name for name in schema.names if name not in known]
        if missing or extra:
            lacks = f" lacks the columns {missing}" if missing else ""
            has = f" has the columns {extra} besides" if extra else ""
            msg = (
                f"the rows of {where} have other columns than those of {self._origin()}: "
                f"{where}{lacks}{' and' if missing and extra else ''}{has}. Return the same "
                f"columns for every mini-batch, with nulls where there is nothing."
            )
            raise ReturnTypeError(msg)

    def _misfit(self, name: str, where: str, new: pa.DataType, why: str) -> ReturnTypeError:
        known = (self._fields or {})[name].type
        origin = self._origins[name]
        if self._given is not None:
            what = f"{Option('schema')} says {known}"
            advice = f"Return {known}, or change the type in {Option('schema')}"
        else:
            what = f"{origin} has {known}"
            advice = (
                "Return one type for every mini-batch: convert the column in run(), or give its "
                f"type by {Option('schema')}"
            )
        msg = f"column {name!r} is {new} in {where}, and {what}: {why}. {advice}."
        return ReturnTypeError(msg)

    def _origin(self) -> str:
        origins = list(self._origins.values())
        if self._given is not None:
            return f"{Option('schema')}"
        return origins[0] if origins else "the mini-batches before"


def _check_names(schema: pa.Schema, where: str) -> None:
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{where} has two columns {twice!r}: columns with types need different names."
        raise ReturnTypeError(msg)


# ---- types ----


def settled_type(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Return the known type, with what the new type says about nulls in it.

    Return None if the types have no common family: values are not cast between families.
    """
    if is_.is_null(known):
        return normal(new)
    if is_.is_null(new) or known == new:
        return known
    if is_.is_dictionary(known):
        values = settled_type(known.value_type, _values(new))
        return values and pa.dictionary(known.index_type, values, known.ordered)
    if new != _values(new):
        return settled_type(known, _values(new))
    if is_.is_nested(known) and is_.is_nested(new):
        return _settled_nested(known, new)
    family = _family(known)
    return known if family is not None and family == _family(new) else None


def _settled_nested(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    if is_.is_struct(known) and is_.is_struct(new):
        if {one.name for one in known} != {one.name for one in new}:
            return None
        inner = [(one, settled_type(one.type, new.field(one.name).type)) for one in known]
        if any(type_ is None for _, type_ in inner):
            return None
        return pa.struct([one.with_type(type_) for one, type_ in inner])
    if is_.is_map(known) and is_.is_map(new):
        key = settled_type(known.key_type, new.key_type)
        item = settled_type(known.item_type, new.item_type)
        return key and item and pa.map_(key, item, known.keys_sorted)
    if _is_list(known) and _is_list(new):
        value = settled_type(known.value_type, new.value_type)
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
    return bool(
        is_.is_list(type_)
        or is_.is_large_list(type_)
        or is_.is_fixed_size_list(type_)
        or is_.is_list_view(type_)
        or is_.is_large_list_view(type_)
    )


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


def _has_null_type(type_: pa.DataType) -> bool:
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    if is_.is_dictionary(type_):
        inner = [type_.value_type]
    return bool(is_.is_null(type_)) or any(map(_has_null_type, inner))


def _family(type_: pa.DataType) -> Any:
    """Return the family of a flat type; None if it has no other members."""
    for name, belongs in _FAMILIES.items():
        if belongs(type_):
            return (name, type_.tz is None) if is_.is_timestamp(type_) else name
    return None


def _is_text(type_: pa.DataType) -> bool:
    return bool(is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        is_.is_binary(type_)
        or is_.is_large_binary(type_)
        or is_.is_fixed_size_binary(type_)
        or is_.is_binary_view(type_)
    )


def _is_number(type_: pa.DataType) -> bool:
    return bool(is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_))


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "number": _is_number,
    "text": _is_text,
    "bytes": _is_bytes,
    "date": is_.is_date,
    "time": is_.is_time,
    "timestamp": is_.is_timestamp,
    "duration": is_.is_duration,
}


# ---- values ----


def cast_exactly(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; raise `pyarrow.ArrowException` if a value would be lost."""
    if column.type == type_:
        return column
    return pa.chunked_array([_cast_array(chunk, type_) for chunk in column.chunks], type_)


def _cast_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
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
    if not all(map(_equal, _leaves(array), _leaves(made))):
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


def _equal(one: pa.Array, made: pa.Array) -> bool:
    """Say whether a cast array holds the same values; a NaN equals a NaN."""
    if is_.is_null(one.type):
        return True
    other = _converted(made, one.type)
    if is_.is_floating(one.type):
        one, other = (array.cast(pa.float64()) for array in (one, other))
        if not pc.is_nan(one).equals(pc.is_nan(other)):
            return False
        one, other = (pc.if_else(pc.is_nan(array), None, array) for array in (one, other))
    return bool(one.equals(other))


def _is_lost(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    try:
        cast_exactly(column, type_)
    except pa.ArrowException:
        return True
    return False


def _first_row_that(
    is_lost: Callable[[pa.ChunkedArray], bool], column: pa.ChunkedArray
) -> int | None:
    """Return the first row that makes a column lose a value; None if no single row does."""
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if is_lost(column.slice(low, middle + 1 - low)):
            high = middle
        else:
            low = middle + 1
    return low if low < len(column) else None
