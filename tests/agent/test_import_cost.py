"""What the import of a script costs, and which packages it is to be blamed on."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.child import import_cost
from daskprs._agent.child.import_cost import ImportCost, measured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("standin_large", "standin_below", "standin_small", "standin_own", "standin_script")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder of packages; forget them afterwards."""
    packages = tmp_path / "site-packages"
    for name, count, more in (
        ("standin_large", 12, "import standin_below"),
        ("standin_below", 20, ""),
        ("standin_small", 2, ""),
        ("../standin_own", 12, ""),
    ):
        package = packages / name
        package.mkdir(parents=True)
        modules = [f"part{number}" for number in range(count)]
        for module in modules:
            (package / f"{module}.py").touch()
        (package / "__init__.py").write_text(f"{more}\nfrom . import {', '.join(modules)}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(import_cost, "SHORTEST_S", 0.0)
    yield tmp_path
    for name in [one for one in sys.modules if one.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("import standin_large, standin_small, standin_own", ("standin_large",)),
        ("from standin_large import part3", ("standin_large",)),
        ("import standin_below, standin_large", ("standin_below", "standin_large")),
        ("def late():\n    import standin_large\nlate()", ("standin_below",)),
        ("import standin_small, standin_own", ()),
    ],
)
def test_large_installed_packages_that_the_script_names_are_found(
    folder: Path, text: str, packages: tuple[str, ...]
) -> None:
    """If it names none, the largest one counts; what was imported before does not."""
    (folder / "standin_script.py").write_text(text)
    script, cost = measured(lambda: importlib.import_module("standin_script"))
    assert script is sys.modules["standin_script"]
    assert cost.packages == packages
    assert measured(lambda: importlib.reload(script))[1].packages == ()


def test_a_package_that_was_imported_before_is_not_blamed_for_its_parts(folder: Path) -> None:
    """`import torch` imports parts of NumPy that no agent has; `preload` would not."""
    (folder / "site-packages/standin_large/__init__.py").write_text("")
    importlib.import_module("standin_large")
    parts = ", ".join(f"part{number}" for number in range(12))
    (folder / "standin_script.py").write_text(f"from standin_large import {parts}")
    assert measured(lambda: importlib.import_module("standin_script"))[1].packages == ()


def test_a_quick_import_names_nothing() -> None:
    """To look for packages takes a millisecond."""
    assert measured(lambda: 3) == (3, ImportCost(pytest.approx(0.0, abs=0.5), ()))


@pytest.mark.parametrize("own", [None, (900, 5, 5), (0, 10, 10)])
def test_garbage_is_collected_rarely_during_an_import(own: tuple[int, int, int] | None) -> None:
    """And as before afterwards, or as the script says."""
    before = gc.get_threshold()

    def load() -> tuple[int, int, int]:
        seen = gc.get_threshold()
        if own is not None:
            gc.set_threshold(*own)
        return seen

    try:
        seen, _ = measured(load)
        assert seen == (import_cost.NEW_OBJECTS, *before[1:])
        assert gc.get_threshold() == (own or before)
    finally:
        gc.set_threshold(*before)


def test_an_import_leaves_a_process_alone_that_collects_no_garbage() -> None:
    """The caller has said so, or collects more rarely still."""
    before = gc.get_threshold()
    try:
        for own in ((0, 10, 10), (10 * import_cost.NEW_OBJECTS, 10, 10)):
            gc.set_threshold(*own)
            assert measured(gc.get_threshold)[0] == own
    finally:
        gc.set_threshold(*before)
