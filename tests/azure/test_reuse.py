"""Steps of pipelines that have done the same before, and what they give their pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daskprs.azure import PipelineResult, run_pipeline
from daskprs.errors import JobFolderError, PipelineFailed

PIPELINE = """
type: pipeline
inputs:
  last: 3
jobs:
  prepare:
    type: command
    code: ./code
    command: python numbers.py ${{inputs.last}} ${{outputs.numbers}}
    inputs: {last: "${{parent.inputs.last}}"}
    outputs: {numbers: {type: uri_folder}}
  square:
    type: parallel
    inputs: {numbers: "${{parent.jobs.prepare.outputs.numbers}}"}
    outputs: {rows: {type: uri_file}, notes: {type: uri_folder}, unwritten: {type: uri_file}}
    input_data: ${{inputs.numbers}}
    mini_batch_size: "2"
    max_concurrency_per_instance: 1
    task:
      type: run_function
      code: ./code
      entry_script: square.py
      program_arguments: >-
        --notes ${{outputs.notes}} --copy_logs_to_parent True --push_metrics_to_parent True
        --metrics_name_prefix square.
      append_row_to: ${{outputs.rows}}
"""
NUMBERS = """
import pathlib, sys
print("writing")
for n in range(int(sys.argv[1])):
    pathlib.Path(sys.argv[2], f"{n}.txt").write_text(str(n))
"""
SQUARE = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--notes")
words, _ = parser.parse_known_args()
def run(files):
    pathlib.Path(words.notes, "note.txt").write_text("here")
    return [int(open(file).read()) ** 2 for file in files]
"""


class Project:
    """A folder with a pipeline, whose runs are told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "pipeline.yml"
        self.file.write_text(PIPELINE)
        self.code = root / "code"
        self.code.mkdir()
        (self.code / "numbers.py").write_text(NUMBERS)
        (self.code / "square.py").write_text(SQUARE)
        self._runs = 0

    def run(self, **more: Any) -> tuple[PipelineResult, list[str]]:
        """Run the pipeline in a new folder, and return the steps that were not run, too."""
        self._runs += 1
        told: list[str] = []
        place = self.root / "runs" / f"run{self._runs}"
        result = run_pipeline(self.file, job_dir=place, show=told.append, **more)
        return result, [line.split(":")[0] for line in told if ": reused, " in line]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project that has never run."""
    return Project(tmp_path)


def test_steps_that_have_done_the_same_are_not_run_again(project: Project) -> None:
    """Outputs of all kinds are where this run wants them, and its steps say where they are from."""
    first, reused = project.run()
    assert reused == []
    second, reused = project.run()
    assert reused == ["prepare", "square"]
    for result in (first, second):
        square = result.steps["square"]
        assert square.status == "Completed"
        assert square.outputs["rows"].read_text() == "0\n1\n4\n"
        assert (square.outputs["notes"] / "note.txt").read_text() == "here"
        assert square.outputs["rows"].is_relative_to(result.folder)
    log = second.steps["square"].log.read_text()
    assert str(first.steps["square"].folder) in log


@pytest.mark.long
def test_what_has_changed_is_run_and_so_is_what_hangs_on_it(project: Project) -> None:
    """A value, a script, an input, an output that was changed by hand."""
    project.run()
    _, reused = project.run(inputs={"last": 2})
    assert reused == []
    (project.code / "square.py").write_text(SQUARE + "# mended\n")
    _, reused = project.run()
    assert reused == []  # one folder of code for both
    latest, reused = project.run()
    assert reused == ["prepare", "square"]
    again, reused = project.run(overrides=["jobs.square.mini_batch_size=1"])
    assert reused == ["prepare"]
    again.steps["square"].outputs["rows"].write_text("mine")
    assert latest.steps["square"].outputs["rows"].read_text() == "0\n1\n4\n"
    _, reused = project.run(overrides=["jobs.square.mini_batch_size=1"])
    assert reused == ["prepare"]


def test_the_name_of_a_run_is_no_value_of_its_steps(project: Project) -> None:
    """A run that is called by its day gives no result to that of another day."""
    project.file.write_text(
        "inputs: {day: some}\n"
        "jobs:\n"
        "  tell:\n"
        "    command: echo ${{inputs.day}} > ${{outputs.o}}/day.txt\n"
        "    inputs: {day: '${{parent.inputs.day}}'}\n"
        "    outputs: {o: {path: 'azureml://datastores/blobs/paths/${{name}}/o'}}\n"
    )
    project.root.joinpath("blobs").mkdir()
    reused: list[str] = []
    for day, folder in (("monday", "monday"), ("tuesday", "tuesday"), ("tuesday", "again")):
        result = run_pipeline(
            project.file,
            inputs={"day": day},
            datastores={"blobs": project.root / "blobs"},
            job_dir=project.root / "runs" / folder,
            show=reused.append,
        )
        place = result.steps["tell"].outputs["o"]
        assert (place / "day.txt").read_text() == f"{day}\n"
        assert place == project.root / f"blobs/{folder}.tell/o"
    assert sum(": reused, " in line for line in reused) == 1


