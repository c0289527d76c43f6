"""Side inputs: known by their files, and told to agents as the paths where they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._agent.node.site import DriverInfo, ProbeFile, WorkerSite, snapshot_key
from daskprs._agent.protocol.messages import JobSpec, ScriptSpec
from daskprs._agent.script.side_inputs import placed, side_inputs_of, version_of
from daskprs._agent.script.snapshot import LINKED_BYTES, linked_files

if TYPE_CHECKING:
    from pathlib import Path

MOVED = [("/models/a", "/node/a"), ("/words.txt", "/node/words.txt")]
WORDS = {
    "/models/a": "/node/a",
    "/models/a/deep/weights": "/node/a/deep/weights",
    "--model=/models/a": "--model=/node/a",
    "/words.txt": "/node/words.txt",
    "/models/ab": "/models/ab",
    "x=/models/a": "x=/models/a",
    "models/a": "models/a",
    "--model": "--model",
}


@pytest.mark.parametrize("word", WORDS)
def test_arguments_follow_what_was_moved(word: str) -> None:
    """The path itself, what lies below it, and the value of a flag; nothing else."""
    assert placed([word], MOVED) == (WORDS[word],)


def test_a_folder_is_known_by_path_size_and_time_of_its_files(tmp_path: Path) -> None:
    """Whatever changes one of them changes it; what is not there is known by nothing."""
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    file = folder / "deep" / "weights"
    file.write_text("one")
    os.utime(file, (1, 1))
    seen = [version_of(folder)]
    assert version_of(folder) == seen[0]
    os.utime(file, (2, 2))
    seen.append(version_of(folder))
    file.write_text("three")
    os.utime(file, (2, 2))
    seen.append(version_of(folder))
    file.rename(folder / "weights")
    seen.append(version_of(folder))
    assert len(set(seen)) == 4
    assert version_of(tmp_path / "nothing") == ""


def job(tmp_path: Path, **side_inputs: str) -> JobSpec:
    """Return a job whose folder is seen, with side inputs as they are now."""
    values: dict[str, Any] = dict.fromkeys(JobSpec._fields)
    values |= JobSpec._field_defaults
    values |= {
        "job_id": "job",
        "script": ScriptSpec("script.py"),
        "arguments": tuple(side_inputs.values()),
        "environment": dict(side_inputs),
        "job_dir": str(tmp_path),
        "side_inputs": side_inputs_of(side_inputs),
    }
    return JobSpec(**values)


CASES = {
    "seen": ({}, True),
    "another file": ({"version": "1 bytes, 1 ns", "inode": "elsewhere"}, False),
    "grown on this machine": ({"version": "1 bytes, 1 ns"}, True),
    "a log of another machine": ({"version": "", "inode": "elsewhere"}, True),
    "not there": ({"place": "/nowhere/model.bin"}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_worker_that_sees_the_job_folder_may_lack_a_large_file(tmp_path: Path, case: str) -> None:
    """Then the whole snapshot is sent to it, as a link in the job folder leads nowhere there."""
    changes, is_seen = CASES[case]
    model = tmp_path / "model.bin"
    with model.open("wb") as file:
        os.truncate(file.fileno(), LINKED_BYTES + 1)
    (linked,) = linked_files(tmp_path, {"model.bin": LINKED_BYTES + 1})
    snapshot = tmp_path / "snapshot" / "digest"
    script = ScriptSpec("a.py", str(snapshot / "a.py"), source_directory=str(snapshot))
    script = script._replace(linked=(linked._replace(**changes),))
    spec = job(tmp_path)._replace(script=script)
    (tmp_path / "mark").write_text("token")
    origin = DriverInfo("another process", ProbeFile(str(tmp_path / "mark"), "token"), b"")
    site = WorkerSite(spec, origin, tmp_path / "scratch")
    assert site.folder is None
    assert site.lacks() == ([] if is_seen else [snapshot_key(script, is_whole=True)])
    assert (site.job.script == script) is is_seen
    assert site.job.job_dir == str(tmp_path)
    site.close()


def test_a_worker_that_sees_the_job_folder_may_lack_a_side_input(tmp_path: Path) -> None:
    """Only that is sent to it; it works in the job folder all the same."""
    for name in ("same", "changed"):
        (tmp_path / name).write_text(name)
    spec = job(tmp_path, same=str(tmp_path / "same"), changed=str(tmp_path / "changed"))
    os.utime(tmp_path / "changed", (1, 1))  # as another file of that name would be on a node
    (tmp_path / "mark").write_text("token")
    origin = DriverInfo("another process", ProbeFile(str(tmp_path / "mark"), "token"), b"")
    site = WorkerSite(spec, origin, tmp_path / "scratch")
    assert site.folder is None
    assert site.store is not None
    key = spec.side_inputs[1].key
    here = site.store.snapshot(key) / "changed"
    assert site.lacks() == [key]
    assert [one.path for one in site.job.side_inputs] == [str(tmp_path / "same"), str(here)]
    assert site.job.arguments == (str(tmp_path / "same"), str(here))
    assert site.job.environment == {"same": str(tmp_path / "same"), "changed": str(here)}
    assert site.job.job_dir == str(tmp_path)
    here.parent.mkdir(parents=True)
    assert site.lacks() == []
    site.close()
    assert list((tmp_path / "scratch").glob("*/*")) == []
