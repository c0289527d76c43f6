"""Forms of YAML files: their keys, the allowed values, and the effect of each key here.

A form is a pydantic model. Each field states the effect of its key by `works`, `without_effect` or
`refused`. The table in the documentation is generated from these, so that it cannot drift.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import PydanticUndefined

from daskprs._suggest import nearest_of
from daskprs.azure._yaml_files.document import Document, Loc, dotted, shortened

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from daskprs.azure._yaml_files.mistakes import Mistake


NO_KEY = "there is no key"
"""The beginning of the message about an unknown key."""


class Effect(Enum):
    """The effect of a key."""

    WORKS = "works"
    NONE = "accepted without effect"
    REFUSED = "refused"


def works(default: Any = PydanticUndefined, note: str = "", **more: Any) -> Any:
    """Return a field that takes effect; `more` goes to pydantic's `Field`."""
    return _field(Effect.WORKS, default, note, **more)


def without_effect(note: str, default: Any = None, **more: Any) -> Any:
    """Return a field that is checked but has no effect here; the note says why."""
    return _field(Effect.NONE, default, note, **more)


def refused(note: str) -> Any:
    """Return a field that must not be set; the note says what to write instead."""
    return _field(Effect.REFUSED, None, note)


def _field(effect: Effect, default: Any, note: str, **more: Any) -> Any:
    return Field(default, json_schema_extra={"effect": effect.value, "note": note}, **more)


class Form(BaseModel):
    """The keys of one mapping."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, coerce_numbers_to_str=True)


PLAIN, MAPPING = Tag("plain"), Tag("mapping")
BY_SHAPE = Discriminator(lambda value: "mapping" if isinstance(value, dict | Form) else "plain")
"""Chooses between a plain value and a form, so that only the mistakes of that one are reported."""


class Key(NamedTuple):
    """One key of a form, for the documentation and for notices."""

    name: str
    effect: Effect
    note: str


F = TypeVar("F", bound=Form)


def keys_of(form: type[Form]) -> list[Key]:
    """Return the keys of a form, in the order of its fields."""
    return [_key(name, field) for name, field in form.model_fields.items()]


def _key(name: str, field: FieldInfo) -> Key:
    extra = field.json_schema_extra
    known: dict[str, Any] = extra if isinstance(extra, dict) else {}
    return Key(field.alias or name, Effect(known["effect"]), known["note"])


def filled(
    form: type[F], content: Any, document: Document, at: Loc = ()
) -> tuple[F | None, list[Mistake]]:
    """Return a form filled from a value at a place of a document, and all mistakes in it."""
    try:
        one = form.model_validate(content)
    except ValidationError as error:
        return None, [_mistake(one, form, content, document, at) for one in error.errors()]
    return one, list(_refusals(one, document, at))


def filled_as_far(
    form: type[F], content: Any, document: Document, needed: Container[str] = (), at: Loc = ()
) -> tuple[F | None, list[Mistake], frozenset[str]]:
    """Return a form without its wrong keys, all mistakes, and the keys left out.

    The files that the other keys name can then be checked in the same pass. The form is None where
    one of the `needed` keys is wrong, without which nothing else can be checked.
    """
    one, mistakes = filled(form, content, document, at)
    if one is not None or not isinstance(content, dict):
        return one, mistakes, frozenset()
    before = len(dotted(at)) + 1 if at else 0
    keys = (mistake.key[before:] for mistake in mistakes)
    wrong = frozenset(key.partition(".")[0].partition("[")[0] for key in keys)
    if any(key in needed for key in wrong):
        return None, mistakes, wrong
    rest = {key: value for key, value in content.items() if key not in wrong}
    one, refusals = filled(form, rest, document, at)
    return one, [*mistakes, *(refusals if one is not None else ())], wrong


def ineffective(form: Form) -> Iterator[Key]:
    """Yield the keys set without effect in a form and in the forms inside it."""
    return (key for key, _ in _set_keys(form) if key.effect is Effect.NONE)


def _refusals(form: Form, document: Document, at: Loc) -> Iterator[Mistake]:
    for key, loc in _set_keys(form, at):
        if key.effect is Effect.REFUSED:
            yield document.mistake(loc, key.note, of_key=True)


def _set_keys(value: Any, at: Loc = (), above: str = "") -> Iterator[tuple[Key, Loc]]:
    """Yield the keys that are set in the forms of a value, each with its place.

    The name of a key begins with those of the keys that its form lies in.
    """
    if isinstance(value, dict | list):
        for inner, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _set_keys(one, (*at, inner), above)
    elif isinstance(value, Form):
        for name, field in type(value).model_fields.items():
            if name in value.model_fields_set:
                key = _key(name, field)
                loc, named = (*at, key.name), key._replace(name=above + key.name)
                yield named, loc
                yield from _set_keys(getattr(value, name), loc, f"{named.name}.")


def _mistake(
    error: ErrorDetails, form: type[Form], content: Any, document: Document, at: Loc
) -> Mistake:
    loc = (*at, *_in_content(error["loc"], content))
    match error["type"]:
        case "extra_forbidden":
            name = str(loc[-1])
            told = f"{NO_KEY} {name!r}; {nearest_of(name, _known(form, loc[len(at) : -1]))}"
            return document.mistake(loc, told, of_key=True)
        case "missing":
            loc, told = (*loc, error["loc"][-1]), "it is missing"
        case "value_error":
            told = error["msg"].removeprefix("Value error, ")
        case "model_type" | "dict_type":
            told = f"it has to be a mapping, not {shortened(error['input'])}"
        case _:
            told = f"{error['msg'][:1].lower()}{error['msg'][1:]}, not {shortened(error['input'])}"
    return document.mistake(loc, told)


def _in_content(loc: Sequence[str | int], content: Any) -> Loc:
    """Return a location without pydantic's marks for the union member that it tried."""
    kept: Loc = ()
    for one in loc:
        known = content if isinstance(content, dict) else {}
        known = dict(enumerate(content)) if isinstance(content, list) else known
        if one in known:
            kept, content = (*kept, one), known[one]
    return kept


def _known(form: type[Form], loc: Loc) -> list[str]:
    """Return the keys of the form at a place inside a form; none if the form is ambiguous."""
    for one in loc:
        fields = {(field.alias or name): field for name, field in form.model_fields.items()}
        inner = _form_of(fields[one].annotation) if one in fields else None
        if inner is None and isinstance(one, int | str) and one not in fields:
            continue  # an item of a list, or of a mapping whose keys the user chose
        if inner is None:
            return []
        form = inner
    return [key.name for key in keys_of(form)]


def _form_of(annotation: Any) -> type[Form] | None:
    if isinstance(annotation, type) and issubclass(annotation, Form):
        return annotation
    inner = [_form_of(one) for one in getattr(annotation, "__args__", ())]
    forms = [one for one in inner if one is not None]
    return forms[0] if len(forms) == 1 else None
