"""A package of another author reads a file format: the one of the page, in jobs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.cases import mostly_long
from tests.support.pages import blocks

INLINE = "--start-method", "inline"
PAGE = Path(__file__).parents[2] / "docs/how-to/file-formats.md"
SCRIPT = """
import sys

def run(rows):
    edge = ("daskprs.azure", "daskprs._serve")
    at_the_edge = [one for one in sys.modules if one.startswith(edge)]
    assert at_the_edge == []
    print("run")
    return rows.assign(length=rows["sequence"].str.len())
"""
FIXED_WIDTH = """
import numpy as np, pyarrow as pa
from daskprs.readers import Piece

def schema(file):
    return pa.schema([pa.field("id", pa.int64(), nullable=NULLABLE), ("value", pa.float64())])

def cut(file, size_bytes):
    rows = len(file.read()) // 16
    return [Piece((at, min(at + 3, rows))) for at in range(0, rows, 3)]

def read(file, where):
    rows = np.frombuffer(file.read(), [("id", "<i8"), ("value", "<f8")])[slice(*where)]
    return pa.table({"id": IDS, "value": rows["value"]})
"""
BROKEN = """
def schema(file):
    raise KeyError("no columns")
cut = read = schema
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder like ``site-packages``, with the package of the page."""
    site = tmp_path / "site"
    for block in blocks(PAGE.read_text()):
        if block.title.startswith("daskprs_fasta"):
            file = site / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
    (site / "daskprs_fasta-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: daskprs-fasta\nVersion: 1.0\n"
    )
    (tmp_path / "score.py").write_text(SCRIPT)
    return site


def daskprs(work: Path, *words: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder; `site` is on the path of Python."""
    path = [*filter(None, [site and str(site), os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "daskprs", *words],
        cwd=work,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def fasta(count: int) -> str:
    """Return sequences of lengths that differ."""
    return "".join(f">s{number}\n{'ACGT' * number}\nA\n" for number in range(count))


def test_a_job_reads_files_by_the_reader_of_another_package(installed: Path) -> None:
    """In agents, in several mini-batches of several files, with columns of paths."""
    work = installed.parent
    for day in ("one", "two"):
        (work / f"data/day={day}").mkdir(parents=True)
        (work / f"data/day={day}/part.fasta").write_text(fasta(40))
    words = ("--mini-batch-size", "1500", "--columns", "sequence,name", "--job-dir", "job")
    done = daskprs(work, "run", "score.py", "data", *words, site=installed)
    assert done.returncode == 0, done.stderr
    lines = (work / "job/output/parallel_run_step.txt").read_text().splitlines()
    assert lines == [
        f"{'ACGT' * number}A s{number} {day} {4 * number + 1}"
        for day in ("one", "two")
        for number in range(40)
    ]
    printed = [path.read_text() for path in work.glob("job/logs/user/stdout/*/*.txt")]
    assert sum(text.count("run") for text in printed) >= 4
    told = daskprs(work, "plan", "data", "--partition-keys", "day", site=installed)
    assert "row" in told.stdout, told.stderr


@pytest.mark.parametrize("nullable", mostly_long([False, True], suite=[False]))
def test_a_column_without_nulls_keeps_its_integers(installed: Path, *, nullable: bool) -> None:
    """Also those that no float can hold; a column that may be null has floats."""
    work = installed.parent
    code = FIXED_WIDTH.replace("NULLABLE", str(nullable)).replace("IDS", 'rows["id"]')
    (installed / "daskprs_fasta.py").write_text(code)
    far = 0 if nullable else 1 << 60
    rows = np.array([(far + n, n / 2) for n in range(8)], [("id", "<i8"), ("value", "<f8")])
    for name in ("one", "two"):
        (work / f"{name}.fasta").write_bytes(rows.tobytes())
    (work / "score.py").write_text("def run(rows):\n    return rows\n")
    words = ("one.fasta", "two.fasta", "--job-dir", "job", *INLINE)
    done = daskprs(work, "run", "score.py", *words, site=installed)
    assert done.returncode == 0, done.stderr
    lines = (work / "job/output/parallel_run_step.txt").read_text().splitlines()
    one = [f"{float(n) if nullable else far + n} {n / 2}" for n in range(8)]
    assert lines == one + one


def test_a_null_where_a_reader_has_announced_none_fails_its_mini_batch(installed: Path) -> None:
    """Integers would be floats in that mini-batch alone."""
    work = installed.parent
    ids = 'pa.array([None if n == 4 else int(n) for n in rows["id"]], pa.int64())'
    code = FIXED_WIDTH.replace("NULLABLE", "False").replace("IDS", ids)
    (installed / "daskprs_fasta.py").write_text(code)
    rows = np.array([(n, n / 2) for n in range(8)], [("id", "<i8"), ("value", "<f8")])
    (work / "one.fasta").write_bytes(rows.tobytes())
    (work / "score.py").write_text("def run(rows):\n    return rows\n")
    done = daskprs(
        work, "run", "score.py", "one.fasta", "--job-dir", "job", *INLINE, site=installed
    )
    assert done.returncode == 42
    assert "gave a null in column 'id', which schema() has announced" in done.stderr


def test_without_the_package_files_are_paths(installed: Path) -> None:
    """As they are with it, where the caller asks for files; other suffixes are none of its own."""
    work = installed.parent
    (work / "one.fasta").write_text(fasta(3))
    (work / "two.text").write_text(fasta(3))
    for words, site in [
        (("one.fasta",), None),
        (("one.fasta", "--input-type", "files"), installed),
        (("two.text",), installed),
    ]:
        done = daskprs(work, "plan", *words, "--json", site=site)
        assert '"unit": "file"' in done.stdout, done.stderr
    for files in (("one.fasta", "two.text"), ("two.text", "one.fasta")):
        refused = daskprs(work, "plan", *files, site=installed)
        assert "the input mixes kinds of files" in refused.stderr


def test_a_reader_that_fails_is_named_before_anything_starts(installed: Path) -> None:
    """With the file, and with the error as Python calls it."""
    (installed / "daskprs_fasta.py").write_text(BROKEN)
    (installed.parent / "one.fasta").write_text(fasta(3))
    done = daskprs(installed.parent, "plan", "one.fasta", site=installed)
    assert done.returncode == 2
    assert "one.fasta: schema() of the reader of .fasta files, daskprs_fasta failed" in done.stderr
    assert "KeyError: 'no columns'" in done.stderr
    (installed / "daskprs_fasta.py").write_text("import nothing_like_it\n")
    done = daskprs(installed.parent, "plan", "one.fasta", site=installed)
    assert done.returncode == 2
    assert "'fasta' is daskprs_fasta, which cannot be imported: ModuleNotFoundError" in done.stderr


BREAKS = [
    ("(0, 2)", "cut() of the reader of .fasta files, daskprs_fasta yielded a int, and no"),
    ("[Piece(0, 3)]", "read() of the reader of .fasta files, daskprs_fasta gave 2 rows"),
    ("sys.exit(4)", "cut() of the reader of .fasta files, daskprs_fasta failed: SystemExit: 4"),
]


@pytest.mark.parametrize(
    ("parts", "told"),
    mostly_long(BREAKS, suite=[BREAKS[1]]),
)
def test_a_reader_that_breaks_its_word_is_named(installed: Path, parts: str, told: str) -> None:
    """A wrong number of rows would be in the counts of the job."""
    (installed / "daskprs_fasta.py").write_text(
        "import sys\nimport pyarrow as pa\nfrom daskprs.readers import Piece\n\n"
        "def schema(file):\n    return pa.schema({'sequence': 'string'})\n\n"
        f"def cut(file, size_bytes):\n    return {parts}\n\n"
        "def read(file, where):\n    return pa.table({'sequence': ['a', 'b']})\n"
    )
    (installed.parent / "one.fasta").write_text(fasta(3))
    words = (*INLINE, "--run-max-try", "1")
    done = daskprs(installed.parent, "run", "score.py", "one.fasta", *words, site=installed)
    assert done.returncode != 0
    assert told in done.stderr


def test_a_command_of_another_package_is_one_of_daskprs(installed: Path) -> None:
    """A broken one is listed as such, and no other command suffers."""
    (installed / "daskprs_fasta-1.0.dist-info/entry_points.txt").write_text(
        "[daskprs.commands]\nfasta-info = more:info\nbroken = absent:info\nrun = more:info\n"
    )
    (installed / "more.py").write_text(
        "import click\n\n@click.command()\n@click.argument('word')\n"
        "def info(word):\n    '''Say a word.'''\n    click.echo(word * 2)\n    open('none')\n"
    )
    said = daskprs(installed.parent, "fasta-info", "ab", site=installed)
    assert said.stdout == "abab\n"
    assert said.stderr.endswith("No such file or directory: 'none'\n")
    assert "stdout" not in said.stderr
    listed = daskprs(installed.parent, "--help", site=installed).stdout
    assert "fasta-info    Say a word." in listed
    assert "run           Run SCRIPT over INPUT" in listed
    broken = daskprs(installed.parent, "broken", "--more", site=installed)
    assert broken.returncode == 2
    assert "'broken' is absent:info, which cannot be imported" in broken.stderr
