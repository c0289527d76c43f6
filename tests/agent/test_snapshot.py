"""What of a source directory travels, and what its agents are told by their environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daskprs._agent.node.environment import agent_environment, system_arguments, usable_cores
from daskprs._agent.script import snapshot
from daskprs._agent.script.checked_script import check_script
from daskprs._agent.script.snapshot import (
    IgnoreRules,
    content_hash,
    copy_snapshot,
    digests_of,
    linked_files,
    refuse_too_large,
    source_files,
)
from daskprs._options.run_options import RunOptions
from daskprs.errors import ScriptError

if TYPE_CHECKING:
    from pathlib import Path

PATHS = [
    "a.py",
    "data/a.csv",
    "data/deep/b.csv",
    "deep/data/c.csv",
    "build/x.o",
    "notes.txt",
    "keep.txt",
    "a b.txt",
    "x1.log",
    "xy.log",
    "src/build/y.o",
    "#odd",
]
RULES = [
    "*.csv",
    "data/",
    "/data",
    "data/*.csv",
    "**/deep",
    "data/**",
    "build",
    "*.txt\n!keep.txt",
    "x[0-9].log",
    "x?.log",
    "x[!0-9].log",
    "data[!x]a.csv",
    "[!]n]otes.txt",
    "[!-_]1.log",
    "x[z-a].log",
    "*.csv\nx[z-a].log",
    "# a comment\n\n\\#odd",
    "src/**/y.o",
    "a\\ b.txt",
]


GIT = shutil.which("git") or ""


@pytest.mark.skipif(not GIT, reason="git says what its rules mean")
@pytest.mark.parametrize("rules", RULES)
def test_ignore_rules_mean_what_git_says(tmp_path: Path, rules: str) -> None:
    """Compared path by path."""
    subprocess.run([GIT, "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text(rules + "\n")
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    told = subprocess.run(
        [GIT, "-C", tmp_path, "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(PATHS),
        capture_output=True,
        text=True,
        check=False,
    )
    kept = set(PATHS) - set(told.stdout.split("\0"))
    found = set(source_files(tmp_path)) - {".gitignore"}
    assert found == kept


def test_an_amlignore_counts_alone(tmp_path: Path) -> None:
    """As Azure has it: where there is one, the other is not read."""
    (tmp_path / ".gitignore").write_text("*.py\n")
    (tmp_path / ".amlignore").write_text("*.txt\n")
    rules = IgnoreRules(tmp_path)
    assert not rules.ignores("a.py", is_folder=False)
    assert rules.ignores("a.txt", is_folder=False)


def test_caches_environments_jobs_and_outputs_never_travel(tmp_path: Path) -> None:
    """Whatever the rules say, nor what another job has not finished, which vanishes.

    A link to a folder above is followed once.
    """
    environments = "venv/pyvenv.cfg", "conda/conda-meta/history"
    of_others = ".o.csv.daskprs-claim", ".o.1f.attempts/1"
    others = "__pycache__/a.pyc", ".git/config", *environments, *of_others, "out/old.txt"
    for path in ("a.py", *others):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [*source_files(tmp_path, [tmp_path / "out"])] == ["a.py"]


def test_a_log_that_this_process_writes_is_no_source(tmp_path: Path) -> None:
    """`daskprs run … > log.txt` in the folder of the script: the log grows while the job runs."""
    (tmp_path / "a.py").touch()
    code = (
        "import sys; from pathlib import Path; "
        "from daskprs._agent.script.snapshot import source_files; "
        "sys.stderr.write(str([*source_files(Path())]))"
    )
    with (tmp_path / "log.txt").open("wb") as log:
        told = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    assert told.stderr == "['a.py']"


UNREADABLE = """
import sys
from pathlib import Path
from daskprs._agent.script.checked_script import check_script
from daskprs.errors import ScriptError
from daskprs._options.run_options import RunOptions

try:
    check_script(sys.argv[1], None).look(exclude=())
except ScriptError as error:
    print(error)
