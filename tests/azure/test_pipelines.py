"""Pipelines in the shapes of published ones, run from end to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from daskprs._cli import main
from daskprs.azure import PipelineResult, run_pipeline
from daskprs.azure._stand_ins.step_run import metrics_in
from daskprs.errors import JobFolderError, PipelineFailed
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

PREPARE = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: prepare_numbers
display_name: Prepare numbers
version: 1
inputs:
  source: {type: uri_file}
  most: {type: integer, default: 9}
  label: {type: string, optional: true}
outputs:
  files: {type: uri_folder}
code: ./
environment:
  image: some/image
  conda_file: ./conda.yml
command: >-
  python prepare.py
  --source ${{inputs.source}} --most ${{inputs.most}}
  $[[--label ${{inputs.label}}]]
  --files ${{outputs.files}}
"""
PREPARE_PY = """\
import argparse
import os

import mltable
from azure.storage.blob import BlobServiceClient
from azureml.core import Model, Run

parser = argparse.ArgumentParser()
parser.add_argument("--source")
parser.add_argument("--most", type=int)
parser.add_argument("--label", default="none")
parser.add_argument("--files")
arguments = parser.parse_args()
print("preparing, label", arguments.label)
account = BlobServiceClient.from_connection_string("AccountName=a;AccountKey=b==")
account.get_blob_client("workspaceblobstore", "weights/ten.txt").upload_blob(b"10")
Run.get_context().log_row("prepared", label=arguments.label)
with open(arguments.source) as lines:
    for number, line in enumerate(lines):
        if number < arguments.most:
            with open(os.path.join(arguments.files, f"{number:02}.txt"), "w") as file:
                file.write(line)
with open("outputs/done.txt", "w") as file:
    file.write(os.environ["AZURE_ML_INPUT_most"])
"""
SCORE_PY = """\
import argparse
import logging
import os

from azure.identity import DefaultAzureCredential
from azure.storage.blob import ContainerClient
from azureml.core import Run


def init():
    global arguments, weight
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--words")
    arguments, others = parser.parse_known_args()
    assert "--resource_monitor_interva" in others
    assert "--allowed_failed_percent" in others
    with open(os.path.join(arguments.model, "weight.txt")) as file:
        weight = int(file.read())
    url, credential = "https://a.blob.core.windows.net", DefaultAzureCredential()
    store = ContainerClient(url, "workspaceblobstore", credential=credential)
    (blob,) = store.list_blobs(name_starts_with="weights/")
    Run.get_context().log("weight", int(store.download_blob(blob).readall()))


def run(mini_batch):
    rows = []
    for path in mini_batch:
        with open(path) as file:
            rows.append(f"{os.path.basename(path)}: {weight * int(file.read())}")
    logging.getLogger(__name__).info("%s %s", arguments.words, os.environ["WHO"])
    return rows
"""
PIPELINE = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
display_name: score-numbers
experiment_name: numbers
tags: {owner: somebody}
settings: {default_compute: azureml:cpu-cluster}
inputs:
  nodes: 2
