"""The proof of a job: each byte that is another one is found, and named with what it concerns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from daskprs._folders.job_folder import JobFolder
from daskprs._output.journal.history import History
from daskprs._output.proof import Proof
from daskprs._output.spec import OutputSpec
from tests.support.cases import mostly_long
from tests.support.datasets import PARQUET
from tests.support.store_driver import (
    BOTH,
    KEY,
    TEXT,
    driving,
    failed_outcome,
    frame_of,
    mini_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._output.proof import Finding

N = 40
FAILED = 7
HEADED = OutputSpec(text=True, typed=False, header=True)
FOLDERS = PARQUET._replace(partition_by=("row",), file_size_bytes=1 << 20)
JSON_LINES = PARQUET._replace(format="jsonl", typed=True, key=KEY)
ONE_FILE = PARQUET._replace(single_file=True)


def target_of(base: Path) -> Path:
    """Return the output of the tests."""
    return base / "out" / "rows"


def commit(base: Path, spec: OutputSpec, indexes: range, *, publishes: bool = True) -> None:
    """Commit mini-batches, of which one fails, in another order than that of the input."""
    with driving(base / "job", target_of(base), spec, resume=(base / "job").exists()) as driver:
        order = list(indexes)
        random.Random(3).shuffle(order)  # noqa: S311 - any order will do
        for index in order:
            if index == FAILED:
                driver.store.attempt_failed(mini_batch(index), failed_outcome(index), final=True)
            elif not driver.has(index):
                driver.commit(index, frame_of(index))
        if publishes:
            driver.store.publish()
            driver.store.end({"status": "Completed", "items": [0, 0, 0]})


def published(spec: OutputSpec) -> Callable[[Path], None]:
    """Return what makes a job that has published its output."""
    return lambda base: commit(base, spec, range(N))


def unfinished(base: Path) -> None:
    """Make a job of two drivers, the first of which has published, and the last has not."""
    commit(base, BOTH, range(N // 2))
    commit(base, BOTH, range(N), publishes=False)


JOBS = {
    "text": published(TEXT),
    "text with a header, typed rows": published(HEADED._replace(typed=True, key=KEY)),
    "parquet": published(PARQUET),
    "parquet in folders": published(FOLDERS),
    "json lines, typed rows": published(JSON_LINES),
    "one parquet file": published(ONE_FILE),
    "unfinished": unfinished,
}


def proof_of(base: Path) -> list[Finding]:
    """Return the findings about a job."""
    proof = Proof(JobFolder(base / "job"))
    proof.check_rows()
    return proof.findings


def files_that_count(base: Path) -> list[Path]:
    """Return the journals, the spools, and the files of the output."""
    target = target_of(base)
    own = [
        path
        for form in ("journal.*", "spool.*/*", "typed.*/*")
        for path in base.glob(f"job/{form}")
    ]
    files = [path for path in target.rglob("*") if path.is_file()] if target.is_dir() else [target]
    return sorted(path for path in (*own, *files) if path.stat().st_size)


def flipped(path: Path, place: int, bit: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


def check_each_flip(base: Path, each: int) -> int:
    """Flip bits of each file, one at a time, and return how many were found and named."""
    dice, count = random.Random(each), 0  # noqa: S311 - any places will do
    assert proof_of(base) == []
    for path in files_that_count(base):
        last = path.stat().st_size - 1
        for place in (0, last, *(dice.randint(0, last) for _ in range(each - 2))):
            bit = dice.randrange(8)
            flipped(path, place, bit)
            found = proof_of(base)
            flipped(path, place, bit)
            count += 1
            named = [one for one in found if one.where == str(path)]
            assert len(named) == 1, (path, place, bit, found)
            assert named[0].byte_range is not None
            assert named[0].byte_range[0] <= place < named[0].byte_range[1]
    assert proof_of(base) == []
    return count


IN_SUITE = ("text with a header, typed rows", "parquet in folders", "unfinished")


@pytest.mark.parametrize("job", mostly_long(JOBS, suite=IN_SUITE))
def test_a_flipped_bit_is_found_and_its_file_and_place_are_named(tmp_path: Path, job: str) -> None:
    """Of each file that counts, some bytes: the first, the last, and others."""
    JOBS[job](tmp_path)
    assert check_each_flip(tmp_path, 6) >= 12


@pytest.mark.long
@pytest.mark.parametrize("job", JOBS)
def test_a_thousand_flipped_bits_are_found(tmp_path: Path, job: str) -> None:
    """The same a thousand times for each sort of job."""
    JOBS[job](tmp_path)
    assert check_each_flip(tmp_path, -(-1000 // len(files_that_count(tmp_path)))) >= 1000


def test_damaged_rows_of_text_are_named_by_mini_batch_and_place(tmp_path: Path) -> None:
    """Both of a run that follow each other are one finding; a failed one between has no rows."""
    commit(tmp_path, HEADED, range(N))
    text = target_of(tmp_path).read_bytes()
    lines = text.splitlines(keepends=True)
    changed = [b"#" + line[1:] if line.startswith((b"6 ", b"8 ")) else line for line in lines]
    target_of(tmp_path).write_bytes(b"".join(changed))
    (found,) = proof_of(tmp_path)
    first, end = found.byte_range or (0, 0)
    assert text[first:end] == b"".join(line for line in lines if line[:2] in (b"6 ", b"8 "))
    assert found.mini_batches == [(6, 6), (8, 8)]
    assert found.items == len(frame_of(6)) + len(frame_of(8))
    assert found.next_step.endswith(
        "or remove it and resume the job, which runs 39 mini-batches again."
    )


def test_cut_lengthened_and_missing_outputs_are_named(tmp_path: Path) -> None:
    """What is cut off are the rows of the last mini-batches."""
    commit(tmp_path, TEXT, range(N))
    target = target_of(tmp_path)
    whole = target.read_bytes()
    target.write_bytes(whole[:-1])
    assert [one.mini_batches for one in proof_of(tmp_path)] == [[(N - 1, N - 1)]]
    target.write_bytes(whole + b"more\n")
    (found,) = proof_of(tmp_path)
    assert found.what == "has bytes behind the last row"
    assert found.byte_range == (len(whole), len(whole) + 5)
    target.unlink()
    (found,) = proof_of(tmp_path)
    assert (found.what, found.items) == ("is missing: it was moved or removed", 96)


def test_a_data_set_with_a_file_less_or_more_is_named(tmp_path: Path) -> None:
    """Readers of the folder would take another file for rows of the job."""
    commit(tmp_path, PARQUET, range(N))
    part = sorted(target_of(tmp_path).glob("part-*"))[1]
    content = part.read_bytes()
    (target_of(tmp_path) / "more.parquet").write_bytes(content)
    (target_of(tmp_path) / "_SUCCESS").touch()
    (more,) = proof_of(tmp_path)
    assert more.where.endswith("more.parquet")
    for name in ("more.parquet", "_SUCCESS"):
        (target_of(tmp_path) / name).unlink()
    part.unlink()
    (less,) = proof_of(tmp_path)
    assert less.where == str(part)
    (run,) = less.mini_batches
    assert 0 < run[0] <= run[1] < N - 1
    commit(tmp_path, PARQUET, range(N))
    assert proof_of(tmp_path) == []


def test_a_lost_record_is_named_with_the_mini_batches_that_it_committed(tmp_path: Path) -> None:
    """The journal has another checksum in that line, and the output has more rows than it says."""
    commit(tmp_path, TEXT, range(N))
    journal = JobFolder(tmp_path / "job").journal(1)
    content = journal.read_bytes()
    place = content.index(b'"part 12"')
    journal.write_bytes(content.replace(b'"part 12"', b'"part 13"', 1))
    line, counts, output = proof_of(tmp_path)
    first, end = line.byte_range or (0, 0)
    assert (line.where, first < place < end) == (str(journal), True)
    assert counts.mini_batches == [(12, 12)]
    assert output.where == str(target_of(tmp_path))
    assert len(History(JobFolder(tmp_path / "job")).commits) < N - 1  # a resume reads up to there


def test_a_line_that_was_being_written_when_the_driver_died_is_no_finding(tmp_path: Path) -> None:
    """It committed nothing; behind the end of a job it is one."""
    commit(tmp_path, TEXT, range(N), publishes=False)
    journal = JobFolder(tmp_path / "job").journal(1)
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[:20])
    proof = Proof(JobFolder(tmp_path / "job"))
    assert (proof.findings, proof.torn_bytes) == ([], 20)
    journal.write_bytes(whole)
    commit(tmp_path, TEXT, range(N))
    journal = JobFolder(tmp_path / "job").journal(2)
    journal.write_bytes(journal.read_bytes() + whole[:20])
    assert [one.where for one in proof_of(tmp_path)] == [str(journal)]


def test_a_journal_that_was_removed_is_found_by_the_rows_of_its_run(tmp_path: Path) -> None:
    """Without rows, the run may have ended before it had begun."""
    unfinished(tmp_path)
    folder = JobFolder(tmp_path / "job")
    folder.epoch(3).touch()
    proof = Proof(folder)
    assert (proof.findings, proof.no_journals) == ([], [folder.journal(3)])
    folder.journal(2).unlink()
    (found,) = proof_of(tmp_path)
    assert found.where == str(folder.journal(2))
    assert found.what.startswith("is missing")


def test_what_is_found_in_rows_is_whole_after_a_resume(tmp_path: Path) -> None:
    """The next step does what it says: the same bytes are there again."""
    for spec in (HEADED, PARQUET, ONE_FILE):
        base = tmp_path / spec.format / str(spec.single_file)
        commit(base, spec, range(N))
        files = [one for one in files_that_count(base) if "job" not in one.relative_to(base).parts]
        place = next(one for one in files if not one.name.startswith("_"))
        flipped(place, place.stat().st_size // 2, 0)
        (found,) = proof_of(base)
        assert "remove it and resume the job" in found.next_step
        place.unlink()
        commit(base, spec, range(N))
        assert proof_of(base) == []


def test_without_mini_batches_and_without_rows_nothing_is_wrong(tmp_path: Path) -> None:
    """An empty input, and a job that keeps no rows."""
    commit(tmp_path / "empty", TEXT, range(0))
    commit(tmp_path / "none", PARQUET, range(0))
    with driving(tmp_path / "kept" / "job", None, OutputSpec(text=False, typed=False)) as driver:
        driver.commit(0, ["a"])
        driver.store.publish()
    for name in ("empty", "none", "kept"):
        assert proof_of(tmp_path / name) == []
