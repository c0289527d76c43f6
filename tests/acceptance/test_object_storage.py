"""Inputs and outputs in a store of objects, from the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.support.cases import mostly_long
from tests.support.object_store import SIGNED, ObjectStore, object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME = pd.DataFrame({"number": range(200), "name": [f"n{number}" for number in range(200)]})
LINES = FRAME.to_csv(sep=" ", header=False, index=False).encode()
ROWS = "def run(rows):\n    return rows\n"
LENGTHS = """
from pathlib import Path

def run(paths):
    return [f"{Path(path).name} {len(Path(path).read_bytes())}" for path in paths]
"""
COUNTING = """
from daskprs._inputs.files import listing
from daskprs._inputs.files.discover import discover

class Said(listing.Listing):
    def count(self, entries):
        for entry in super().count(entries):
            print(self.how_far)
            yield entry

listing.Listing = Said
with listing.watched_listing() as said:
    discover("s3://inputs/files")
print(said.listed, "files")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Yield a store with tables and files in it."""
    with object_store(tmp_path_factory.mktemp("store") / "log") as one:
        one.put("inputs")
        one.put("outputs")
        for number, part in enumerate((FRAME[:90], FRAME[90:])):
            one.put(f"inputs/csv/{number}.csv", part.to_csv(index=False).encode())
            body = io.BytesIO()
            part.to_parquet(body, index=False)
            one.put(f"inputs/parquet/{number}.parquet", body.getvalue())
        for number in range(7):
            one.put(f"inputs/files/{number}.bin", bytes(number))
        yield one


INLINE = "--start-method", "inline"


def daskprs(
    store: ObjectStore, folder: Path, data: str, script: str, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run a job of two processes, or one without."""
    (folder / "script.py").write_text(script)
    of_processes = () if INLINE[0] in more else ("--process-count-per-node", "2")
    command = [sys.executable, "-m", "daskprs", "run", "script.py", data, "--quiet"]
    return subprocess.run(
        [*command, "--job-dir", "job", *of_processes, *more],
        env={**os.environ, **store.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_keys_are_counted_while_the_store_sends_them(store: ObjectStore) -> None:
    """The client of S3 has no published way to learn this, so a new version may lose it."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTING],
        env={**os.environ, **store.environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *(f"listing s3://inputs/files: {n} so far" for n in range(1, 8)),
        "7 files",
    ]


@pytest.mark.parametrize("kind", mostly_long(["csv", "parquet"], suite=["parquet"]))
def test_tables_are_read_there_and_the_output_is_put_there(
    store: ObjectStore, tmp_path: Path, kind: str
) -> None:
    """With the bytes of a serial run, and nothing beside it."""
    target = ["--output-dir", f"s3://outputs/{kind}"]
    done = daskprs(
        store, tmp_path, f"s3://inputs/{kind}", ROWS, "--mini-batch-size", "500", *target
    )
    assert done.returncode == 0, done.stderr
    assert store.get(f"outputs/{kind}/parallel_run_step.txt") == LINES
    assert [name for name in store.names("outputs") if name.startswith(kind)] == [
        f"{kind}/parallel_run_step.txt"
    ]
    assert f"s3://outputs/{kind}/parallel_run_step.txt" in done.stdout


@pytest.mark.long
def test_a_data_set_is_put_there_and_replaced_by_its_job(
    store: ObjectStore, tmp_path: Path
) -> None:
    """The manifest names what is there; files of the earlier publication are gone."""
    words = ["--mini-batch-size", "500", "--output-dir", "s3://outputs/set", *INLINE]
    data = "--output-format", "jsonl", "--output-file-size", "1 KB"
    for number, more in enumerate(([], ["--resume", "--accept-changes", "input"])):
        source = f"s3://inputs/csv/{'*' if number else 0}.csv"
        done = daskprs(store, tmp_path, source, ROWS, *words, *data, *more)
        assert done.returncode == 0, done.stderr
        assert "s3://outputs/set/parallel_run_step.jsonl" in done.stdout
        folder = "set/parallel_run_step.jsonl"
        told = json.loads(store.get(f"outputs/{folder}/_manifest.json"))
        files = [f"{folder}/{one['path']}" for one in told["files"]]
        names = [name for name in store.names("outputs") if name.startswith("set/")]
        assert sorted(names) == sorted([*files, f"{folder}/_manifest.json"])
        assert len(files) > 1
        rows = b"".join(store.get(f"outputs/{name}") for name in files).splitlines()
        assert [json.loads(row) for row in rows] == FRAME[: len(rows)].to_dict("records")
    assert len(rows) == len(FRAME)


WAITS = """
import time
import urllib.request

def run(rows):
    if rows.iloc[-1, 0] == 199:
        until = time.monotonic() + 60
        while b"<Key>{folder}/" not in urllib.request.urlopen({url!r}).read():
            assert time.monotonic() < until, "nothing is uploaded while the job runs"
            time.sleep(0.05)
        raise ValueError
    return rows
"""


@pytest.mark.long
def test_parts_are_uploaded_while_the_job_runs_and_a_failed_one_leaves_none_of_them(
    store: ObjectStore, tmp_path: Path
) -> None:
    """What was open is aborted; a resume uploads everything anew."""
    store.put("open")
    folder = tmp_path.name
    url = f"{store.endpoint}/open?uploads"
    words = ["--mini-batch-size", "500", "--output-dir", f"s3://open/{folder}"]
    words += ["--output-format", "parquet", "--output-file-size", "1 KB", "--run-max-try", "1"]
    script = WAITS.format(url=url, folder=folder)
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *words)
    assert done.returncode == 42, done.stderr
    assert "nothing is uploaded" not in done.stderr + done.stdout
    assert store.open_uploads("open") == []
    assert store.names("open") == []
    assert not (tmp_path / "job" / "uploads").exists()
    again = ["--resume", "--accept-changes", "script"]
    done = daskprs(store, tmp_path, "s3://inputs/csv", ROWS, *words, *again)
    assert done.returncode == 0, done.stderr
    assert store.open_uploads("open") == []
    told = json.loads(store.get(f"open/{folder}/parallel_run_step.parquet/_manifest.json"))
    assert told["rows"] == len(FRAME)
    for one in told["files"]:
        body = store.get(f"open/{folder}/parallel_run_step.parquet/{one['path']}")
        assert len(pd.read_parquet(io.BytesIO(body))) == one["rows"]
    assert not (tmp_path / "job" / "uploads").exists()


REMOVES = """
import urllib.error
import urllib.request

def init():
    try:
        request = urllib.request.Request({url!r}, None, {headers!r}, method="DELETE")
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        error.close()  # another process has removed it

def run(rows):
    return rows
"""


@pytest.mark.long
def test_an_upload_that_fails_is_a_warning_before_the_job_ends(
    store: ObjectStore, tmp_path: Path
) -> None:
    """The job goes on, and its resume uploads what it has made."""
    words = ["--mini-batch-size", "500", "--output-dir", "s3://not-yet/x"]
    words += ["--output-format", "jsonl", "--output-file-size", "1 KB"]
    script = REMOVES.format(url=f"{store.endpoint}/not-yet", headers=SIGNED)
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *words)
    assert done.returncode == 2
    assert "--output-dir s3://not-yet/x: There is no bucket 'not-yet'" in done.stderr
    assert not (tmp_path / "job").exists()
    store.put("not-yet")
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *words)
    assert done.returncode == 42, done.stderr
    log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
    warning = log.index("a part file could not be uploaded to s3://not-yet/x/parallel_run_step.")
    assert warning < log.index("job Failed: the output cannot be uploaded to s3://not-yet/x/")
    store.put("not-yet")
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *words, "--resume")
    assert done.returncode == 0, done.stderr
    told = json.loads(store.get("not-yet/x/parallel_run_step.jsonl/_manifest.json"))
    assert told["rows"] == len(FRAME)
    assert not (tmp_path / "job" / "uploads").exists()


def test_files_are_fetched_for_the_script(store: ObjectStore, tmp_path: Path) -> None:
    """It gets local paths, which have the names of the objects."""
    size = "--mini-batch-size", "3"
    done = daskprs(store, tmp_path, "s3://inputs/files/*.bin", LENGTHS, *size, *INLINE)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "job" / "output" / "parallel_run_step.txt"
    assert output.read_text() == "".join(f"{number}.bin {number}\n" for number in range(7))
    assert list((tmp_path / "job").rglob("*.bin")) == []


CHANGES = """
import urllib.request

def run(rows):
    if rows.iloc[0, 0] == 0:
        body = b"number,name\\n" + b"7,seven\\n" * 200
        request = urllib.request.Request({url!r}, body, {headers!r}, method="PUT")
        urllib.request.urlopen(request).close()
    return rows
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["0.csv", "1.csv"])
def test_an_object_that_is_replaced_during_the_job_fails_it(
    store: ObjectStore, tmp_path: Path, name: str
) -> None:
    """Whether it is open then, is opened later or was read before; the ETag tells."""
    folder = f"inputs/{tmp_path.name}"
    for number, part in enumerate((FRAME[:90], FRAME[90:])):
        store.put(f"{folder}/{number}.csv", part.to_csv(index=False).encode())
    script = CHANGES.format(url=f"{store.endpoint}/{folder}/{name}", headers=SIGNED)
    size = ["--mini-batch-size", "500", "--allowed-failed-count", "-1"]
    done = daskprs(store, tmp_path, f"s3://{folder}", script, *size)
    assert done.returncode == 42, done.stderr
    told = done.stderr + done.stdout
    assert f"INPUT_CHANGED: s3://{folder}/{name}: the file has changed since the job began" in told
    assert "has 1,612 bytes of version" in told
    assert "daskprs resume" in told
    assert "--accept-changes input" in told
    assert not (tmp_path / "job" / "output" / "parallel_run_step.txt").exists()
    done = daskprs(
        store,
        tmp_path,
        f"s3://{folder}",
        ROWS,
        *size,
        "--resume",
        "--accept-changes",
        "input,script",
    )
    assert done.returncode == 0, done.stderr
    other = FRAME[90:] if name == "0.csv" else FRAME[:90]
    kept = other.to_csv(sep=" ", header=False, index=False)
    new = "7 seven\n" * 200
    output = (tmp_path / "job" / "output" / "parallel_run_step.txt").read_text()
    assert output == (new + kept if name == "0.csv" else kept + new)


@pytest.mark.long
def test_an_output_that_exists_is_replaced_only_when_that_is_said(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Without, nothing has been started."""
    store.put("outputs/there/parallel_run_step.txt", b"mine")
    target = ["--output-dir", "s3://outputs/there"]
    done = daskprs(store, tmp_path, "s3://inputs/csv", ROWS, *target)
    assert done.returncode == 2
    assert (
        "s3://outputs/there/parallel_run_step.txt exists. Replace it by --overwrite" in done.stderr
    )
    assert not (tmp_path / "job").exists()
    assert store.get("outputs/there/parallel_run_step.txt") == b"mine"
    done = daskprs(store, tmp_path, "s3://inputs/csv", ROWS, *target, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert store.get("outputs/there/parallel_run_step.txt") == LINES


@pytest.mark.long
def test_an_upload_that_fails_is_made_up_for_by_a_resume(
    store: ObjectStore, tmp_path: Path
) -> None:
    """The file lies finished in the job folder; then it is uploaded, and the next time left."""
    target = ["--output-dir", "s3://later/x", "--append-row-file-name", "rows.txt"]
    store.put("later")
    script = REMOVES.format(url=f"{store.endpoint}/later", headers=SIGNED)
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *target)
    assert done.returncode == 42, done.stderr
    assert "the output cannot be uploaded to s3://later/x/rows.txt" in done.stderr + done.stdout
    assert (tmp_path / "job" / "output" / "rows.txt").read_bytes() == LINES
    store.put("later")
    for _ in range(2):
        done = daskprs(store, tmp_path, "s3://inputs/csv", script, *target, "--resume")
        assert done.returncode == 0, done.stderr
        assert store.get("later/x/rows.txt") == LINES
    (tmp_path / "job" / "upload.json").unlink()  # now it could be anybody's
    done = daskprs(store, tmp_path, "s3://inputs/csv", script, *target, "--resume")
    assert done.returncode == 2
    assert "s3://later/x/rows.txt exists" in done.stderr


NOWHERE = {
    "s3://inputs/nothing/*.csv": "the glob 's3://inputs/nothing/*.csv' matches nothing",
    "s3://inputs/nothing.csv": "there is nothing at 's3://inputs/nothing.csv'",
    "s3://no-such-bucket/a.csv": "There is no bucket 'no-such-bucket' in this store",
}


@pytest.mark.parametrize("url", mostly_long(NOWHERE, suite=["s3://inputs/nothing.csv"]))
def test_what_is_not_there_is_said(store: ObjectStore, tmp_path: Path, url: str) -> None:
    """By a sentence that names it, before anything starts."""
    done = daskprs(store, tmp_path, url, ROWS)
    assert done.returncode == 2
    assert NOWHERE[url] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    """By what was to be read there."""
    done = daskprs(ObjectStore("http://127.0.0.1:9"), tmp_path, "s3://inputs/csv", ROWS)
    assert done.returncode == 2
    assert "'s3://inputs/csv' cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_itself_lives_on_a_disk(store: ObjectStore, tmp_path: Path) -> None:
    """Its files are appended to and locked."""
    done = daskprs(store, tmp_path, "s3://inputs/csv", ROWS, "--job-dir", "s3://outputs/job")
    assert done.returncode == 2
    assert "a job lives in a folder of this machine" in done.stderr
