"""The runner of published cases tells what came of each, and leaves their folders alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.by_hand.case import command_for, outcome_of
from tests.by_hand.serial import compared, options

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = """\
type: pipeline
jobs:
  say:
    type: command
    command: cat said.txt > kept.txt && exit ${{inputs.code}}
    code: ../src
    inputs: {code: 0}
"""


@pytest.mark.parametrize(
    ("old", "new", "word", "line"),
    [
        ("", "", "Completed", "pipeline Completed"),
        pytest.param("code: 0", "code: 3", "failed", "3", marks=pytest.mark.long),
        pytest.param(
            *("command:", "comand:", "refused", "pipeline.yml:5:5: jobs.say"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_pipeline_is_told_by_its_end(
    tmp_path: Path, old: str, new: str, word: str, line: str
) -> None:
    """A case needs what stands beside its folder, runs in a copy, and says how it ended."""
    case = tmp_path / "jobs" / "pipeline.yml"
    case.parent.mkdir()
    case.write_text(PIPELINE.replace(old, new))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/said.txt").write_text("hello\n")
    before = sorted(tmp_path.rglob("*"))

    came = outcome_of(case, root=tmp_path)

    assert came.word == word, came
    assert line in came.line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_notebook_runs_with_its_imports_changed(tmp_path: Path) -> None:
    """Its last error is what is told, and cells that are to be skipped do not run."""
    case = tmp_path / "case.ipynb"
    sources = [
        "from azure.ai.ml import Input\n%matplotlib inline",
        "sign_in()",
        "Input(type='uri_file', path='a.csv'); raise OSError('no such place')",
    ]
    cells = [{"cell_type": "code", "source": [one]} for one in sources]
    case.write_text(json.dumps({"cells": cells}))

    assert outcome_of(case, skip=("sign_in",)) == ("failed", "OSError: no such place")


def test_a_deployment_of_a_model_is_invoked(tmp_path: Path) -> None:
    """Pipelines are run, deployments are invoked, and options go with both."""
    case = tmp_path / "deployment.yml"
    case.write_text("type: model\nmodel: {path: model}\nendpoint_name: digits\n")
    options = ("--input", "data")
    assert command_for(case, (), options)[-4:] == ["invoke", case.name, *options]


TWO_STEPS = """\
type: pipeline
inputs: {last: 3}
jobs:
  write:
    type: command
    command: >-
      for n in $(seq ${{inputs.last}}); do echo $n > ${{outputs.ns}}/$n; done;
      echo $$ > ${{outputs.ids}}/id
    inputs: {last: "${{parent.inputs.last}}"}
    outputs: {ns: {type: uri_folder}, ids: {type: uri_folder}}
  double:
    type: parallel
    inputs: {ns: "${{parent.jobs.write.outputs.ns}}"}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.ns}}
    mini_batch_size: "2"
    task:
      type: run_function
      code: src
      entry_script: double.py
      append_row_to: ${{outputs.rows}}
"""


def test_values_are_compared_with_those_of_a_plain_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the id of a process, which is another one each time, differs."""
    case = tmp_path / "case"
    (case / "src").mkdir(parents=True)
    (case / "pipeline.yml").write_text(TWO_STEPS)
    (case / "src/double.py").write_text(
        "def run(files):\n    return [2 * int(open(one).read()) for one in files]\n"
    )
    given = options(["--keep", str(tmp_path), "--input", "last=5", str(case / "pipeline.yml")])

    count = compared(given.files[0], case, given)

    said = capsys.readouterr().out
    assert "write.ns: 5 files, equal" in said
    assert "double.rows: 1 files, equal" in said
    assert "write.ids: 1 files, id: '" in said
    assert count == 1