@pytest.mark.long
def test_files_that_are_named_by_words_or_assets_count(project: Project) -> None:
    """Though they are no inputs: a script can open them."""
    words, model = project.root / "words.txt", project.root / "model"
    model.mkdir()
    asks = "# Model.get_model_path is what a script finds an asset by\n"
    (project.code / "place.py").write_text(asks)
    command = f"test -e {words}; python numbers.py ${{{{inputs.last}}}} ${{{{outputs.numbers}}}}"
    named = f"jobs.prepare.command={command}"
    arguments = f"jobs.square.task.program_arguments=--words={words} --notes ${{{{outputs.notes}}}}"

    def run() -> list[str]:
        return project.run(overrides=[named, arguments], assets={"model:1": model})[1]

    run()
    assert run() == ["prepare", "square"]
    words.write_text("one")
    assert run() == []
    assert run() == ["prepare", "square"]
    (model / "m.txt").write_text("m")
    assert run() == []  # the code of both asks


@pytest.mark.long
def test_a_result_that_lacks_rows_is_not_taken_under_other_limits(project: Project) -> None:
    """What failed for want of time or tries may well succeed with more."""
    failing = SQUARE.replace("    return", "    assert len(files) > 1\n    return")
    (project.code / "square.py").write_text(failing)
    few = "jobs.square.retry_settings.max_retries=0"
    _, reused = project.run(overrides=[few])
    _, reused = project.run(overrides=[few])
    assert reused == ["prepare", "square"]
    for more in ("retry_settings={max_retries: 1}", "retry_settings={max_retries: 0, timeout: 99}"):
        _, reused = project.run(overrides=[f"jobs.square.{more}"])
        assert reused == ["prepare"]
    with pytest.raises(PipelineFailed):
        project.run(overrides=[few, "jobs.square.mini_batch_error_threshold=0"])


@pytest.mark.parametrize(
    ("override", "others"),
    [
        ("jobs.square.is_deterministic=false", ["prepare"]),
        # What it writes anew is new to the next one.
        pytest.param("jobs.prepare.is_deterministic=false", [], marks=pytest.mark.long),
        pytest.param("settings.force_rerun=true", [], marks=pytest.mark.long),
    ],
)
def test_a_step_is_run_each_time_if_the_file_says_so(
    project: Project, override: str, others: list[str]
) -> None:
    """Or if all are."""
    project.run(overrides=[override])
    _, reused = project.run(overrides=[override])
    assert reused == others


@pytest.mark.long
def test_a_step_that_failed_is_run_again(project: Project) -> None:
    """What was done before it is not."""
    (project.code / "square.py").write_text("def run(files): raise ValueError('no')")
    for _ in range(2):
        with pytest.raises(PipelineFailed, match="ValueError: no"):
            project.run()
    with pytest.raises(PipelineFailed) as caught:
        project.run()
    assert caught.value.result is not None
    assert caught.value.result.steps["prepare"].status == "Completed"


@pytest.mark.long
def test_a_step_gives_its_pipeline_its_logs_and_metrics(project: Project) -> None:
    """As far as its flags say so; both steps have the log of their driver under Azure's name."""
    result, _ = project.run()
    logs = result.folder / "pipeline.logs"
    assert (logs / "square" / "job_result.txt").is_file()
    assert (logs / "square" / "sys" / "master_role.txt").is_file()
    rows = (logs / "metrics.csv").read_text().splitlines()
    assert rows[0] == "Step,Metric,Value"
    assert "square,square.Completed Tasks,2" in rows
    names = ("prepare", "square")
    prepare, square = (result.folder / one / "azureml-logs/70_driver_log.txt" for one in names)
    assert prepare.read_text() == "writing\n"
    assert "Completed" in square.read_text()


WRITES = """\
jobs:
  train:
    command: echo new > ${{outputs.o}}/new.txt && echo more > ${{outputs.own}}/more.txt
    additional_includes: [./kept]
    outputs: {o: {path: ./run/../mine}, own: {type: uri_folder}}
"""


def test_a_run_removes_only_what_it_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the user stay: in the places that he named, and in folders called like a step."""
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "kept", "train/outputs"):
        Path(folder).mkdir(parents=True)
        Path(folder, "old.txt").write_text("precious")
    Path("p.yml").write_text(WRITES)
    there = sorted(Path().rglob("*"))
    with pytest.raises(JobFolderError, match=r"holds kept, which no run of a pipeline has made"):
        run_pipeline("p.yml", job_dir=".")
    assert sorted(Path().rglob("*")) == there
    told: list[str] = []
    own = {"train.own": "run/own"}
    result = run_pipeline("p.yml", job_dir="run", outputs=own, show=told.append)
    assert not [line for line in told if "held other files" in line]
    assert sorted(one.name for one in Path("mine").iterdir()) == ["new.txt", "old.txt"]
    Path("run/own/old.txt").write_text("precious")
    again: dict[str, Any] = {
        "overrides": ["jobs.train.command=ls"],
        "job_dir": "run",
        "resume": True,
    }
    run_pipeline("p.yml", outputs=own, **again)
    assert sorted(one.name for one in Path("run/own").iterdir()) == ["more.txt", "old.txt"]
    Path("run/late").mkdir()
    Path("p.yml").write_text(WRITES + "  late: {command: 'true'}\n")
    with pytest.raises(JobFolderError, match=r"holds late, .*or give the step another name"):
        run_pipeline("p.yml", **again)
    assert Path("run/late").is_dir()
    assert result.steps["train"].folder.is_dir()
