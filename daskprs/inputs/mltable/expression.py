"""The language of `filter`: ``col("age") > 32 and location == "UK"``.

Python's own parser parses it, and its tree is then walked. Only the syntax listed here is
accepted, and no Python code is ever evaluated or called.
"""

from __future__ import annotations

import ast
import operator
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from daskprs.inputs.mltable.operands import Unfit, aligned, datetime_of, truth

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
CALLS = 'col("name") and datetime(2024, 1, 31)'
RULE = (
    'names of columns, col("name"), numbers, text in quotes, True, False, None, datetime(...), '
    "== != < <= > >=, in, is None, and, or, not, + - * / % and parentheses"
)


class BadExpression(ValueError):  # noqa: N818 - it says what is wrong
    """An expression that means nothing; the message says where and why."""


class Expression(NamedTuple):
    """A condition that rows fulfil or not."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Return what a text means.

        Raises
        ------
        BadExpression
            When the text is not an expression of this language.

        """
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

    def columns(self) -> Iterator[str]:
        """Yield the columns that are named, in their order."""
        yield from dict.fromkeys(_columns(self.tree))

    def mask(self, frame: pd.DataFrame) -> pd.Series:
        """Return which rows fulfil it.

        Comparisons with null are as in pandas: ``!=`` holds, no other one does.

        Raises
        ------
        BadExpression
            When the types of the columns do not fit.

        """
        try:
            value = _Evaluation(frame).value(self.tree)
            if not isinstance(value, pd.Series):
                msg = f"{self.text!r} names no column, so that it keeps all rows or none"
                raise BadExpression(msg)
            mask: pd.Series = truth(value)
        except (Unfit, ArithmeticError, TypeError) as error:
            msg = f"{self.text!r}: {error}"
            raise BadExpression(msg) from None
        return mask


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
            case ast.BoolOp() | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return self._joined(node)
            case ast.BinOp() | ast.UnaryOp():
                return self._calculated(node)
            case ast.Compare():
                return self._compare(node)
        name = _column(node)
        return _moment(node) if name is None else self._frame[name]

    def _joined(self, node: ast.BoolOp | ast.BinOp) -> Any:
        nodes = [node.left, node.right] if isinstance(node, ast.BinOp) else node.values  # noqa: PD011 - of no frame
        both = operator.and_ if isinstance(node.op, ast.And | ast.BitAnd) else operator.or_
        result = truth(self.value(nodes[0]))
        for one in nodes[1:]:
            result = both(result, truth(self.value(one)))
        return result

    def _calculated(self, node: ast.BinOp | ast.UnaryOp) -> Any:
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left), self._number(node.right)
            return ARITHMETIC[type(node.op)](left, right)
        if isinstance(node.op, ast.USub):
            return -self._number(node.operand)
        return ~truth(self.value(node.operand))

    def _number(self, node: ast.expr) -> Any:
        value = self.value(node)
        dtype = getattr(value, "dtype", None)
        is_number = (
            isinstance(value, int | float)
            if dtype is None
            else pd.api.types.is_numeric_dtype(dtype)
        )
        if not is_number or isinstance(value, bool):
            msg = f"{ast.unparse(node)} is no number"
            raise Unfit(msg)
        return value

    def _compare(self, node: ast.Compare) -> Any:
        result: Any = None
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            one = self._comparison(op, left, right)
            result = one if result is None else truth(result) & truth(one)
            left = right
        return result

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, right, wanted=isinstance(op, ast.In))
        if _is_none(left):
            left, right = right, left
        one, other = self.value(left), self.value(right)
        if other is None:
            is_equal = isinstance(op, ast.Is | ast.Eq)
            return _column_of(one, left).isna() ^ (not is_equal)
        one, other = aligned(one, other, ast.unparse(left), ast.unparse(right))
        return truth(COMPARE[type(op)](one, other), null=isinstance(op, ast.NotEq))

    def _membership(self, left: ast.expr, right: ast.expr, *, wanted: bool) -> Any:
        if not isinstance(right, ast.List | ast.Tuple):
            msg = "in takes a column on its left, and a list on its right"
            raise Unfit(msg)
        column = _column_of(self.value(left), left)
        found = pd.Series(data=False, index=column.index)
        for other in right.elts:
            found |= self._comparison(ast.Eq(), left, other)
        return found if wanted else ~found


def _column_of(value: Any, node: ast.expr) -> pd.Series:
    if isinstance(value, pd.Series):
        return value
    msg = f"{ast.unparse(node)} is no column"
    raise Unfit(msg)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _column(node: ast.expr) -> str | None:
    """Return the column that a name or a call of `col` stands for."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "col":
        argument = node.args[0]
        return str(argument.value) if isinstance(argument, ast.Constant) else None
    return None


def _moment(node: ast.expr) -> pd.Timestamp:
    arguments = node.args if isinstance(node, ast.Call) else []
    return datetime_of([one.value for one in arguments if isinstance(one, ast.Constant)])


def _columns(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.expr) and (name := _column(node)) is not None:
        yield name
    elif not isinstance(node, ast.Call):
        for inside in ast.iter_child_nodes(node):
            yield from _columns(inside)


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
    if name == "datetime" and is_plain:
        try:
            datetime_of(values)
        except Unfit as error:
            msg = f"{ast.unparse(node)} {where}: {error}"
            raise BadExpression(msg) from None
        return
    msg = f"{ast.unparse(node)!r} {where}: the only calls are {CALLS}"
    raise BadExpression(msg)


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
