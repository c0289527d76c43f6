"""Nothing that a job writes has the value of an environment variable or of a secret."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs import RunOptions, map_batches
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.rows_seal import make_salt
from daskprs._job.detached import _unwritten
from daskprs._job.job import Job
from daskprs._job.request import check_call, check_kept_call
from daskprs._system import user_key
from daskprs._system.user_key import keyed_digest
from daskprs.errors import JobChanged, JobFolderError, OptionError
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.separate_nodes import why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET, PLAIN = "sk-planted'49\"e7%c1", "planted-0815"
FORMS = [b"sk-planted", b'49"e7', b"49%22e7", b'49\\"e7', PLAIN.encode()]
SCRIPT = """
import logging, os, subprocess, sys
from pathlib import Path
from urllib.parse import quote
from daskprs import EntryScript

def init():
    global key
    key, plain = os.environ["API_KEY"], os.environ["PLAIN"]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:  # it has ended
            continue
        assert key.encode() not in words and plain.encode() not in words, words
    print("a key:", key, quote(key), [key])
    for part in (key[:5], key[5:], "\\n"):
        sys.stdout.write(part)
        sys.stdout.flush()
    subprocess.run(["sh", "-c", 'echo "a child: $API_KEY" >&2'], check=True)
    EntryScript().logger.warning("the logger: %s", key)
    logging.getLogger("root").error("logging: %r", key)

def run(rows):
    print("printed by run")
    first = rows["n"].iloc[0] if hasattr(rows, "columns") else int(Path(rows[0]).read_text())
    if not Path("{home}/mended").exists():
        if first == 1:
            long = "." * 4970 + key + "." * 9999
            raise ValueError(f"401 for https://api?key={{quote(key)}}: {{long}}")
        if first == 2:
            os.write(2, f"dying of {{key}}".encode())
            os._exit(3)
    return [f"row {{first}}"]
"""
SOURCES = ("score.py", "pipeline.yml", "deployment.yml")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a script and an input, where temporary files go, too."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "score.py").write_text(SCRIPT.format(home=tmp_path))
    (tmp_path / "n.csv").write_text("n\n0\n1\n2\n")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("API_KEY", raising=False)
    user_key.user_key.cache_clear()
    return tmp_path


def holding(home: Path) -> list[str]:
    """Return the files that have a planted value, but for those that the test wrote."""
    return [
        str(path.relative_to(home))
        for path in home.rglob("*")
        if path.is_file() and path.name not in SOURCES
        if any(form in path.read_bytes() for form in FORMS)
    ]


def open_to_others(folder: Path) -> list[str]:
    """Return what others than the owner may do something with."""
    places = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [str(path) for path in places if stat.S_IMODE(path.stat().st_mode) & 0o077]


OPTIONS: dict[str, Any] = {
    "mini_batch_size": 2,
    "run_max_try": 1,
    "allowed_failed_count": 5,
    "process_count_per_node": 1,
}


def job(home: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job in which one mini-batch raises an error, and another one ends its process."""
    return daskprs.parallel_run(
        home / "n.csv",
        home / "code" / "score.py",
        job_dir=home / "job",
        output_dir=home / "out",
        **OPTIONS,
        **options,
    )


