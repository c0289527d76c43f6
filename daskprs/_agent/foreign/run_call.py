"""The call of `run`: the mini-batch, and its context where `run` asks for it."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Callable

from .entry_script import NO_TOOLS, MiniBatchContext, Slice

if TYPE_CHECKING:
    from types import TracebackType

    from .entry_script import CallTools

CONTEXT_NAMES = ("context", "mini_batch_context")
CLASS_NAME = MiniBatchContext.__name__
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ABOUT_ARGUMENTS = (
    r"(missing|takes) .*\barguments?\b|expected .*\barguments?, got|unexpected keyword argument"
    r"|multiple values for argument"
)
"""Matches the messages of Python, and of functions in C, about arguments that do not fit."""


class RunCall:
    """Calls `run`, with the context of a mini-batch if `run` asks for it.

    With `any_second` the context goes to any second positional parameter, as Azure's entry
    scripts have it.
    """

    def __init__(
        self, run: Callable[..., Any], *, any_second: bool = False, name: str = "run"
    ) -> None:
        self._run = run
        self._name = name
        self._takes_context = _takes_context(run, any_second=any_second)

    def __call__(
        self,
        data: Any,
        context: tuple[Any, ...],
        tools: CallTools = NO_TOOLS,
    ) -> Any:
        """Call `run`; `context` has the parts of a `MiniBatchContext` but for the tools."""
        further = []
        if self._takes_context:
            index, key, first_row, place, piece = context
            further.append(MiniBatchContext(index, key, first_row, Slice(*place), piece, tools))
        try:
            return self._run(data, *further)
        except TypeError as error:
            below = None if error.__traceback__ is None else error.__traceback__.tb_next
            if re.search(ABOUT_ARGUMENTS, str(error)) and _only_passes_on(below):
                error.args = (f"{str(error).rstrip('.')}. {self._passed()}",)
            raise

    def _passed(self) -> str:
        """Return a sentence about the passed arguments, for an error."""
        shown = f"{self._name}{signature_of(self._run) or ', whose signature cannot be read'}"
        if self._takes_context:
            return (
                f"daskprs has passed the mini-batch and its context to {shown}. Let {self._name}, "
                "and the function that a decorator puts in its place, take both."
            )
        return (
            f"daskprs has passed the mini-batch alone to {shown}. To get the context, write "
            f"{self._name}(mini_batch, context), and let decorators use functools.wraps."
        )


def signature_of(run: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a callable; None if it cannot be read."""
    try:
        try:
            return inspect.signature(run)
        except NameError:  # Python 3.14 and newer look up the names in annotations only now
            from annotationlib import Format  # type: ignore[import-not-found]

            as_text: dict[str, Any] = {"annotation_format": Format.STRING}
            return inspect.signature(run, **as_text)
    except (TypeError, ValueError):
        return None


def _takes_context(run: Callable[..., Any], *, any_second: bool) -> bool:
    """Say whether the second parameter of a function is for the context.

    A parameter with a default is another one's, such as ``batch_size=None``, unless its name or
    its annotation says otherwise. ``*args`` may lead to a function that takes the mini-batch only.
    """
    signature = signature_of(run)
    parameters = [] if signature is None else [*signature.parameters.values()]
    positional = [one for one in parameters if one.kind in POSITIONAL]
    if len(positional) < 2:  # noqa: PLR2004
        return False
    second = positional[1]
    return (
        any_second
        or second.default is second.empty
        or second.name in CONTEXT_NAMES
        or _names_context(second.annotation, run)
    )


def _names_context(annotation: Any, run: Callable[..., Any]) -> bool:
    """Say whether an annotation has the class of the context in it, also under another name."""
    text = annotation if isinstance(annotation, str) else repr(annotation)
    names = getattr(inspect.unwrap(run), "__globals__", {})
    words = re.findall(r"\w+", text)
    return any(one == CLASS_NAME or names.get(one) is MiniBatchContext for one in words)


def _only_passes_on(tb: TracebackType | None) -> bool:
    """Say whether all functions on the way to an error take ``*args``, as decorators' do."""
    while tb is not None and tb.tb_frame.f_code.co_flags & inspect.CO_VARARGS:
        tb = tb.tb_next
    return tb is None