jobs:
  prepare:
    type: command
    component: ./prepare/prepare.yml
    compute: azureml:cpu-cluster
    inputs:
      source: {type: uri_file, path: ./numbers.txt}
      most: 7
  score:
    type: parallel
    compute: azureml:cpu-cluster
    inputs:
      files: {type: uri_folder, path: "${{parent.jobs.prepare.outputs.files}}", mode: ro_mount}
      model: {type: uri_folder, path: ./model, mode: download}
      words: "two words"
    outputs:
      rows:
        type: uri_file
        path: azureml://datastores/${{default_datastore}}/paths/${{name}}/aggregated_returns.csv
        mode: rw_mount
    mini_batch_size: "3"
    resources: {instance_count: "${{parent.inputs.nodes}}"}
    mini_batch_error_threshold: 5
    logging_level: DEBUG
    input_data: ${{inputs.files}}
    max_concurrency_per_instance: 2
    retry_settings: {max_retries: 2, timeout: 60}
    environment_variables: {WHO: me}
    task:
      type: run_function
      code: ./score
      entry_script: score.py
      environment: {image: some/image, conda_file: ./conda.yml}
      program_arguments: >-
        --model ${{inputs.model}} --words ${{inputs.words}}
        --allowed_failed_percent 30 --task_overhead_timeout 1200
        --resource_monitor_interva 20
      append_row_to: ${{outputs.rows}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder; what is started there finds what this process finds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return tmp_path


def write(**files: str) -> None:
    """Write files by their paths, in which two underscores stand for a slash and one for a dot."""
    for name, text in files.items():
        path = Path(name.replace("__", "/").replace("_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(text: str, **options: Any) -> PipelineResult:
    """Run a pipeline with this text, and show nothing."""
    Path("pipeline.yml").write_text(text)
    return run_pipeline("pipeline.yml", **{"show": lambda _: None, **options})


def is_gone(pid: int) -> bool:
    """Say whether a process has ended; it may be waiting to be asked for its exit code."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def numbers() -> None:
    """Write a pipeline that prepares data by a component, and scores it with a model."""
    write(
        prepare__prepare_yml=PREPARE,
        prepare__prepare_py=PREPARE_PY,
        score__score_py=SCORE_PY,
        model__weight_txt="10",
        numbers_txt="".join(f"{n}\n" for n in range(1, 10)),
        pipeline_yml=PIPELINE,
    )


@pytest.mark.usefixtures("numbers")
def test_a_preparing_component_and_a_parallel_step_run_by_one_command(home: Path) -> None:
    """Nothing but the command is needed; logs and outputs are where each step's folder is."""
    command = [sys.executable, "-m", "daskprs", "run", "pipeline.yml", "--job-dir", "job"]
    command += ["--datastore", "workspaceblobstore=store", "--set", "jobs.score.mini_batch_size=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = "".join(f"{n:02}.txt: {10 * (n + 1)}\n" for n in range(7))
    assert (home / "store/job.score/aggregated_returns.csv").read_text() == rows
    assert (home / "job/prepare/outputs/done.txt").read_text() == "7"
    assert "label none" in (home / "job/prepare/user_logs/std_log.txt").read_text()
    agent = next((home / "job/score/logs/user/stdout").rglob("*.txt"))
    assert "two words me" in agent.read_text()
    assert "[prepare] preparing, label none\n" in done.stderr
    assert "warning: jobs.score.task.program_arguments: --resource_monitor_interva" in done.stderr
    assert done.stderr.count("settings.default_compute, jobs.prepare.compute, jobs.score") == 1
    assert "<daskprs pipeline Completed>" in done.stdout
    assert f"    rows: {home}/store/job.score/aggregated_returns.csv\n" in done.stdout
    assert not (home / "prepare/outputs").exists()
    assert metrics_in(home / "job/prepare") == {"prepared": {"label": "none"}}
    assert {*metrics_in(home / "job/score")["weight"]} == {10}


MODELS = """\
import os

import pandas as pd
from azureml_user.parallel_run import EntryScript


def run(mini_batch, mini_batch_context):
    keys = mini_batch_context.partition_key_value
    place = os.path.join(os.environ["MODELS"], *map(str, keys.values()))
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "model.txt"), "w") as file:
        file.write(f"{len(mini_batch)} {mini_batch['n'].sum()}")
    assert EntryScript().output_dir == os.environ["AZUREML_BI_OUTPUT_PATH"]
    return pd.DataFrame()
"""
BY_KEYS = """\
jobs:
  train:
    type: parallel
    inputs:
      table: {type: mltable, path: ./table, mode: direct}
    outputs:
      models: {type: uri_folder}
    input_data: ${{inputs.table}}
    mini_batch_size: 10kb
    partition_keys: [store, brand]
    environment_variables: {MODELS: ./models}
    task: {type: run_function, code: ., entry_script: train.py}
"""


@pytest.mark.long
def test_what_is_written_by_key_needs_no_rows(home: Path) -> None:
    """Empty frames are returned with summary_only, and a model lies in the folder of its keys."""
    write(
        train_py=MODELS,
        table__MLTable="paths: [{pattern: ./*.csv}]\ntransformations: [{read_delimited: {}}]\n",
        table__1_csv="store,brand,n\n1,a,1\n2,a,2\n1,b,3\n",
        table__2_csv="store,brand,n\n1,a,4\n",
    )
    models = home / "out"
    text = BY_KEYS.replace("./models", str(models))
    result = run(text, outputs={"train.models": models}, job_dir="job")
    found = {str(one.relative_to(models)): one.read_text() for one in models.rglob("*.txt")}
    assert found == {"1/a/model.txt": "2 5", "1/b/model.txt": "1 3", "2/a/model.txt": "1 2"}
    assert result.steps["train"].outputs == {"models": models}


IMAGES = """\
settings: {environment: {image: some/image}}
jobs:
  fetch:
    command: >-
      mkdir ${{outputs.images}}/raw;
      for i in 1 2 3; do echo $i > ${{outputs.images}}/raw/$i.png; done;
      echo "paths:" >> ${{outputs.images}}/MLTable;
      echo "  - file: ./raw" >> ${{outputs.images}}/MLTable;
    outputs:
      images: {type: mltable, mode: rw_mount}
  identify:
    type: parallel
    inputs:
      images: {type: mltable, path: "${{parent.jobs.fetch.outputs.images}}", mode: eval_mount}
    outputs:
      rows: {type: uri_folder}
    mini_batch_size: "2"
    input_data: ${{inputs.images}}
    task: {code: ./src, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
  view:
    command: cat ${{inputs.rows}}/parallel_run_step.txt
    inputs:
      rows: ${{parent.jobs.identify.outputs.rows}}
"""


@pytest.mark.long
def test_an_mltable_of_files_that_a_command_wrote_is_cut_by_count() -> None:
    """It names a folder as a file, as published ones do; the rows are shown by the next step."""
    write(src__entry_py="def run(files):\n    return [len(files), *(f[-5:] for f in files)]\n")
    lines: list[str] = []
    run(IMAGES, show=lines.append)
    shown = [line.removeprefix("[view] ") for line in lines if line.startswith("[view] ")]
    assert shown == ["2", "1.png", "2.png", "1", "3.png"]


def test_independent_steps_run_side_by_side() -> None:
    """Each of two waits for what the other writes."""
    wait = "for i in $(seq 600); do test -e {0} && exit 0; sleep 0.05; done; exit 1"
    steps = {"a": "b", "b": "a"}
    text = "jobs:\n"
    for one, other in steps.items():
        met = wait.format(f"{Path.cwd()}/{other}")
        text += f"  {one}:\n    command: touch {Path.cwd()}/{one}; {met}\n"
    assert run(text).status == "Completed"


FAILS = """\
jobs:
  good: {command: "echo once >> $PWD_OF_TEST/runs; echo 1 > ${{outputs.o}}/1.txt", outputs: {o: }}
  bad:
    command: echo about to fail; test -e $PWD_OF_TEST/mended || exit 7
    inputs: {i: "${{parent.jobs.good.outputs.o}}"}
  after:
    type: parallel
    inputs: {i: {type: uri_folder, path: "${{parent.jobs.good.outputs.o}}"}, b: {path: ./wait}}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.i}}
    task: {code: ./src, entry_script: after.py, append_row_to: "${{outputs.rows}}"}
  last:
    command: echo ${{inputs.i}}
    inputs: {i: "${{parent.jobs.bad.outputs.o}}"}
"""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a pipeline with a step that fails until a file is there."""
    monkeypatch.setenv("PWD_OF_TEST", str(Path.cwd()))
    write(src__after_py="def run(mini_batch):\n    return ['row'] * len(mini_batch)\n", wait="")
    return FAILS.replace("|| exit 7\n", "|| exit 7\n    outputs: {o: }\n")


@pytest.mark.parametrize("quiet", mostly_long([True, False], suite=[False]))
def test_a_command_shows_the_output_of_a_failed_step_once(home: Path, *, quiet: bool) -> None:
    """Either while the step runs, or in the message at the end."""
    del home
    write(pipeline_yml="jobs: {bad: {command: echo about to fail; exit 7}}\n")
    words = [sys.executable, "-m", "daskprs", "run", "pipeline.yml", *["--quiet"] * quiet]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 42
    assert done.stderr.count("about to fail") == 1
    assert "The step 'bad' failed: it ended with exit code 7." in done.stderr


def test_a_failure_is_told_and_a_resume_keeps_what_is_completed(failing: str, home: Path) -> None:
    """The message has the exit code and the end of the log; what needs the step is not started."""
    lines: list[str] = []
    with pytest.raises(PipelineFailed) as caught:
        run(failing + "settings: {continue_on_step_failure: true}\n", job_dir="job")
    told, result = str(caught.value), caught.value.result
    assert "The step 'bad' failed: it ended with exit code 7." in told
    assert "\nabout to fail\n" in told
    assert f"To go on: resume=True, job_dir='{home}/job'" in told
    assert result is not None
    statuses = {name: step.status for name, step in result.steps.items()}
    expected = {"good": "Completed", "bad": "Failed", "after": "Completed", "last": "NotStarted"}
    assert statuses == expected
    with pytest.raises(JobFolderError, match="holds a run of a pipeline already"):
        run(failing, job_dir="job")
    (home / "mended").touch()
    again = run(failing, job_dir="job", resume=True, show=lines.append)
    assert {step.status for step in again.steps.values()} == {"Completed"}
    assert (home / "runs").read_text() == "once\n"
    assert [line for line in lines if "kept" in line] == [
        "good: kept, it is Completed",
        "after: kept, it is Completed",
    ]
    assert again.steps["after"].outputs["rows"].read_text() == "row\n"


@pytest.mark.usefixtures("numbers")
def test_an_output_that_is_there_is_refused_in_the_words_of_the_command(home: Path) -> None:
    """Before any step is started."""
    (home / "rows.csv").write_text("mine")
    done = CliRunner().invoke(main, ["run", "pipeline.yml", "--output", "score.rows=rows.csv"])
    assert done.exit_code == 2
    assert f"jobs.score: the output file {home}/rows.csv exists. Replace it by --overwrite" in (
        done.stderr
    )
    assert "another --output or append_row_to" in done.stderr
    assert not (home / "daskprs-jobs").exists()


def write_script_that_fails_on_one_file_of_two() -> None:
    """Write the data, too."""
    script = "def run(files):\n    assert '2.txt' not in files[0]\n    return ['old']\n"
    write(src__s_py=script, data__1_txt="", data__2_txt="")


def mend_script() -> None:
    """Let it take both files, and say that it is another one."""
    write(src__s_py="def run(files):\n    return ['new']\n")


@pytest.mark.long
def test_a_script_that_was_mended_goes_on_where_it_was_if_that_is_accepted() -> None:
    """Else the job of the step refuses it."""
    write_script_that_fails_on_one_file_of_two()
    text = """\
jobs:
  a:
    type: parallel
    inputs: {d: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.d}}
    mini_batch_error_threshold: 0
    max_concurrency_per_instance: 1  # so that the other file is committed before the failure
    task: {code: ./src, entry_script: s.py, append_row_to: "${{outputs.rows}}"}
"""
    with pytest.raises(PipelineFailed):
        run(text, job_dir="job")
    shown = CliRunner().invoke(main, ["status", "job/a"], prog_name="daskprs").stdout
    again = f"run the pipeline again with --resume --job-dir {Path.cwd()}/job"
    assert f"to go on      {again}\n" in shown
    mend_script()
    with pytest.raises(PipelineFailed, match=r"s\.py has changed") as refused:
        run(text, job_dir="job", resume=True)
    assert "AssertionError" not in str(refused.value), "the log of the run before"
    result = run(text, job_dir="job", resume=True, accept_changes=["script"])
    rows = result.steps["a"].outputs["rows"].read_text().split()
    assert (len(rows), rows[1]) == (2, "new")


HALF = """\
type: pipeline
jobs:
  halve:
    type: parallel
    inputs: {rows: {type: uri_folder, path: rows}}
    outputs: {kept: {type: uri_file}}
    input_data: ${{inputs.rows}}
    mini_batch_size: "1"
    task:
      type: run_function
      entry_script: halve.py
      program_arguments: --allowed_failed_percent 60 --run_max_try 1
      append_row_to: ${{outputs.kept}}
"""


@pytest.mark.long
def test_a_completed_step_says_how_much_of_it_failed() -> None:
    """Azure's files allow much, so that nothing else would say it."""
    write(
        halve_py="def run(rows, context):\n    assert context.minibatch_index\n    return rows\n",
        rows__one_txt="1",
        rows__two_txt="2",
    )
    lines: list[str] = []
    result = run(HALF, show=lines.append)
    assert result.steps["halve"].failed_mini_batches == 1
    (ended,) = (line for line in lines if line.startswith("halve: Completed"))
    assert ended.endswith(" s, 1 mini-batch failed")
    assert re.search(r"  halve +Completed +[\d.]+ s, 1 mini-batch failed\n", repr(result))


@pytest.mark.long
def test_what_read_an_output_that_a_retry_has_changed_runs_again_at_a_resume() -> None:
    """Else the pipeline is Completed with the sum of an output that is no more."""
    write_script_that_fails_on_one_file_of_two()
    text = """\
outputs: {count: {type: uri_file}}
jobs:
  a:
    type: parallel
    inputs: {d: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.d}}
    mini_batch_size: "1"
    retry_settings: {max_retries: 0}
    task: {code: ./src, entry_script: s.py, append_row_to: "${{outputs.rows}}"}
  b:
    command: wc -l < ${{inputs.rows}} > ${{outputs.count}}
    inputs: {rows: "${{parent.jobs.a.outputs.rows}}"}
    outputs: {count: "${{parent.outputs.count}}"}
"""
    assert run(text, job_dir="job").outputs["count"].read_text().strip() == "1"
    mend_script()
    retried = CliRunner().invoke(main, ["retry-failed", "job/a"], prog_name="daskprs")
    assert retried.exit_code == 0, retried.output
    lines: list[str] = []
    resumed = run(text, job_dir="job", resume=True, show=lines.append)
    assert resumed.outputs["count"].read_text().strip() == "2"
    assert "b: was Completed, but what it read has changed since" in lines
    lines.clear()
    run(text, job_dir="job", resume=True, show=lines.append)
    assert lines == ["a: kept, it is Completed", "b: kept, it is Completed"]


def test_a_step_that_was_changed_is_run_again_with_what_needs_it(failing: str, home: Path) -> None:
    """What does not need it is kept."""
    (home / "mended").touch()
    run(failing, job_dir="job")
    lines: list[str] = []
    changed = failing.replace("echo about to fail", "echo all is well")
    changed += "settings: {force_rerun: true}\n"  # else an equal output is as good as the old one
    run(changed, job_dir="job", resume=True, show=lines.append)
    started = [line.partition(":")[0] for line in lines if line.endswith(": started")]
    assert started == ["bad", "last"]


@pytest.mark.long
def test_what_a_step_left_when_it_failed_is_no_output_of_the_next_try(home: Path) -> None:
    """Nor what it wrote before it was changed; a folder of the user's is left as it is."""
    write(src__rows_py="def run(mini_batch):\n    return ['row'] * len(mini_batch)\n")
    text = """\
outputs: {rows: {type: uri_file}}
jobs:
  write:
    command: echo $$ > ${{outputs.o}}/$$.txt; touch ${{outputs.mine}}/$$ outputs/$$; test -e HOME/on
    outputs: {o: {type: uri_folder}, mine: {type: uri_folder, path: ./mine}}
  score:
    type: parallel
    inputs: {i: "${{parent.jobs.write.outputs.o}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
    input_data: ${{inputs.i}}
    task: {code: ./src, entry_script: rows.py, append_row_to: "${{outputs.rows}}"}
""".replace("HOME", str(home))
    with pytest.raises(PipelineFailed):
        run(text, job_dir="job")
    (home / "on").touch()
    result = run(text, job_dir="job", resume=True)
    assert result.outputs["rows"].read_text() == "row\n"
    assert [len(list((home / place).iterdir())) for place in ("job/write/outputs", "mine")] == [
        1,
        2,
    ]
    (home / "src/rows.py").write_text(
        "def run(mini_batch):\n    return ['new'] * len(mini_batch)\n"
    )
    changed = text.replace("inputs.i}}\n    task", 'inputs.i}}\n    mini_batch_size: "2"\n    task')
    result = run(changed, job_dir="job", resume=True)
    assert result.outputs["rows"].read_text() == "new\n"


def test_a_result_that_is_reused_does_not_mix_with_what_was_there() -> None:
    """A Completed step is changed into what another run has done."""
    text = """\
jobs:
  write:
    command: echo > ${{outputs.o}}/NAME
    outputs: {o: {type: uri_folder, path: "azureml://datastores/${{default_datastore}}/paths/o"}}
"""
    for name in ("a", "b"):
        run(text.replace("NAME", name), job_dir=name)
    result = run(text.replace("NAME", "b"), job_dir="a", resume=True)
    written = result.steps["write"].outputs["o"]
    assert result.steps["write"].log.read_text().startswith("Not run: ")
    assert [path.name for path in written.iterdir()] == ["b"]


def test_steps_may_meet_at_a_place_that_neither_names_as_the_others() -> None:
    """What lies in an output waits for its step; a folder of two steps keeps what each writes."""
    text = """\
outputs: {notes: {path: "STORE/${{name}}"}}
jobs:
  third: {command: "echo > ${{outputs.all}}/third", outputs: {all: {path: STORE/all}}}
  second:
    command: cat ${{inputs.note}} > ${{outputs.all}}/second
    inputs: {note: {type: uri_file, path: "STORE/${{name}}/first"}}
    outputs: {all: {path: STORE/all}}
  first:
    command: echo one > ${{inputs.notes}}/first
    inputs: {notes: {type: uri_folder, path: "STORE/${{name}}", mode: rw_mount}}
    outputs: {notes: "${{parent.outputs.notes}}"}
"""
    result = run(text.replace("STORE", "azureml://datastores/blobs/paths/notes"))
    place = result.steps["second"].outputs["all"]
    assert sorted(path.name for path in place.iterdir()) == ["second", "third"]
    assert (place / "second").read_text() == "one\n"


def test_all_that_a_command_leaves_may_be_what_the_next_one_reads() -> None:
    """A run that had the same output as a folder of its own has not done the same."""
    text = """\
jobs:
  leave: {command: "echo 1 > outputs/x", outputs: {artifacts: SAID}}
  read: {command: "ls -R ${{inputs.i}}", inputs: {i: "${{parent.jobs.leave.outputs.artifacts}}"}}
"""
    result = run(text.replace("SAID", "{type: uri_folder}"))
    assert not list(result.steps["leave"].outputs["artifacts"].iterdir())
    for _ in range(2):
        result = run(text.replace("SAID", ""))
        assert (result.steps["leave"].outputs["artifacts"] / "outputs/x").read_text() == "1\n"
    assert result.steps["leave"].log.read_text().startswith("Not run: ")


def test_a_failure_ends_what_runs_unless_the_pipeline_goes_on() -> None:
    """Also a process that a command has left in the background."""
    text = """\
jobs:
  long: {command: "sleep 300 & echo $! > $PWD_OF_TEST; sleep 300"}
  bad: {command: "while ! test -s $PWD_OF_TEST; do sleep 0.05; done; exit 1"}
"""
    place = Path.cwd() / "pid"
    with pytest.raises(PipelineFailed) as caught:
        run(text.replace("$PWD_OF_TEST", str(place)))
    assert caught.value.result is not None
    assert caught.value.result.steps["long"].status == "Canceled"
    assert poll_for(lambda: is_gone(int(place.read_text())))


def test_a_command_that_takes_too_long_is_ended() -> None:
    """By the time limit of the file."""
    with pytest.raises(PipelineFailed, match=r"it took longer than its limits\.timeout of 0\.2 s"):
        run("jobs: {a: {command: sleep 300, limits: {timeout: 0.2}}}")


def test_a_command_that_is_too_long_for_the_system_fails_its_step_alone() -> None:
    """In words, and the record of the run names it."""
    text = 'jobs: {a: {command: "echo ${{inputs.i}}", inputs: {i: LONG}}, b: {command: "true"}}'
    with pytest.raises(
        PipelineFailed, match=r"The step 'a' failed: .* too long for the system"
    ) as it:
        run("settings: {continue_on_step_failure: true}\n" + text.replace("LONG", "x" * 200_000))
    assert it.value.result is not None
    assert it.value.result.steps["b"].status == "Completed"


def test_a_command_that_removes_the_folder_of_its_output_is_told_so() -> None:
    """In Azure, the folder is a mount, which stays."""
    text = 'jobs: {a: {command: "rm -rf ${{outputs.o}}; echo > ${{outputs.o}}/x", outputs: {o: }}}'
    with pytest.raises(PipelineFailed, match=r"removed the folder of its output 'o'") as caught:
        run(text)
    assert "write: rm -rf ${{outputs.o}}/*" in str(caught.value)


def test_an_output_that_was_not_written_is_told_to_who_needs_it() -> None:
    """By name of both steps, and the place."""
    text = """\
jobs:
  a: {command: "true", outputs: {o: {type: uri_file}}}
  b: {command: "cat ${{inputs.i}}", inputs: {i: "${{parent.jobs.a.outputs.o}}"}}
"""
    with pytest.raises(PipelineFailed) as caught:
        run(text)
    assert "The step 'b' failed: its input 'i' is not there: the step 'a' has not written" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [
        (signal.SIGINT, 130, "Canceled: it was interrupted"),
        (signal.SIGTERM, 75, "Interrupted: SIGTERM has asked it to end"),
    ],
)
def test_a_signal_ends_all_steps(home: Path, number: int, code: int, status: str) -> None:
    """Nothing that they have started goes on."""
    text = "jobs: {a: {command: echo $$ > %s/pid; sleep 300}, b: {command: sleep 300}}"
    (home / "pipeline.yml").write_text(text % home)
    command = [sys.executable, "-m", "daskprs", "run", "pipeline.yml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert poll_for(lambda: (home / "pid").exists() and (home / "pid").read_text())
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"The pipeline is {status}. What is Completed is kept." in told
    assert "run pipeline.yml --resume --job-dir " in told
    assert poll_for(lambda: is_gone(int((home / "pid").read_text())))


@pytest.mark.long
def test_a_pipeline_whose_lines_nobody_reads_goes_on(home: Path) -> None:
    """A terminal may be closed, and ``head`` may have seen enough."""
    text = f"jobs: {{a: {{command: echo 1; echo 2; touch {home}/done}}}}"
    (home / "pipeline.yml").write_text(text)
    read, write_ = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "daskprs", "run", "pipeline.yml"]
    done = subprocess.run(command, stderr=write_, stdout=subprocess.PIPE, check=False, timeout=60)
    os.close(write_)
    assert (done.returncode, (home / "done").exists()) == (0, True)
    assert b"<daskprs pipeline Completed>" in done.stdout


def test_nothing_outlives_a_pipeline_that_is_killed(home: Path) -> None:
    """Neither what a command has started, nor what that has left in the background."""
    text = "jobs: {a: {command: 'setsid sleep 300 & echo $! > %s/pid; sleep 300'}}"
    (home / "pipeline.yml").write_text(text % home)
    command = [sys.executable, "-m", "daskprs", "run", "pipeline.yml", "--quiet"]
    with subprocess.Popen(command) as process:
        assert poll_for(lambda: (home / "pid").exists() and (home / "pid").read_text())
        process.kill()
    assert poll_for(lambda: is_gone(int((home / "pid").read_text())))