def command(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of daskprs."""
    return subprocess.run(
        [sys.executable, "-m", "daskprs", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_a_job_and_its_resumes_write_no_value(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume asks its caller for what the folder does not keep, and finds what has changed."""
    monkeypatch.setenv("API_KEY", SECRET)
    result = job(home, secrets=["API_KEY"], environment_variables={"PLAIN": PLAIN})
    assert result.mini_batches.failed == 2
    logs = "".join(p.read_text() for p in (home / "job" / "logs").rglob("*") if p.is_file())
    assert "a key: *** *** [" in logs
    assert "\n***\n" in logs
    for text in ("a child: ***", "the logger: ***", "dying of ***", "api?key=***"):
        assert text in logs, text
    assert [result.stdout(number) for number in (1, 2)] == ["printed by run\n"] * 2
    assert result.stderr(3).startswith("dying of ***")
    assert holding(home) == []
    assert open_to_others(home / "job") == []
    assert open_to_others(home / "out")
    (home / "mended").touch()
    monkeypatch.delenv("API_KEY")
    lacking = command("retry-failed", home / "job")
    assert (lacking.returncode, "keep: API_KEY, PLAIN." in lacking.stderr) == (2, True)
    other = command("retry-failed", home / "job", "-e", "PLAIN=other", "--quiet", API_KEY=SECRET)
    assert other.returncode == 2
    assert "the value of the environment variable PLAIN has changed" in other.stderr
    rotated = command("retry-failed", home / "job", "--quiet", API_KEY="another key", PLAIN=PLAIN)
    assert rotated.returncode == 0, rotated.stderr
    assert (home / "out" / "parallel_run_step.txt").read_text() == "row 0\nrow 1\nrow 2\n"
    assert holding(home) == []
    (home / "state" / "daskprs" / "key").write_bytes(b"another")
    user_key.user_key.cache_clear()
    variables = {"PLAIN": PLAIN, "API_KEY": SECRET}
    call = check_kept_call(JobFolder(home / "job"), resume=True, environment_variables=variables)
    with pytest.raises(JobChanged, match=r"PLAIN may have changed: .* by another key than"):
        Job(call).run()


def test_a_secret_in_what_the_folder_keeps_is_refused(home: Path) -> None:
    """It would stand in job.json, and a resume needs it there as it is."""
    variables = {"API_KEY": SECRET, "PLAIN": PLAIN}
    with pytest.raises(OptionError, match="arguments: the value of one of the secrets API_KEY"):
        job(
            home,
            secrets=["API_KEY"],
            environment_variables=variables,
            arguments=["--key", SECRET],
        )
    assert not (home / "job").exists()


@pytest.mark.long
def test_a_command_line_takes_secrets_by_name(home: Path) -> None:
    """No list of processes has a value; the script looks into it."""
    words = ["--mini-batch-size", "2", "--run-max-try", "1", "--allowed-failed-count", "5"]
    words += ["--secret", "API_KEY", "--secret", "PLAIN", "--job-dir", str(home / "job")]
    script, data = home / "code" / "score.py", home / "n.csv"
    done = command("run", script, data, *words, API_KEY=SECRET, PLAIN=PLAIN)
    assert done.returncode == 0, done.stderr
    assert "2 failed" in done.stdout
    shown = (done.stdout + done.stderr).encode()
    assert not any(form in shown for form in FORMS)
    assert holding(home) == []


@pytest.mark.long
def test_values_of_a_detached_job_travel_with_its_task(home: Path) -> None:
    """Its workers have other environments, and its driver another key than the caller's."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        local_directory=str(home / "workers"),
        env={"XDG_STATE_HOME": str(home / "state of workers")},
        **LOCAL_SERVERS,
    ) as cluster:
        options: dict[str, Any] = {
            "client": cluster.scheduler_address,
            "detach": True,
            "environment_variables": {"API_KEY": SECRET, "PLAIN": PLAIN},
            "secrets": ["API_KEY"],
        }
        job(home, **options)
        assert daskprs.attach(home / "job", 100).mini_batches.failed == 2
        (home / "mended").touch()
        job(home, **options, resume="failed")
        assert daskprs.attach(home / "job", 100).mini_batches.failed == 0
        assert holding(home) == []
    resource_tracker._resource_tracker._stop()


def test_the_key_of_a_user_does_not_travel(home: Path) -> None:
    """Workers of other users get keys of the job, of which no one can make the user's own."""
    options = RunOptions(environment_variables={"PLAIN": PLAIN})
    call = check_call(home / "n.csv", home / "code" / "score.py", options, job_dir=home / "job")
    call.folder.create()
    make_salt(call.folder)
    told = json.loads(_unwritten(call)["told"])
    data = dd.from_pandas(pd.DataFrame({"n": range(4)}), npartitions=2)
    kept = {"environment_variables": {"PLAIN": PLAIN}, "schema": {"n": "int64"}}
    lazy = map_batches(data, home / "code" / "score.py", **kept)
    travels = cloudpickle.dumps(dict(lazy.__dask_graph__()))
    own = user_key.user_key()
    assert own not in travels
    assert own.hex() not in told.values()
    digest = keyed_digest("PLAIN=1", bytes.fromhex(told["key"]))
    assert digest == call.digest("PLAIN=1") != keyed_digest("PLAIN=1")


# ---- other users ----

OTHER_USER = 61_235
"""No process of this machine belongs to this user."""
AS_OTHER_USER = f"""
set -e
if [ -n "$CLOSED" ]; then  # a folder above the interpreter that others may not enter
    mkdir -p "$ASIDE"
    mount --bind "$BASE" "$ASIDE"
    mount -t tmpfs -o mode=755 none "$CLOSED"
    mkdir -p "$BASE"
    mount --move "$ASIDE" "$BASE"
fi
exec setpriv --reuid={OTHER_USER} --regid={OTHER_USER} --clear-groups "$@"
"""
BASE = Path(sys.base_prefix)
CLOSED = next((one for one in reversed(BASE.parents) if not one.stat().st_mode & 0o001), None)
needs_other_user = pytest.mark.skipif(
    why_not() != "" or shutil.which("setpriv") is None,
    reason="a process of another user needs root, unshare and setpriv",
)


@pytest.fixture
def seen_by_all() -> Iterator[Path]:
    """Yield a folder that every user may enter, as its parents."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_other_user(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    """Start a program of another user in a folder; the interpreter can be read there."""
    variables = {"CLOSED": str(CLOSED or ""), "BASE": str(BASE), "ASIDE": str(folder / "aside")}
    program = ["unshare", "--mount", "bash", "-c", AS_OTHER_USER, "bash", *map(str, words)]
    return subprocess.Popen(
        program,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), **variables},
    )


def same(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows (a script)."""
    return rows


EVERY_WAY_INTO_A_FOLDER = """
import daskprs
from daskprs._cli import main
from daskprs.errors import JobFolderError

def again(**options):
    daskprs.parallel_run("n.csv", "script.py", job_dir="own", **options)

for way in (
    again,
    lambda: again(resume=True),
    lambda: again(resume=True, output_dir="out"),
    lambda: daskprs.attach("own"),
    lambda: daskprs.cancel("own"),
    lambda: daskprs.ParallelRun.of("own"),
    lambda: main(["status", "own"], standalone_mode=False),
):
    try:
        way()
    except (JobFolderError, SystemExit) as error:
        print(error)
"""


@pytest.mark.long
@needs_other_user
def test_another_user_reads_only_what_is_shared(seen_by_all: Path) -> None:
    """The output elsewhere has the permissions of the umask, and so has a shared job folder.

    A folder with files, which becomes private, is named in the log.
    """
    frame = pd.DataFrame({"n": [1]})
    (seen_by_all / "own").mkdir()
    (seen_by_all / "own" / "notes.txt").touch()
    for name, shared in (("own", False), ("shared", True)):
        daskprs.parallel_run(
            frame,
            same,
            job_dir=seen_by_all / name,
            output_dir=seen_by_all / f"out of {name}",
            process_count_per_node=1,
            shared=shared,
        )
    words = ["find", ".", "-type", "f", "-readable"]
    found = as_other_user(seen_by_all, *words).communicate()[0].splitlines()
    assert "./out of own/parallel_run_step.txt" in found
    assert "./shared/job.json" in found
    assert not [path for path in found if path.startswith("./own/")]
    logged = JobFolder(seen_by_all / "own").master_log.read_text()
    assert "own held other files, such as notes.txt, and only its owner may enter it" in logged
    assert "or keep this one open by shared=True. It" in logged
    assert "retain='all' keeps it" in logged
    (seen_by_all / "script.py").write_text("def run(rows):\n    return rows\n")
    (seen_by_all / "n.csv").write_text("n\n1\n")
    others = as_other_user(seen_by_all, sys.executable, "-c", EVERY_WAY_INTO_A_FOLDER)
    told, _ = others.communicate()
    assert others.returncode == 0, told
    assert told.count("and only its owner may enter it. Let its owner") == 7, told
    with pytest.raises(JobFolderError, match=r"shared=True: the job folder .* setfacl -Rk"):
        JobFolder(seen_by_all / "own").create(shared=True)


@pytest.mark.long
@needs_other_user
def test_a_worker_of_another_user_is_one_without_the_disk(seen_by_all: Path) -> None:
    """Rows travel with their outcomes; no mini-batch fails of a folder that it may not enter."""
    scratch = seen_by_all / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    with (
        LocalCluster(n_workers=0, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        words = [cluster.scheduler_address, "--local-directory", scratch, "--no-dashboard"]
        words += ["--no-nanny", "--nthreads", "1"]
        worker = as_other_user(
            seen_by_all, sys.executable, "-m", "distributed.cli.dask_worker", *words
        )
        try:
            client.wait_for_workers(1, timeout=60)
            result = daskprs.parallel_run(
                pd.DataFrame({"n": range(20)}),
                lambda rows: rows * os.getuid(),
                mini_batch_size=64,
                client=client,
                job_dir=seen_by_all / "job",
            )
        finally:
            worker.terminate()
            worker.communicate(timeout=30)
    assert result.mini_batches.failed == 0
    assert result.to_pandas()["n"].tolist() == [n * OTHER_USER for n in range(20)]
    assert open_to_others(seen_by_all / "job") == []
