"""The folder of a pipeline, as the commands for folders of jobs see it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._job.cleaning import Cleaning
from daskprs._system.file_lock import held
from daskprs.azure import _pipeline_folder as pipeline_folder
from daskprs.azure._pipeline_folder import PipelineFolder, write_record
from daskprs.azure.plugin import PLUGIN
from daskprs.errors import JobFolderError
from tests.cli import test_job_commands
from tests.cli.test_job_commands import call
from tests.job import test_cleaning
from tests.job.test_cleaning import age, clean, names

if TYPE_CHECKING:
    from pathlib import Path

work, made, root = test_job_commands.work, test_cleaning.made, test_cleaning.root


def test_the_plugin_says_what_the_folders_are_called() -> None:
    """Its module imports nothing, so that it repeats some names."""
    assert [*PLUGIN.folders] == [pipeline_folder.RECORD]
    assert PLUGIN.own_folders == pipeline_folder.OWN


def test_a_folder_with_the_model_of_a_deployment_is_that_of_a_job(tmp_path: Path) -> None:
    """It is put there before the job begins, and is no file of another's."""
    job = JobFolder(tmp_path / "job")
    job.path.mkdir(mode=0o755)
    (job.path / "model").mkdir()
    (job.path / "azureml-logs").mkdir()
    assert job.create() == ""


@pytest.mark.parametrize("command", ["status", "result", "resume", "retry-failed"])
def test_the_folder_of_a_pipeline_leads_to_those_of_its_steps(work: Path, command: str) -> None:
    """Each with how it is, and the way to go on with all."""
    folder = PipelineFolder(work / "whole")
    folder.path.mkdir()
    write_record(folder, "whole", {"prep": {"status": "Completed"}, "score": {"status": "Failed"}})
    done = call(command, "whole")
    assert done.exit_code == (0 if command == "status" else 2)
    assert f"Completed   {work}/whole/prep\n  Failed      {work}/whole/score" in done.output
    assert "whole is the folder of a pipeline, which is Failed. Its" in done.output
    assert "--resume --job-dir whole, or submit" in done.output
    write_record(folder, "whole", {"prep": {"status": "Completed"}})
    assert "--resume" not in call(command, "whole").output


def test_a_pipeline_is_watched_until_it_ends(work: Path) -> None:
    """Each change of a step is a line; the last one is the state that a program gets at once."""
    folder = PipelineFolder(work / "whole")
    folder.path.mkdir()
    words = [sys.executable, "-m", "daskprs", "status", "whole", "--watch", "--json"]
    with held(folder.lock, "the folder"):
        write_record(folder, "whole", {"prep": {"status": "Running"}})
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            lines = [watching.stdout.readline()]
            write_record(folder, "whole", {"prep": {"status": "Completed"}})
            lines.append(watching.stdout.readline())
            folder.lock.unlink()  # as if its holder had ended
            lines += watching.communicate()[0].splitlines()
    states = [json.loads(line) for line in lines]
    assert [state["status"] for state in states] == ["Running", "Running", "Completed"]
    assert [state["steps"]["prep"]["status"] for state in states[:2]] == ["Running", "Completed"]
    assert json.loads(call("status", "whole", "--json").stdout) == states[-1]
    assert states[-1]["steps"]["prep"]["folder"] == str(folder.step("prep"))


def test_the_run_of_a_pipeline_goes_or_stays_with_its_jobs(root: Path) -> None:
    """Whoever works on one of them keeps it, recorded or not; a run that has failed stays, too."""
    run = PipelineFolder(root / "whole")
    shutil.move(root / "rows", run.step("score"))
    run.outputs.mkdir()
    (run.outputs / "rows.txt").touch()

    def cleaned(*words: str, score: str = "Completed") -> str:
        steps = {"prep": {"status": "Completed"}, "score": {"status": score}}
        write_record(run, "whole", {name: steps[name] for name in steps if steps[name]["status"]})
        for folder in (run.step("score"), run.path):
            age(folder)
        done = clean("--older-than", "7d", *words)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "kept: 2 Failed." in cleaned("--dry-run", score="Failed")
    with locked(JobFolder(run.step("score"))):
        assert "kept: 1 Failed, 1 Running." in cleaned("--dry-run", score="")
    with pytest.raises(JobFolderError, match="whole is that of a pipeline itself"):
        Cleaning(run.path, 0, ["Completed"])
    removed = cleaned()
    assert names(root) == {"failed"}
    assert f"removed       {run}  pipeline of 2 steps, Completed, 10 d 0 h old, " in removed
    assert f"with its output {run.outputs}" in removed
