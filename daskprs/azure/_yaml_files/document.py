"""A YAML file as plain values, each with its place: messages name file, line and column.

Objects that stand for such a file become a document, too: see `Document.of_values`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from daskprs._suggest import nearest
from daskprs.azure._yaml_files.mistakes import Mistake, SourceLocation
from daskprs.errors import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator

Loc = tuple[str | int, ...]
"""The path to a value: keys of mappings and indices of lists."""
SHOWN_CHARACTERS = 100
"""Characters of a wrong value that a message shows."""
TIMESTAMP = "tag:yaml.org,2002:timestamp"
MOST_VALUES = 100_000
"""Upper bound for the values in a file: reject files whose aliases multiply to more."""
MOST_BYTES = 10 << 20
MOST_DEPTH = 100
"""Upper bound for the nesting of mappings and lists."""
MOST_NUMBER_CHARACTERS = 1000
"""Upper bound for a number's length: a base-60 number takes time quadratic in its length."""
NUMBERS = {"tag:yaml.org,2002:int": "integer", "tag:yaml.org,2002:float": "number"}
MERGE = "tag:yaml.org,2002:merge"
GROWS = "its aliases make it grow without bounds"

Pairs = list[tuple[yaml.Node, yaml.Node]]


class _Loader(yaml.SafeLoader):
    """Limits the number of nodes and their depth."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node with everything inside it."""
        self._nodes += 1
        self._depth += 1
        try:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            if self._depth > MOST_DEPTH:
                raise _too_deep(mark)
            if self._nodes > 2 * MOST_VALUES:  # each value may have a key
                problem = f"it has more than {MOST_VALUES} values"
                raise _wrong(problem, mark)
            node: yaml.Node | None = super().compose_node(parent, index)
        finally:
            self._depth -= 1
        return node


