"""Code of pipelines beside large files: linked for scripts, copied for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.script.snapshot import LARGEST_BYTES, LINKED_BYTES
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._pipelines.included_code import Include, IncludedCode
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from pathlib import Path


def code_with_a_model(folder: Path, size: int) -> Path:
    """Return a folder with a script and a file of a size."""
    folder.mkdir()
    (folder / "score.py").touch()
    with (folder / "model.bin").open("wb") as file:
        os.truncate(file.fileno(), size)
    return folder


def test_code_with_what_is_included_links_to_large_files(tmp_path: Path) -> None:
    """A file of the same name, size and time at another place is another one."""
    made = []
    for name in ("one", "two"):
        code = code_with_a_model(tmp_path / name, LARGEST_BYTES + 1)
        os.utime(code / "model.bin", (1, 1))
        more = tmp_path / f"{name}.txt"
        more.touch()
        place = IncludedCode(code, (Include("more.txt", more),)).made_in(tmp_path / "made")
        assert (place / "model.bin").readlink() == code / "model.bin"
        assert not (place / "more.txt").is_symlink()
        made.append(place)
    assert made[0] != made[1]


def test_a_command_works_in_a_copy_of_large_files(tmp_path: Path) -> None:
    """It may write to them; so more than can travel is refused."""
    folder = PipelineFolder(tmp_path / "run")
    code = code_with_a_model(tmp_path / "code", LINKED_BYTES + 1)
    _, place, _ = Command("true", code, {}, None).process("step", folder)
    assert not (place / "model.bin").is_symlink()
    assert (place / "model.bin").stat().st_size == LINKED_BYTES + 1
    os.truncate(code / "model.bin", LARGEST_BYTES + 1)
    with pytest.raises(ScriptError, match=r"model\.bin \(300\.0 MiB\)"):
        Command("true", code, {}, None).process("step", folder)
