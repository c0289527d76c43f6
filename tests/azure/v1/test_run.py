"""`Run`: what scripts log and upload, as files of the run's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import daskprs
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._run_place import RunPlace
from daskprs.azure.v1 import (
    Dataset,
    Environment,
    Experiment,
    OutputFileDatasetConfig,
    ParallelRunConfig,
    ParallelRunStep,
    Pipeline,
    Run,
    Workspace,
)
from daskprs.errors import UsageError

IDS = """
import os
from azureml.core import Run

def run(_):
    return [os.environ["AZUREML_RUN_ID"], Run.get_context().id]
"""
ASKED = """
import json
from pathlib import Path
from azureml.core import Run

def init():
    global run_of_step
    run_of_step = Run.get_context()
    run_of_step.set_tags({"of": "text", "size": 1})
    run_of_step.parent.tag("best", 2)
    run_of_step.display_name = "Texts"

def run(mini_batch):
    inputs, outputs = run_of_step.input_datasets, run_of_step.output_datasets
    asked = [inputs["mounted"], inputs["read"].to_path(), Path(outputs["rows"]).name]
    for one in (run_of_step, run_of_step.parent):
        asked += [one.name, one.display_name, one.type, one.status, one.tags, one.properties]
        asked.append(one.get_portal_url())
    return [json.dumps(asked)]
"""


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands: a file beside it."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("one\n")


def config(script: str) -> ParallelRunConfig:
    """Return the config of a step that runs a script."""
    return ParallelRunConfig(
        environment=Environment("e"),
        entry_script=script,
        source_directory=".",
        error_threshold=-1,
        output_action="append_row",
        compute_target="cpu",
        node_count=1,
    )


def test_a_notebook_logs_to_a_run_of_its_own() -> None:
    """With runs below it; one that an exception ends has failed."""
    experiment = Experiment(Workspace(root="store"), "asked")
    with experiment.start_logging() as here:
        here.log_list("loss", [2, 1])
        here.log("loss", 0)
        here.upload_file("outputs/text.txt", "text.txt")
        here.download_file("outputs/text.txt", "copy.txt")
    assert (here.get_file_names(), Path("copy.txt").stat().st_size) == (["outputs/text.txt"], 4)
    assert here.get_metrics("loss") == {"loss": [[2, 1], 0]}
    assert (here.experiment.name, here.get_status()) == ("asked", "Completed")
    with pytest.raises(ZeroDivisionError), here.child_run() as below:
        below.log("loss", 1 / 0)
    assert (below.get_status(), below.get_metrics()) == ("Failed", {})
    with pytest.raises(UsageError, match="cannot be the name of an artifact"):
        here.upload_file("../text.txt", "text.txt")


def test_a_process_without_a_run_has_an_offline_run_that_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What needs a workspace says how to give one."""
    run = Run.get_context()
    run.log("size", 1)
    run.upload_file("text.txt", "text.txt")
    assert (run.get_metrics(), run.parent, run.input_datasets) == ({}, None, {})
    with pytest.raises(AttributeError, match=r"knows no workspace.*Pipeline\(workspace=ws"):
        _ = run.experiment
    assert (type(run).__name__, run.id[:11]) == ("_OfflineRun", "OfflineRun_")
    with pytest.raises(UsageError, match="part of no run"):
        Run.get_context(allow_offline=False)
    for name, value in RunPlace(Path("elsewhere"), may_be_unseen=True).variables().items():
        monkeypatch.setenv(name, value)
    assert type(Run.get_context()).__name__ == "_OfflineRun"
    with pytest.raises(AttributeError, match="or of SDK v2 have none"):
        _ = Run.get_context().experiment
    for name, value in RunPlace.of(Path("elsewhere"), None).variables().items():
        monkeypatch.setenv(name, value)
    for ask in (Run.get_context, Workspace.from_config):
        with pytest.raises(UsageError, match=r"does not see the folder .*job_dir"):
            ask()


@pytest.mark.usefixtures("inline")
def test_a_script_finds_the_id_of_its_run_in_the_environment() -> None:
    """As in the run itself: scripts of Azure look there to see whether they run in a job."""
    Path("ids.py").write_text(IDS)
    given = {"input_type": "files", "progress": False}
    for more, name in ({}, "OfflineRun_a"), ({"AZUREML_RUN_ID": "mine"}, "mine"):
        places = {"job_dir": name[-1], "environment_variables": more}
        result = daskprs.parallel_run(["text.txt"], "ids.py", **places, **given)
        assert [*result.to_pandas()["result"]] == [name, name]
    step = ParallelRunStep("ids", config("ids.py"), [Dataset.File.from_files("text.txt")])
    run = Experiment(Workspace(root="store"), "e").submit(Pipeline(steps=[step]), progress=False)
    written = Path(run.folder, "ids/output/parallel_run_step.txt")
    assert written.read_text().split() == [f"{run.id}-ids"] * 2
    _, _, variables = Command("", None, {}, None).process("ids", PipelineFolder(run.folder))
    assert variables["AZUREML_RUN_ID"] == f"{run.id}-ids"


@pytest.mark.usefixtures("inline")
def test_a_script_asks_about_its_run() -> None:
    """Its inputs and outputs by their names, how it and its pipeline are called, and tags."""
    Path("asked.py").write_text(ASKED)
    text = Dataset.File.from_files("text.txt")
    inputs = [text.as_named_input("mounted").as_mount(), text.as_named_input("read")]
    step = ParallelRunStep("asked", config("asked.py"), inputs, OutputFileDatasetConfig("rows"))
    pipeline = Pipeline(steps=[step])
    run = Experiment(Workspace(root="store"), "e").submit(pipeline, progress=False)
    made = run.find_step_run("asked")[0]
    first = Path(made.folder, "output/parallel_run_step.txt").read_text().splitlines()[0]
    tags = {"of": "text", "size": 1}
    assert json.loads(first) == [
        *(str(Path("text.txt").absolute()), ["/text.txt"], "output"),
        *("asked", "Texts", "azureml.StepRun", "Running", tags, {}, made.get_portal_url()),
        *(run.id, run.id, "azureml.PipelineRun", "Running", {"best": 2}, {}, run.get_portal_url()),
    ]
    assert (made.get_tags(), run.tags) == (tags, {"best": 2})
    with pytest.raises(AttributeError, match=r"known are as_(?!.*(reading|record|unit))"):
        _ = text.zzzzqqqq
