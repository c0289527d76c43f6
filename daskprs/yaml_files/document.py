"""A YAML file as plain values, with the place of each: messages name file, line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from daskprs.errors import YamlError
from daskprs.nearest import nearest
from daskprs.yaml_files.mistakes import Mistake, Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

Loc = tuple[str | int, ...]
"""The way to a value: keys of mappings, and numbers of items in lists."""
TIMESTAMP = "tag:yaml.org,2002:timestamp"
MOST_VALUES = 100_000
"""A file that becomes more than this by its aliases is refused: nobody has written it."""
MOST_BYTES = 10 << 20


class _Places(NamedTuple):
    """Where a key stands, and its value."""

    key: yaml.Mark
    value: yaml.Mark


class Document:
    """One YAML file.

    Values are what YAML 1.1 says, but for dates, which stay text: a version ``2024-01-01`` is one.

    Parameters
    ----------
    text
        What is in it.
    name
        What messages call it.

    Raises
    ------
    YamlError
        When it is not YAML, has a key twice, or grows without bounds.

    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._places: dict[Loc, _Places] = {}
        self._mistakes: list[Mistake] = []
        self.content: Any = None
        """Mappings, lists and scalars; None of an empty file."""
        try:
            self._loader = yaml.SafeLoader(text)
            node = self._loader.get_single_node()
            if node is not None:
                self.content = self._value(node, (), frozenset())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = Place(name, 1, 1) if mark is None else self._place(mark)
            what = ", ".join(filter(None, (error.context, error.problem)))
            msg = f"it cannot be read as YAML: {what}"
            raise YamlError(str(Mistake(place, "", msg))) from error
        except yaml.YAMLError as error:
            raise YamlError(str(Mistake(Place(name, 1, 1), "", str(error)))) from error
        if self._mistakes:
            raise YamlError("\n".join(map(str, self._mistakes)))

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Document:
        """Read a file.

        Raises
        ------
        YamlError
            When it is not there or cannot be read, too.

        """
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - any path-like
                body = file.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                msg = f"{path}: larger than {MOST_BYTES >> 20} MB: this is no YAML file to be run."
                raise YamlError(msg)
            return cls(body.decode("utf-8-sig"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            near = nearest(path) if isinstance(error, FileNotFoundError) else ""
            msg = f"{path}: it cannot be read: {error}.{near}"
            raise YamlError(msg) from error

    def has(self, loc: Loc) -> bool:
        """Say whether there is a value."""
        return loc in self._places

    def place(self, loc: Loc, *, of_key: bool = False) -> Place:
        """Return where a value stands, or its key; of what is not there, what it belongs into."""
        while loc and loc not in self._places:
            loc, of_key = loc[:-1], False
        if not loc:
            return Place(self.name, 1, 1)
        places = self._places[loc]
        return self._place(places.key if of_key else places.value)

    def _place(self, mark: yaml.Mark) -> Place:
        return Place(self.name, mark.line + 1, mark.column + 1)

    def _value(self, node: yaml.Node, loc: Loc, above: frozenset[int]) -> Any:
        if len(self._places) > MOST_VALUES or id(node) in above:
            problem = "its aliases make it grow without bounds"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
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
                return self._loader.construct_object(node)

    def _pairs(
        self, node: yaml.MappingNode, loc: Loc, above: frozenset[int]
    ) -> Iterator[tuple[str, Any]]:
        self._refuse_twice(node, loc)
        self._loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = str(key_node.value)
            yield key, self._item(value_node, (*loc, key), above, key_node.start_mark)

    def _item(self, node: yaml.Node, loc: Loc, above: frozenset[int], key: yaml.Mark) -> Any:
        self._places[loc] = _Places(key, node.start_mark)
        return self._value(node, loc, above)

    def _refuse_twice(self, node: yaml.MappingNode, loc: Loc) -> None:
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key has to be text"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen and key.value != "<<":
                line = seen[key.value].line + 1
                told = f"this key is in line {line} already"
                place = self._place(key.start_mark)
                self._mistakes.append(Mistake(place, dotted((*loc, key.value)), told))
            seen[key.value] = key.start_mark


def dotted(loc: Loc) -> str:
    """Return the way to a value as people write it: ``jobs.score.inputs[0]``."""
    text = ""
    for one in loc:
        text += f"[{one}]" if isinstance(one, int) else f".{one}" if text else one
    return text
