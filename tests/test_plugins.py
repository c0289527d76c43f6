"""Plugins are found where daskprs lies, and nothing of them is imported before it is used."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import daskprs
from daskprs import _plugins
from daskprs._plugins import Plugin

PACKAGE = Path(daskprs.__file__).parent
FOUND = """
import json, sys
import daskprs
before = sorted(name for name in sys.modules if name.startswith("daskprs."))
from daskprs import _plugins
found = [sorted(plugin.commands) for plugin in _plugins.own()]
loaded = sorted(name for name in sys.modules if name.startswith("daskprs."))
print(json.dumps([before, found, loaded, "importlib.metadata" in sys.modules]))
"""
OWN = [
    "daskprs.errors",
    "daskprs._plugins",
    *(
        f"daskprs.{name}{module}"
        for name in ("azure", "_openai", "_serve")
        for module in ("", ".plugin")
    ),
]


def ask(path: Path) -> list[list[str]]:
    """Run the question in a Python that has daskprs at a path alone, without any package."""
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:0] = [{str(path)!r}]\n{FOUND}",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    answer: list[list[str]] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_plugins_are_found_without_metadata(tmp_path: Path, form: str) -> None:
    """In a folder of source, and in a zip, whose commands are those of the installed package."""
    for path in PACKAGE.rglob("*.py"):
        place = tmp_path / "source" / path.relative_to(PACKAGE.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    source = tmp_path / "source"
    if form == "zip":
        with zipfile.ZipFile(tmp_path / "daskprs.zip", "w") as archive:
            for path in source.rglob("*.py"):
                archive.write(path, path.relative_to(source))
        source = tmp_path / "daskprs.zip"
    before, found, loaded, reads_metadata = ask(source)
    assert before == ["daskprs._lazy_exports"]
    assert found == [sorted(plugin.commands) for plugin in _plugins.own()]
    assert {*loaded} - {"daskprs._lazy_exports"} == {*OWN}
    assert not reads_metadata


def test_what_plugins_name_is_there_and_has_one_name() -> None:
    """A misspelt name would be found by whoever uses it."""
    for kind in ("commands", "variable_files", "readers", "folders", "drivers"):
        names = [name for plugin in _plugins.own() for name in getattr(plugin, kind)]
        assert len(names) == len(set(names)), kind
        for dotted in _plugins.own_names(kind).values():
            assert callable(_plugins.loaded(dotted)), dotted
    for package in _plugins.own_names("stand_ins"):
        assert callable(_plugins.loaded(f"{package}.here:install"))
        assert callable(_plugins.loaded(f"{package}.elsewhere:install"))


def test_a_part_that_no_plugin_has_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core then goes on without, as where the plugin is not there."""
    monkeypatch.setattr(_plugins, "own", lambda: (Plugin(drivers={"step": "json:loads"}),))
    assert _plugins.own_part("drivers", "step") is json.loads
    assert _plugins.own_part("drivers", "detached") is None
    assert _plugins.own_part("readers", "MLTable") is None
