"""Functions of a program's `__main__` that pickle by name, and the names in that of an agent.

A function of `lru_cache` and one of `singledispatch` may call itself by its global name. So it is
made empty, and filled once the functions that it wraps are there.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN = "__main__"
CACHED = type(functools.lru_cache(len))
NAMED = (CACHED, types.FunctionType, type)
"""What pickles by name; any other object may do whatever when it is asked for its module."""


def reduced(value: Any) -> tuple[Any, ...] | None:
    """Return how such a function of `__main__` is pickled; None for anything else."""
    if not isinstance(value, (CACHED, types.FunctionType)) or value.__module__ != MAIN:
        return None
    if isinstance(value, CACHED):
        given = value.cache_parameters()
        return _cached, (given["maxsize"], given["typed"]), value.__wrapped__, None, None, _fill
    if hasattr(value, "registry"):
        registry = getattr(value, "registry", None)
        if isinstance(registry, types.MappingProxyType) and hasattr(value, "dispatch"):
            kinds = [*registry.items()]
            return _dispatched, (), kinds, None, None, _register
    return None


class _Late:
    """Calls a function that is given after the object was made."""

    def __init__(self) -> None:
        self.function: Callable[..., Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)


def _cached(maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001 - as lru_cache has it
    late = _Late()
    made: Any = functools.lru_cache(maxsize, typed)(late)
    made.__wrapped__ = late
    return made


def _fill(made: Any, function: Callable[..., Any]) -> None:
    made.__wrapped__.function = function
    functools.update_wrapper(made, function)


def _dispatched() -> Any:
    return functools.singledispatch(_no_function)


def _no_function(*_: Any) -> None:
    """Stand for the functions that are registered once they are there."""


def _register(made: Any, kinds: list[tuple[type, Callable[..., Any]]]) -> None:
    for kind, function in kinds:
        made.register(kind, function)
        if kind is object:
            functools.update_wrapper(made, function)


def name_in_main(script: Any) -> None:
    """Let the `__main__` of this process have the functions and classes of the program's.

    Then they pickle by name, as for a `multiprocessing.Pool` in `run`.
    """
    main = sys.modules[MAIN]
    for function in _functions_of(script):
        for name, value in list(function.__globals__.items()):
            if isinstance(value, NAMED) and value.__module__ == MAIN and not hasattr(main, name):
                setattr(main, name, value)
        if function.__module__ == MAIN and not hasattr(main, function.__name__):
            setattr(main, function.__name__, function)


def _functions_of(script: Any) -> list[types.FunctionType]:
    while isinstance(script, functools.partial):
        script = script.func
    script = getattr(script, "__wrapped__", script)
    if inspect.isfunction(script):
        return [script]
    kind = script if inspect.isclass(script) else type(script)
    return [value for value in vars(kind).values() if inspect.isfunction(value)]
