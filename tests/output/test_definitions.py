"""Digests of definitions: equal where a class does the same, in any process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from types import ModuleType
from typing import TYPE_CHECKING

import cloudpickle
import pytest

from daskprs._output.rows.definitions import MOST_PARTS, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = '''
import functools, logging, re, threading
from dataclasses import dataclass, field
from enum import Enum, Flag

logger = logging.getLogger(__name__)
WORD = re.compile("[a-z]+")
SCALE = 2
TABLE = {"a": [1, 2], "b": {3}}


def scaled(n):
    return n * SCALE


class Mark(Enum):
    GOOD = 1
    BAD = "bad"

    def worse(self):
        return Mark.BAD


@dataclass(order=True)
class Hit:
    """A hit."""

    n: int
    marks: list = field(default_factory=list)

    @property
    def large(self):
        logger.debug("%s", WORD)
        return scaled(self.n) in {"x", "y", 5} or self.n in TABLE

    @functools.lru_cache
    def kept(self):
        return Mark.GOOD

    @functools.cached_property
    def cached(self):
        return [lambda: one for one in self.marks]

    @staticmethod
    def made():
        return Hit(1)


class Best(Hit):
    __slots__ = ("rank",)

    def __init__(self, n, rank=1):
        super().__init__(n)
        self.rank = rank
'''


def loaded(text: str) -> ModuleType:
    """Return a module of this text."""
    module = ModuleType("kinds_of_this_test")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, "kinds.py", "exec"), vars(module))  # noqa: S102 - the text above
    finally:
        del sys.modules[module.__name__]
    return module


def digest(text: str, name: str = "Best") -> str:
    """Return the digest of one definition."""
    return digest_of(vars(loaded(text))[name], "kinds_of_this_test".__eq__)


@pytest.mark.parametrize("name", ["Best", "Hit", "Mark", "scaled"])
def test_two_loads_of_one_text_are_the_same_definition(name: str) -> None:
    """Comments, lines and what it does not use make no difference."""
    assert digest(KINDS, name)
    assert digest(KINDS, name) == digest(f"# new\n{KINDS}\nOTHER = 5\n", name)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("SCALE = 2", "SCALE = 2.0"),
        ('"b": {3}', '"b": {4}'),
        ("n * SCALE", "SCALE * n"),
        ("[a-z]+", "[a-z]*"),
        ("    GOOD = 1", "    GOOD = 2"),
        ("    GOOD = 1", "    FINE = 3\n    GOOD = 1"),
        ("n: int", "n: float"),
        ("order=True", "order=False"),
        ("rank=1", "rank=2"),
        ("return Hit(1)", "return Hit(3)"),
        ('{"x", "y", 5}', '{"x", "z", 5}'),
        ("@staticmethod", "@classmethod"),
        ("class Best(Hit)", "class Best(Hit, Exception)"),
        ("class Best(Hit):", "class Best(Hit):\n    'Say which is best.'"),
    ],
)
def test_a_change_of_what_a_class_uses_is_another_definition(was: str, now: str) -> None:
    """Its members, its bases, and functions, classes and values that it refers to."""
    assert was in KINDS
    assert digest(KINDS.replace(was, now)) != digest(KINDS)


def test_a_global_that_was_changed_later_is_another_definition() -> None:
    """As by init() of the script."""
    module = loaded(KINDS)
    module.SCALE = 3
    assert digest_of(module.Best, "kinds_of_this_test".__eq__) == digest(
        KINDS.replace("SCALE = 2", "SCALE = 3")
    )


@pytest.mark.parametrize("value", ["threading.Lock()", f"list(range({MOST_PARTS}))"])
def test_what_cannot_be_compared_has_no_digest(value: str) -> None:
    """So that it equals no other one."""
    assert not digest(KINDS.replace("SCALE = 2", f"SCALE = {value}"))


def test_a_function_without_a_name_is_looked_into() -> None:
    """As one that a decorator of another module has made: its module does not find it again."""

    def times(factor: int) -> Callable[[int], int]:
        return lambda n: n * factor

    assert digest_of(times(2), {}.__contains__) == digest_of(times(2), {}.__contains__) != ""
    assert digest_of(times(2), {}.__contains__) != digest_of(times(3), {}.__contains__)


COPIED = """
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

@dataclass
class Hit(Generic[T]):
    n: T

@dataclass
class Best(Hit[int]):
    rank: int = 1
"""


def test_a_class_that_cloudpickle_has_made_is_the_same_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Agents have such copies of the classes of a notebook, and write what the notebook reads."""
    best = vars(loaded(COPIED))["Best"]
    body = cloudpickle.dumps(best)
    known = "_DYNAMIC_CLASS_TRACKER_BY_ID"
    monkeypatch.setattr(cloudpickle.cloudpickle, known, weakref.WeakValueDictionary())
    copy = pickle.loads(body)
    assert copy is not best
    first, second = (digest_of(one, "kinds_of_this_test".__eq__) for one in (best, copy))
    assert first == second != ""


@pytest.mark.long
def test_each_process_finds_the_same_digest(tmp_path: Path) -> None:
    """Whatever the order of its sets is, and whether the module was compiled before."""
    (tmp_path / "kinds.py").write_text(KINDS)
    program = (
        "import kinds\n"
        "from daskprs._output.rows.definitions import digest_of\n"
        "print([digest_of(one, 'kinds'.__eq__) for one in (kinds.Best, kinds.Mark)])"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert "''" not in found[0]
