"""The language of `filter`: ``col("age") > 32 and location == "UK"``.

Python's own parser parses it, and its tree is then walked. Only the syntax listed here is
accepted, and no Python code is ever evaluated or called. The operators are those of pandas: Arrow
rounds the quotient of integers, has no ``%``, and does not compare booleans with numbers.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_CHARACTERS = 10_000
DEEPEST = 50
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
INT = re.compile(r"\s*[+-]?[0-9]+\s*")
UNIT = re.compile("[A-Za-z:]")
"""What the text of a duration has: pandas takes a number alone for nanoseconds."""
CALLS = 'col("name") and datetime(2024, 1, 31)'
RULE = (
    'names of columns, col("name"), numbers, text in quotes, True, False, None, datetime(...), '
    "== != < <= > >=, in, is None, and, or, not, + - * / % and parentheses"
)
LITERALS = {bool: "bool", int: "number", float: "number", str: "text", pd.Timestamp: "date"}
"""The kind of each type of literal."""
OBJECTS = {
    "empty": "any",
    "string": "text",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "decimal",
    "boolean": "bool",
    "date": "date",
    "datetime": "date",
}
"""The kind of a column of objects, by what pandas infers."""


class BadExpression(ValueError):  # noqa: N818 - it says what is wrong
    """An expression that means nothing; the message says where and why."""


class Expression(NamedTuple):
    """A condition that rows fulfil or not."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Return the meaning of a text; what is not of this language is a BadExpression."""
        if len(text) > MOST_CHARACTERS:
            msg = f"it has more than {MOST_CHARACTERS:,} characters"
            raise BadExpression(msg)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of backslashes in text
                tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            hint = " Write and, or, not." if any(one in text for one in ("&&", "||", "!")) else ""
            msg = f"{error.msg} at character {error.offset or 1} of {text!r}.{hint}"
            raise BadExpression(msg) from None
        except (ValueError, RecursionError, MemoryError) as error:
            msg = f"{text[:100]!r} cannot be parsed: {error}"
            raise BadExpression(msg) from None
        _check(tree, 0)
        return cls(text, tree)

    def columns(self) -> set[str]:
        """Return the columns that are named."""
        return set(_columns(self.tree))

    def mask(self, frame: pd.DataFrame) -> pd.Series:
        """Return which rows fulfil it; types of columns that do not fit are a BadExpression.

        Comparisons with null are as in pandas: ``!=`` holds, no other one does.
        """
        try:
            value = _Evaluation(frame).value(self.tree)
            mask: pd.Series | None = _truth(value) if isinstance(value, pd.Series) else None
        except (ValueError, ArithmeticError, TypeError, NotImplementedError) as error:
            msg = f"{self.text!r}: {error}"
            raise BadExpression(msg) from None
        if mask is None:
            msg = f"{self.text!r} names no column, so that it keeps all rows or none"
            raise BadExpression(msg)
        return mask


# ---- the syntax ----


def _check(node: ast.expr, depth: int) -> None:
    """Reject syntax outside the language, wherever it stands."""
    where = f"at character {node.col_offset + 1}"
    if depth > DEEPEST:
        msg = f"it is nested more than {DEEPEST} deep"
        raise BadExpression(msg)
    if isinstance(node, ast.Call):
        _check_call(node, where)
        return
    if not _is_known(node):
        msg = f"{ast.unparse(node)!r} {where} is none of what a filter takes: {RULE}"
        raise BadExpression(msg)
    if isinstance(node, ast.Compare):
        _check_compare(node, where)
    for inside in ast.iter_child_nodes(node):
        if isinstance(inside, ast.expr):
            _check(inside, depth + 1)