class Document:
    """One YAML file, whose name messages show.

    Values follow YAML 1.1, except that dates stay text: a version may be ``2024-01-01``. Text that
    is not YAML, repeats a key, or exceeds a limit is a YamlError.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.folder = Path(name).absolute().parent
        """The folder that relative paths in the document start from."""
        self.is_file = True
        """Whether the values are those of a file, rather than of objects in Python."""
        self._places: dict[Loc, tuple[yaml.Mark, yaml.Mark]] = {}
        """The marks at which the key and the value of each place begin."""
        self._mistakes: list[Mistake] = []
        self.content: Any = None
        """Mappings, lists and scalars; None of an empty file."""
        self._pairs_of: dict[int, Pairs | None] = {}
        """The pairs of each mapping, with those that it merges; None while they are gathered."""
        self._merged = 0
        try:
            self._read(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = SourceLocation(name, 1, 1) if mark is None else self._place(mark)
            what = ", ".join(filter(None, (error.context, error.problem)))
            raise self._unreadable(place, what) from error
        except yaml.reader.ReaderError as error:
            place = _place_of(name, text, error.position)
            raise self._unreadable(place, f"{error.reason} (#x{error.character:04x})") from error
        if self._mistakes:
            raise YamlError("\n".join(map(str, self._mistakes)))

    def _read(self, text: str) -> None:
        self._loader = _Loader(text)
        try:
            node = self._loader.get_single_node()
        except (ValueError, OverflowError) as error:  # of an escape, or a directive
            raise _wrong(str(error), self._loader.get_mark()) from error
        if node is not None:
            self.content = self._value(node, (), frozenset())

    def _unreadable(self, place: SourceLocation, what: str) -> YamlError:
        return YamlError(str(Mistake(place, "", f"it cannot be read as YAML: {what}")))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Document:
        """Read a file; one that does not exist or cannot be read is a YamlError, too."""
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - any path-like
                body = file.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                msg = f"{path}: larger than {MOST_BYTES >> 20} MB, the limit of YAML files here."
                raise YamlError(msg)
            return cls(body.decode("utf-8-sig"), str(path))
        except YamlError:
            raise
        except (OSError, ValueError) as error:  # no UTF-8, or a null character in the path
            near = nearest(path) if isinstance(error, FileNotFoundError) else ""
            msg = f"{path}: it cannot be read: {error}.{near}"
            raise YamlError(msg) from error

    @classmethod
    def of_values(cls, content: Any, name: str, folder: Path) -> Document:
        """Return a document of values in Python: its messages name no lines, only keys.

        Paths become text, and tuples become lists. A value that a YAML file cannot have is a
        YamlError.
        """
        self = cls("", name)
        self.is_file = False
        self.folder = folder
        self.content = self._plain(content, ())
        return self

    def _plain(self, value: Any, loc: Loc) -> Any:
        """Return a value as a YAML file would have it."""
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return str(value)
            case os.PathLike():
                return os.fspath(value)
            case dict():
                return {str(key): self._plain(one, (*loc, str(key))) for key, one in value.items()}
            case list() | tuple():
                return [self._plain(one, (*loc, at)) for at, one in enumerate(value)]
        told = f"it has to be text, a number, a list or a mapping, not {shortened(value)}"
        raise YamlError(str(self.mistake(loc, told)))

    def place(self, loc: Loc, *, of_key: bool = False) -> SourceLocation:
        """Return the place of a value or its key; for a missing value, of its parent."""
        if not self.is_file:
            return SourceLocation(self.name, 0, 0)
        while loc and loc not in self._places:
            loc, of_key = loc[:-1], False
        if not loc:
            return SourceLocation(self.name, 1, 1)
        key, value = self._places[loc]
        return self._place(key if of_key else value)

    def mistake(self, loc: Loc, told: str, *, of_key: bool = False) -> Mistake:
        """Return a mistake in a value or its key."""
        return Mistake(self.place(loc, of_key=of_key), dotted(loc), told)

    def warning(self, loc: Loc, told: str, *, of_key: bool = False) -> Mistake:
        """Return a mistake in spite of which the file can run."""
        return self.mistake(loc, told, of_key=of_key)._replace(is_warning=True)

    def _place(self, mark: yaml.Mark) -> SourceLocation:
        return SourceLocation(self.name, mark.line + 1, mark.column + 1)

    def _value(self, node: yaml.Node, loc: Loc, above: frozenset[int]) -> Any:
        if len(self._places) > MOST_VALUES or id(node) in above:
            raise _wrong(GROWS, node.start_mark)
        if len(loc) > MOST_DEPTH:
            raise _too_deep(node.start_mark)
        match node:
            case yaml.MappingNode():
                return dict(self._pairs(node, loc, above | {id(node)}))
            case yaml.SequenceNode():
                return [
                    self._item(one, (*loc, at), above | {id(node)}, one.start_mark)
                    for at, one in enumerate(node.value)
                ]
            case yaml.ScalarNode() if node.tag == TIMESTAMP:
                return node.value
            case _:
                return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Any:
        number = NUMBERS.get(node.tag)
        if number and len(node.value) > MOST_NUMBER_CHARACTERS:
            problem = f"this {number} has {len(node.value)} characters"
            raise _wrong(problem, node.start_mark)
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError, ArithmeticError) as error:
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            problem = f"{shortened(node.value)} is not of the type !!{kind}"
            raise _wrong(problem, node.start_mark) from error

    def _pairs(
        self, node: yaml.MappingNode, loc: Loc, above: frozenset[int]
    ) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in self._with_merged(node, loc):
            key = str(key_node.value)
            yield key, self._item(value_node, (*loc, key), above, key_node.start_mark)

    def _with_merged(self, node: yaml.MappingNode, loc: Loc, depth: int = 0) -> Pairs:
        """Return the pairs of a mapping: those that it merges first, each key once.

        What a mapping merges is gathered once, however many others merge the mapping. `depth`
        counts the mappings that merge one another on the way to this one.
        """
        if len(loc) + depth > MOST_DEPTH:
            raise _too_deep(node.start_mark)
        if id(node) in self._pairs_of:
            known = self._pairs_of[id(node)]
            if known is None:
                raise _wrong(GROWS, node.start_mark)
            return known
        self._pairs_of[id(node)] = None
        self._refuse_twice(node, loc)
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            for one in _mappings(value, node) if key.tag == MERGE else ():
                merged = self._with_merged(one, loc, depth + 1)
                pairs.update((pair[0].value, pair) for pair in merged)
                self._merged += 1 + len(merged)
                if self._merged > MOST_VALUES:
                    raise _wrong(GROWS, value.start_mark)
        pairs.update((key.value, (key, value)) for key, value in node.value if key.tag != MERGE)
        self._pairs_of[id(node)] = [*pairs.values()]
        return [*pairs.values()]

    def _item(self, node: yaml.Node, loc: Loc, above: frozenset[int], key: yaml.Mark) -> Any:
        self._places[loc] = (key, node.start_mark)
        return self._value(node, loc, above)

    def _refuse_twice(self, node: yaml.MappingNode, loc: Loc) -> None:
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong("a key has to be text", key.start_mark)
            if key.value in seen and key.value != "<<":
                line = seen[key.value].line + 1
                told = f"this key is in line {line} already"
                place = self._place(key.start_mark)
                self._mistakes.append(Mistake(place, dotted((*loc, key.value)), told))
            seen[key.value] = key.start_mark


def _mappings(value: yaml.Node, node: yaml.MappingNode) -> list[yaml.MappingNode]:
    """Return the mappings that a merge key names, in reverse order, so that the first wins."""
    named = value.value if isinstance(value, yaml.SequenceNode) else [value]
    mappings: list[yaml.MappingNode] = []
    for one in reversed(named):
        if not isinstance(one, yaml.MappingNode):
            kind = "list" if isinstance(one, yaml.SequenceNode) else "scalar"
            raise yaml.MarkedYAMLError(
                context="while merging mappings",
                context_mark=node.start_mark,
                problem=f"expected a mapping, but found a {kind}",
                problem_mark=one.start_mark,
            )
        mappings.append(one)
    return mappings


def _too_deep(mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return _wrong(f"more than {MOST_DEPTH} mappings and lists are inside one another", mark)


def _wrong(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _place_of(name: str, text: str, position: int) -> SourceLocation:
    """Return the line and column of a character; both count from 1."""
    before = text[:position]
    return SourceLocation(name, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def shortened(value: Any) -> str:
    """Return the `repr` of a value, cut after about a hundred characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def dotted(loc: Loc) -> str:
    """Return the path to a value as users write it: ``jobs.score.inputs[0]``."""
    text = ""
    for one in loc:
        text += f"[{one}]" if isinstance(one, int) else f".{one}" if text else one
    return text
