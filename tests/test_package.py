"""The wheel and the sdist hold the right files, each time the same; a job runs by the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cloning import copy_clone

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("hatchling", reason="the lowest versions are tested without what builds")

SCRIPT = "def run(rows):\n    return rows.assign(double=rows['n'] * 2)\n"


def run(cwd: Path, *words: str | Path) -> str:
    """Run a program without the paths and times of this process, and return its output."""
    ours = {"PYTHONPATH", "SOURCE_DATE_EPOCH"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(source: Path, *kinds: str) -> dict[str, bytes]:
    """Build as `make package` does, and return the bytes of each archive."""
    run(source, sys.executable, "-m", "hatchling", "build", *kinds)
    return {path.name: path.read_bytes() for path in (source / "dist").iterdir()}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """Return a clone in which both are built, and the names of its files."""
    folder = tmp_path_factory.mktemp("clone")
    names = copy_clone(folder)
    build(folder)
    return folder, names


@pytest.fixture(scope="module")
def wheel(clone: tuple[Path, set[str]]) -> Path:
    """Return the wheel."""
    (found,) = clone[0].joinpath("dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(clone: tuple[Path, set[str]]) -> Iterator[tarfile.TarFile]:
    """Return the sdist, open."""
    (found,) = clone[0].joinpath("dist").glob("*.tar.gz")
    with tarfile.open(found) as archive:
        yield archive


@pytest.mark.long
def test_what_is_built_elsewhere_is_the_same(wheel: Path, tmp_path: Path) -> None:
    """By another user at another time in another folder."""
    again = tmp_path / "again"
    for name in copy_clone(again):
        again.joinpath(name).chmod(again.joinpath(name).stat().st_mode & 0o700)
        os.utime(again / name, (0, 0))
    assert build(again) == {path.name: path.read_bytes() for path in wheel.parent.iterdir()}


@pytest.mark.long
def test_the_sdist_makes_the_wheel_of_the_clone(
    wheel: Path, sdist: tarfile.TarFile, tmp_path: Path
) -> None:
    """Byte by byte, though it lies elsewhere and is of another time."""
    unpacked = tmp_path / "unpacked"
    sdist.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    assert build(source, "--target", "wheel") == {wheel.name: wheel.read_bytes()}


def test_the_archives_hold_what_belongs_to_them(
    clone: tuple[Path, set[str]], wheel: Path, sdist: tarfile.TarFile
) -> None:
    """The wheel holds the package, its data and `py.typed`; the sdist is the whole clone."""
    names = clone[1]
    package = {name for name in names if name.startswith("daskprs/")}
    assert {"daskprs/py.typed", "daskprs/daskprs.yaml", "daskprs/_cli/__init__.py"} <= package
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == package
    assert {one.name.partition("/")[2] for one in sdist} == {*names, "PKG-INFO"}


@pytest.mark.cold
def test_what_the_wheel_holds_runs_a_job(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the clone on the path of Python, and in one process."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # noqa: S202 - it was made by this test
    tmp_path.joinpath("score.py").write_text(
        SCRIPT + "import daskprs\n\ndef init():\n    print(daskprs.__file__)\n"
    )
    tmp_path.joinpath("rows.csv").write_text("n\n1\n2\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    words = (*("score.py", "rows.csv"), *("--start-method", "inline"), *("--output-dir", "output"))
    done = subprocess.run(
        [sys.executable, "-m", "daskprs", "run", *words, "--job-dir", "job"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert tmp_path.joinpath("output/parallel_run_step.txt").read_text() == "1 2\n2 4\n"
    printed = [path.read_text() for path in tmp_path.glob("job/logs/user/stdout/*/*.txt")]
    assert str(site / "daskprs/__init__.py") in "".join(printed)


@pytest.mark.long
def test_the_installed_wheel_runs_a_job(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the packages of this one, but not its daskprs."""
    home = tmp_path / "environment"
    run(tmp_path, sys.executable, "-m", "venv", "--without-pip", home)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", home)
    run(tmp_path, *pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    # This adds the folder, and not what .pth files in the folder add: the clone.
    site.joinpath("here.pth").write_text(sysconfig.get_path("purelib"))
    tmp_path.joinpath("score.py").write_text(SCRIPT)
    tmp_path.joinpath("rows.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(100)))

    where = run(tmp_path, home / "bin/python", "-c", "import daskprs; print(daskprs.__file__)")
    assert where.strip() == str(site / "daskprs/__init__.py")
    told = run(tmp_path, home / "bin/daskprs", "--version")
    assert told.strip() == f"daskprs, version {wheel.name.split('-')[1]}"
    run(tmp_path, home / "bin/daskprs", "run", "score.py", "rows.csv", "--output-dir", "output")
    rows = tmp_path.joinpath("output/parallel_run_step.txt").read_text().splitlines()
    assert rows[:3] == ["0 0", "1 2", "2 4"]
    assert len(rows) == 100