"""
WITHOUT_ROOTS_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize("name", ["secret.key", "folder", ".gitignore"])
def test_an_unreadable_file_beside_the_script_is_refused(tmp_path: Path, name: str) -> None:
    """By its path, with both ways out; a link to itself leads nowhere, and is left out."""
    (tmp_path / "score.py").write_text("def run(mini_batch):\n    return []\n")
    (tmp_path / "loop").symlink_to("loop")
    unreadable = tmp_path / name
    if name == "folder":
        unreadable.mkdir()
    else:
        unreadable.touch()
    unreadable.chmod(0)
    as_anyone = WITHOUT_ROOTS_RIGHTS if os.geteuid() == 0 else []
    done = subprocess.run(
        [*as_anyone, sys.executable, "-c", UNREADABLE, str(tmp_path / "score.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    unreadable.chmod(0o700)
    assert done.stdout.startswith(f"source_directory={str(tmp_path)!r}: {unreadable}"), done.stdout
    assert "cannot be read: Permission denied. Make it readable, or list it in a" in done.stdout


def test_a_file_that_goes_before_it_is_copied_is_named(tmp_path: Path) -> None:
    """Such as one that an editor writes beside the script."""
    for name in ("score.py", "score.py.swp"):
        (tmp_path / name).write_text("def run(mini_batch):\n    return []\n")
    script = check_script(tmp_path / "score.py", None)
    script.look(exclude=())
    (tmp_path / "score.py.swp").unlink()
    with pytest.raises(ScriptError, match=r"score.py.swp has gone while the folder was copied"):
        script.travel(tmp_path / "snapshots")
    with pytest.raises(ScriptError, match=r"score.py.swp has gone while the folder was copied"):
        script.packed()


def test_a_snapshot_is_named_by_its_content(tmp_path: Path) -> None:
    """The same files give the same folder, an edit another one."""
    root, folder = tmp_path / "source", tmp_path / "snapshots"
    root.mkdir()
    (root / "a.py").write_text("1")
    files = source_files(root)
    first = copy_snapshot(root, files, folder, content_hash(digests_of(root, files)))
    assert copy_snapshot(root, files, folder, content_hash(digests_of(root, files))) == first
    (root / "a.py").write_text("2")
    assert content_hash(digests_of(root, files)) != first.name
    assert (first / "a.py").read_text() == "1"


def test_a_source_directory_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the largest files and what to do."""
    monkeypatch.setattr(snapshot, "LARGEST_BYTES", 1 << 20)
    (tmp_path / "a.py").touch()
    with (tmp_path / "model.bin").open("wb") as file:
        os.truncate(file.fileno(), 2 << 20)
    with pytest.raises(ScriptError, match=r"model\.bin \(2\.0 MiB\).*\.amlignore"):
        source_files(tmp_path)


def test_a_large_file_is_linked_and_costs_no_reading(tmp_path: Path) -> None:
    """Its size and time are its digest; the limit is for what is copied."""
    root = tmp_path / "source"
    root.mkdir()
    (root / "a.py").touch()
    with (root / "model.bin").open("wb") as file:
        os.truncate(file.fileno(), snapshot.LARGEST_BYTES + 1)
    files = source_files(root)
    before = digests_of(root, files)
    linked = linked_files(root, files)
    copy = copy_snapshot(root, files, tmp_path / "copies", content_hash(before), linked)
    assert not (copy / "a.py").is_symlink()
    assert (copy / "model.bin").readlink() == root / "model.bin"
    with pytest.raises(ScriptError, match=r"model\.bin \(300\.0 MiB\).*side_inputs"):
        refuse_too_large(root, files)
    os.utime(root / "model.bin", (1, 1))
    after = digests_of(root, files)
    assert (before["a.py"], before["model.bin"]) != (after["a.py"], after["model.bin"])
    assert before["a.py"] == after["a.py"]


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_usable_cores_follow_affinity_and_quota(
    tmp_path: Path, files: dict[str, str], cores: int | None
) -> None:
    """Of both versions of control groups."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    mine = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == (mine if cores is None else min(mine, cores))


def test_thread_counts_follow_the_share_of_cores_unless_they_were_asked_for() -> None:
    """What a Dask worker sets for itself is no wish of the user."""
    base = {"OMP_NUM_THREADS": "1", "HOME": "/here"}
    told = agent_environment(base, {"MKL_NUM_THREADS": "7"}, threads=2)
    assert (told["OMP_NUM_THREADS"], told["MKL_NUM_THREADS"]) == ("2", "7")
    assert told["OPENCV_FOR_THREADS_NUM"] == told["TF_NUM_INTRAOP_THREADS"] == "2"
    assert told["HOME"] == "/here"


def test_a_system_flag_that_the_user_gives_is_left_out() -> None:
    """In either form; what is not set is no flag."""
    options = RunOptions(
        arguments=("--output=mine", "--x"),
        logging_level="INFO",
        mini_batch_size=None,
        error_threshold=-1,
        run_invocation_timeout=60,
        run_max_try=3,
        process_count_per_node=None,
        partition_keys=("a", "b"),
    )
    assert system_arguments(options, "/out") == (
        *("--logging_level", "INFO"),
        *("--error_threshold", "-1"),
        *("--run_invocation_timeout", "60"),
        *("--run_max_try", "3"),
        *("--partition_keys", '["a", "b"]'),
        *("--output=mine", "--x"),
    )
