"""`daskprs environment create`: a virtual environment of a published environment's file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from daskprs._cli import main
from daskprs.azure._environments.conda_packages import pip_package, python_versions
from daskprs.azure._environments.new_environment import NewEnvironment
from daskprs.azure._environments.specification import read_specification
from daskprs.errors import OptionError, YamlError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def create(*words: str) -> Result:
    """Call the command as a shell would."""
    return CliRunner().invoke(main, ("environment", "create", *words), prog_name="daskprs")


@pytest.mark.parametrize(
    ("conda", "requirement", "note"),
    [
        ("numpy", "numpy", ""),
        ("numpy=1.21", "numpy==1.21.*", ""),
        ("numpy==1.21.6", "numpy==1.21.6", ""),
        ("numpy 1.21.*", "numpy==1.21.*", ""),
        ("conda-forge::numpy>=1.2,<2", "numpy>=1.2,<2", ""),
        ("numpy >=1.2.*", "numpy>=1.2", ""),
        ("numpy=1.21.6=py38_0", "numpy==1.21.6", "the build py38_0 is left out"),
        ("numpy=*", "numpy", ""),
        ("numpy=1.2|1.3", "numpy", "any version: pip has no words for =1.2|1.3"),
        ("numpy[version='>1']", "numpy", "[version='>1'] is left out"),
        ("pytorch=1.13", "torch==1.13.*", ""),
        ("cudatoolkit=10.1", "", "it is not a package of Python; this machine may have it"),
        ("libgcc-ng", "", "it is not a package of Python; this machine may have it"),
        ("pip=21", "", "a virtual environment has its own"),
        ("Scikit_Learn~=1.0", "scikit_learn~=1.0", ""),
        ("=1.0", "", "it is not NAME, NAME=VERSION or NAME>=VERSION"),
    ],
)
def test_a_package_of_conda_keeps_its_pin(conda: str, requirement: str, note: str) -> None:
    """In the words of pip, where pip has words for it."""
    found = pip_package(conda)
    assert (found.requirement, found.note) == (requirement, note)


def test_a_third_number_of_the_python_does_not_count() -> None:
    """Any 3.8 will do for 3.8.5, but bounds hold."""
    fits = {
        "python": ["3.6.1", "3.13.0"],
        "python=3.8.5": ["3.8.0", "3.8.20"],
        "python==3.8.5": ["3.8.20"],
        "python>=3.7,<3.9": ["3.8.2"],
    }
    for text, versions in fits.items():
        asked = python_versions(text)
        assert asked is not None
        assert all(asked.contains(one) for one in versions), text
    assert not python_versions("python=3.8").contains("3.9.0")  # type: ignore[union-attr]
    assert python_versions("python-dateutil=2") is None


CONDA = """
name: from-conda
channels: [conda-forge, defaults]
dependencies:
  - python={python}
  - pip=21.2
  - cudatoolkit
  - small=1.0
  - pip:
      - -r more.txt
      - other>=2
