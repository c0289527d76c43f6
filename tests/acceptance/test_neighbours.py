"""Jobs beside each other in the folder of their script, as they are by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._agent.script.snapshot import LARGEST_BYTES
from daskprs.errors import JobChanged

if TYPE_CHECKING:
    from pathlib import Path

WAITING = """
from pathlib import Path

def run(rows):
    Path({flag!r}).read_text()
    return rows
"""


def test_a_job_goes_on_though_another_one_has_run_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job leaves in the folder of its script is no change of the script."""
    home, flag = tmp_path / "home", tmp_path / "flag"
    home.mkdir()
    (home / "wait.py").write_text(WAITING.format(flag=str(flag)))
    monkeypatch.chdir(home)
    rows = pd.DataFrame({"n": [1, 2]})
    failed = []
    for _ in range(2):
        with pytest.raises(daskprs.ParallelRunFailed) as caught:
            daskprs.parallel_run(rows, "wait.py", run_max_try=1, process_count_per_node=1)
        assert caught.value.result is not None
        failed.append(caught.value.result.job_dir)

    flag.touch()
    result = daskprs.parallel_run(rows, "wait.py", job_dir=failed[0], resume=True)

    assert result.to_pandas().equals(rows)
    assert not list(failed[1].glob("snapshot/*/daskprs-jobs/*"))


SEEING = """
from pathlib import Path

HERE = Path(__file__).parent
FILES = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.*") if path.suffix != ".pyc")

def run(paths):
    return [" ".join(FILES)] * len(paths)
"""


@pytest.mark.parametrize(
    ("data", "left"),
    [
        ("pictures", ["a.csv"]),
        ("./pictures/", ["a.csv"]),
        (["pictures", "a.csv"], []),
        ("pictures/*/*.jpg", ["a.csv", "pictures/labels.txt"]),
        ("file://{home}/pictures", ["a.csv"]),
        ("view", ["a.csv"]),
        ("../home/pictures", ["a.csv"]),
    ],
    ids=str,
)
def test_input_beside_the_script_does_not_travel_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str | list[str], left: list[str]
) -> None:
    """A folder, a file, a glob: it may be larger than what travels, and counts for nothing."""
    home = tmp_path / "home"
    (home / "pictures" / "deep").mkdir(parents=True)
    (home / "score.py").write_text(SEEING)
    (home / "pictures" / "labels.txt").touch()
    (home / "a.csv").touch()
    with (home / "pictures" / "deep" / "large.jpg").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    (home / "view").symlink_to("pictures")
    monkeypatch.chdir(home)
    given = data.format(home=home) if isinstance(data, str) else data
    result = daskprs.parallel_run(given, "score.py", input_type="files", progress=False)
    lines = set(result.to_pandas()["result"])
    assert lines == {" ".join([*left, "score.py"])}


def test_input_that_a_script_may_import_travels_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package, a module, the folder of the script itself."""
    home = tmp_path / "home"
    (home / "package").mkdir(parents=True)
    (home / "package" / "__init__.py").write_text("NAME = 'package'\n")
    (home / "module.py").write_text("NAME = 'module'\n")
    (home / "score.py").write_text(
        "import module, package\n\ndef run(paths):\n    return [package.NAME + module.NAME]\n"
    )
    monkeypatch.chdir(home)
    for number, data in enumerate((["package", "module.py"], ".")):
        result = daskprs.parallel_run(
            data, "score.py", input_type="files", job_dir=tmp_path / str(number), progress=False
        )
        assert set(result.to_pandas()["result"]) == {"packagemodule"}


def test_input_beside_the_script_that_changes_is_a_change_of_the_input_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is accepted by that name."""
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    for name in "ab":
        (home / "in" / name).write_text(name)
    (home / "score.py").write_text(
        "from pathlib import Path\n\ndef run(paths):\n    return [Path(paths[0]).read_text()]\n"
    )
    monkeypatch.chdir(home)
    options: dict[str, Any] = {"job_dir": tmp_path / "job", "mini_batch_size": 1, "progress": False}
    daskprs.parallel_run("in", "score.py", **options)
    (home / "in" / "b").write_text("new")
    with pytest.raises(JobChanged, match=r"of the input, .*b has changed") as caught:
        daskprs.parallel_run("in", "score.py", **options, resume=True)
    assert "accept_changes='input'" in str(caught.value)
    again = daskprs.parallel_run("in", "score.py", **options, resume=True, accept_changes="input")
    assert list(again.to_pandas()["result"]) == ["a", "new"]