def _is_known(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return isinstance(node.value, str | int | float | None)
        case ast.BinOp():
            return isinstance(node.op, (*ARITHMETIC, ast.BitAnd, ast.BitOr))
        case ast.UnaryOp():
            return not isinstance(node.op, ast.UAdd)
        case ast.Name() | ast.BoolOp() | ast.Compare() | ast.List() | ast.Tuple():
            return True
    return False


def _check_call(node: ast.Call, where: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    values = [one.value for one in node.args if isinstance(one, ast.Constant)]
    is_plain = len(values) == len(node.args) and not node.keywords
    if name == "col" and is_plain and len(values) == 1 and isinstance(values[0], str):
        return
    if name != "datetime" or not is_plain:
        msg = f"{ast.unparse(node)!r} {where}: the only calls are {CALLS}"
        raise BadExpression(msg)
    try:
        _date(node)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{ast.unparse(node)} {where}: it names no date: {error}"
        raise BadExpression(msg) from None


def _check_compare(node: ast.Compare, where: str) -> None:
    lefts = [node.left, *node.comparators]
    for op, left, right in zip(node.ops, lefts, node.comparators, strict=False):
        if isinstance(op, ast.Is | ast.IsNot) and not _is_none(right):
            msg = f"{ast.unparse(node)!r} {where}: is takes None alone"
            raise BadExpression(msg)
        orders = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if orders and (_is_none(left) or _is_none(right)):
            msg = f"{ast.unparse(node)!r} {where}: nothing is above or below None"
            raise BadExpression(msg)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _columns(node: ast.AST) -> Iterator[str]:
    if (name := _column(node)) is not None:
        yield name
    elif not isinstance(node, ast.Call):
        for inside in ast.iter_child_nodes(node):
            yield from _columns(inside)


def _column(node: ast.AST) -> str | None:
    """Return the column that a name or a call of `col` stands for."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str(name))]):
            return name
    return None


def _date(node: ast.Call) -> pd.Timestamp:
    """Return the moment that ``datetime(2024, 1, 31, 12)`` names."""
    arguments: list[Any] = [one.value for one in node.args if isinstance(one, ast.Constant)]
    return pd.Timestamp(datetime(*arguments))  # noqa: DTZ001 - it takes the zone of its column


# ---- the values ----


class _Evaluation:
    """The values of the parts of an expression, over one frame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple():
                return [self.value(one) for one in node.elts]
            case ast.BoolOp():
                return self._joined(node.op, node.values)
            case ast.BinOp() | ast.UnaryOp():
                return self._calculated(node)
            case ast.Compare():
                return self._compare(node)
        name = _column(node)
        return _date(node) if isinstance(node, ast.Call) and name is None else self._frame[name]

    def _calculated(self, node: ast.BinOp | ast.UnaryOp) -> Any:
        match node:
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.UnaryOp():
                return ~_truth(self.value(node.operand))
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return self._joined(node.op, [node.left, node.right])
        return ARITHMETIC[type(node.op)](self._number(node.left), self._number(node.right))

    def _joined(self, op: ast.AST, nodes: list[ast.expr]) -> Any:
        both = operator.and_ if isinstance(op, ast.And | ast.BitAnd) else operator.or_
        return reduce(both, (_truth(self.value(one)) for one in nodes))

    def _number(self, node: ast.expr) -> Any:
        value = self.value(node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if hasattr(value, "dtype"):
            is_number = pd.api.types.is_numeric_dtype(value.dtype)
        if not is_number:
            msg = f"{ast.unparse(node)} is not a number"
            raise BadExpression(msg)
        return value

    def _compare(self, node: ast.Compare) -> Any:
        lefts = [node.left, *node.comparators]
        sides = zip(node.ops, lefts, node.comparators, strict=False)
        return reduce(operator.and_, (self._comparison(*one) for one in sides))

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, right, wanted=isinstance(op, ast.In))
        if _is_none(left):
            left, right = right, left
        one, other = self.value(left), self.value(right)
        if other is None:
            is_equal = isinstance(op, ast.Is | ast.Eq)
            return _column_of(one, left).isna() ^ (not is_equal)
        one, other = _aligned(one, other, ast.unparse(left), ast.unparse(right))
        return _truth(COMPARE[type(op)](one, other), null=isinstance(op, ast.NotEq))

    def _membership(self, left: ast.expr, right: ast.expr, *, wanted: bool) -> Any:
        if not isinstance(right, ast.List | ast.Tuple):
            msg = "in takes a column on its left, and a list on its right"
            raise BadExpression(msg)
        column = _column_of(self.value(left), left)
        found = pd.Series(data=False, index=column.index)
        for other in right.elts:
            found |= self._comparison(ast.Eq(), left, other)
        return found if wanted else ~found


def _column_of(value: Any, node: ast.expr) -> pd.Series:
    if isinstance(value, pd.Series):
        return value
    msg = f"{ast.unparse(node)} is not a column"
    raise BadExpression(msg)


def _truth(value: Any, *, null: bool = False) -> Any:
    """Return conditions as booleans; a null counts as `null`."""
    if isinstance(value, bool | np.bool_):
        return np.bool_(value)
    if not isinstance(value, pd.Series):
        msg = f"{value!r} is not a condition"
        raise BadExpression(msg)
    if value.dtype == object:
        if not value.dropna().isin([True, False]).all():
            msg = f"column {value.name!r} is not a condition: it does not hold booleans"
            raise BadExpression(msg)
    elif not pd.api.types.is_bool_dtype(value.dtype):
        msg = f"column {value.name!r}, {value.dtype}, is not a condition: compare it with something"
        raise BadExpression(msg)
    return pd.Series(value.to_numpy(bool, na_value=null), value.index, name=value.name)


# ---- two sides of one type ----


def _aligned(one: Any, other: Any, left: str, right: str) -> tuple[Any, Any]:
    """Return two values so that they can be compared.

    A literal is read as a number, a boolean, a date or a duration beside a column of these.
    """
    (one, kind), (other, against) = _typed(one, left), _typed(other, right)
    if isinstance(other, pd.Series) and not isinstance(one, pd.Series):
        other, one = _aligned(other, one, right, left)
        return one, other
    is_column, is_text = isinstance(one, pd.Series), isinstance(other, str)
    if (
        (is_text and is_column and kind in {"number", "bool"})
        or (is_text and kind in {"date", "duration"})
        or (kind == "decimal" and isinstance(other, str | int | float))
    ):
        other, against = _literal(other, kind, left), kind
    if kind == against == "date":
        return _in_zone(one, like=other), _in_zone(other, like=one)
    numbers = {kind, against} in ({"number", "bool"}, {"number", "decimal"})
    if kind == against or "any" in {kind, against} or numbers:
        return one, other
    msg = (
        f"{left} is {_called(kind)} and {right} is {_called(against)}: they cannot be compared. "
        "convert_column_types before the filter gives a column another type"
    )
    raise BadExpression(msg)


def _typed(value: Any, name: str) -> tuple[Any, str]:
    """Return a value and its kind; a column of objects becomes one of their real type.

    Objects and a text are never equal, so that a comparison would leave out all rows.
    """
    if isinstance(value, list):
        msg = f"{name} is a list, which stands on the right of in alone"
        raise BadExpression(msg)
    if not isinstance(value, pd.Series):
        return value, LITERALS.get(type(value), "any")
    if value.dtype != object:
        return value, _kind_of(value.dtype)
    inferred = pd.api.types.infer_dtype(value, skipna=True)
    if inferred not in OBJECTS:
        msg = f"{name} holds what cannot be compared: {inferred}"
        raise BadExpression(msg)
    kind = OBJECTS[inferred]
    real: dict[str, Any] = {"date": "datetime64[us]", "bool": "boolean"}
    return (value.astype(real[kind]) if kind in real else value), kind


def _kind_of(dtype: Any) -> str:
    if pd.api.types.is_bool_dtype(dtype):
        return "bool"
    if pd.api.types.is_numeric_dtype(dtype):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    if pd.api.types.is_timedelta64_dtype(dtype):
        return "duration"
    return "text" if isinstance(dtype, pd.StringDtype) else "any"


def _called(kind: str) -> str:
    return "text" if kind == "text" else f"a {'boolean' if kind == 'bool' else kind}"


def _literal(value: Any, kind: str, column: str) -> Any:
    """Return a literal as a value of a column's kind: beside decimals, 0.1 is a tenth."""
    text = str(value)
    try:
        match kind:
            case "bool":
                read: Any = {"true": True, "false": False}[text.strip().lower()]
            case "date":
                read = pd.Timestamp(text)
            case "duration":
                read = pd.Timedelta(text) if UNIT.search(text) else pd.NaT
            case "decimal":
                read = Decimal(text)
            case _:
                read = int(text) if INT.fullmatch(text) else _float(text)
        if pd.isna(read) or text.strip().lower() in {"now", "today"}:  # the moment of reading
            raise ValueError(text)
    except (KeyError, ValueError, ArithmeticError):
        msg = f"{column} is {_called(kind)}, and {value!r} is none"
        raise BadExpression(msg) from None
    return read


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _in_zone(value: Any, like: Any) -> Any:
    """Return dates with a time zone where those beside them have one; without one they are UTC."""
    if _zone(value) is not None or _zone(like) is None:
        return value
    return value.dt.tz_localize(UTC) if isinstance(value, pd.Series) else value.tz_localize(UTC)


def _zone(value: Any) -> Any:
    return getattr(value.dt if isinstance(value, pd.Series) else value, "tz", None)