variables: {{A: b}}
"""


def test_a_plan_shows_what_pip_has_no_words_for(home: Path) -> None:
    """And why; an environment of Azure names its conda file, and has its own name."""
    version = ".".join(map(str, sys.version_info[:2]))
    (home / "conda.yml").write_text(CONDA.format(python=version))
    (home / "azure.yml").write_text("name: a-b\nimage: i\nconda_file: conda.yml\n")
    done = create("azure.yml", "--dry-run")
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.stderr.splitlines()]
    assert lines[0] == f"a-b: a virtual environment in {home}/daskprs-environments/a-b"
    assert lines[1].endswith(f", for python={version}")
    assert lines[2:-1] == [
        "pip installs small==1.0.*  (conda: small=1.0)",
        f"pip installs -r {home}/more.txt",
        "pip installs other>=2",
        "not installed: pip=21.2: a virtual environment has its own",
        "not installed: cudatoolkit: it is not a package of Python; this machine may have it",
        "without effect: channels conda-forge, defaults: packages come from the index of pip",
        "without effect: variables: set them by environment_variables of the step",
        "without effect: image i: containers are not used",
    ]
    assert not (home / "daskprs-environments").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("image: some/image\n", "has no conda_file"),
        ("jobs: {}\n", "this file has no environment"),
        ("dependencies: [{pip: numpy}, {conda: []}]\n", r"e.yml:1:\d+: dependencies\[1\]"),
        ("dependencies: numpy\n", "it has to be a list"),
        ("dependencies: [{pip: [a, b: c]}]\n", r"dependencies\[0\].pip\[1\]: "),
        ("conda_file: nowhere.yml\n", "nowhere.yml"),
    ],
)
def test_a_file_without_packages_is_refused(text: str, problem: str) -> None:
    """With what it lacks."""
    Path("e.yml").write_text(text)
    with pytest.raises(YamlError, match=problem):
        read_specification("e.yml")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("channels", ["main", 3])
def test_channels_without_effect_may_be_anything(channels: object) -> None:
    """They are shown as they are written."""
    Path("e.yml").write_text(f"channels: {channels}\ndependencies: [a]\n")
    (ignored,) = read_specification("e.yml").ignored
    assert ignored.startswith(f"channels {channels}: ")


def test_the_file_of_an_mlflow_model_has_requirements_of_pip(home: Path) -> None:
    """In a list without `pip:`, beside the version of its Python."""
    text = "python: 3.8.15\nbuild_dependencies: [pip==21]\ndependencies: [-r requirements.txt]\n"
    (home / "python_env.yaml").write_text(text)
    asked = read_specification("python_env.yaml")
    assert (asked.name, asked.python) == (home.name, "python=3.8.15")
    assert asked.lines == [f"-r {home}/requirements.txt"]


@pytest.mark.long
def test_an_environment_is_not_planned_where_it_cannot_be_made(home: Path) -> None:
    """No Python fits, the given one is none, or the folder is in use."""
    (home / "old.yml").write_text("dependencies: [python=2.1]\n")
    asked = read_specification("old.yml")
    with pytest.raises(OptionError, match=r"python=2.1 is asked for, and here is Python"):
        NewEnvironment.planned(asked)
    with pytest.raises(OptionError, match="--python nowhere"):
        NewEnvironment.planned(asked, python="nowhere")
    differs = [*NewEnvironment.planned(asked, python=sys.executable).lines()][1]
    assert differs.endswith("for python=2.1, which differs")
    with pytest.raises(OptionError, match=f"{home} exists"):
        NewEnvironment.planned(asked, folder=str(home), python=sys.executable)


def imports(folder: Path, names: str) -> int:
    """Import modules by the interpreter of an environment, and return its exit code."""
    program = [folder / "bin/python", "-I", "-c", f"import {names}"]
    return subprocess.run(program, capture_output=True, check=False).returncode


def wheel(folder: Path, name: str) -> None:
    """Write a wheel of one module."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.long
def test_its_own_pip_fills_the_new_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the last line is what to add to a run."""
    (home / "wheels").mkdir()
    wheel(home / "wheels", "small")
    wheel(home / "wheels", "other")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(home / "wheels")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    version = ".".join(map(str, sys.version_info[:2]))
    text = CONDA.format(python=version).replace("      - other>=2\n", "")
    (home / "conda.yml").write_text(text)
    (home / "more.txt").write_text("other\n")
    done = create("conda.yml", "--name", "e", "--to", "made")
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == ["--environment", f"e={home}/made"]
    assert imports(home / "made", "small, other") == 0
    assert imports(home / "made", "click") != 0
    assert create("conda.yml", "--to", "made").exit_code == 2


@pytest.mark.long
def test_packages_come_from_the_index_of_pip(home: Path) -> None:
    """A version that nobody has fails, and nothing is left of it; a published one is installed."""
    (home / "e.yml").write_text("name: e\ndependencies: [python, pandas=0.0.1]\n")
    done = create("e.yml")
    assert done.exit_code == 42
    assert "pip could not install this" in done.stderr
    assert not (home / "daskprs-environments/e").exists()
    (home / "e.yml").write_text("name: e\ndependencies: [python, 'pandas>=2,<3', {pip: [six]}]\n")
    done = create("e.yml", "--to", "made")
    assert done.exit_code == 0, done.output
    assert imports(home / "made", "pandas, six") == 0
