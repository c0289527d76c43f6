"""`Pipeline` and `Experiment`: steps in the order in which they need each other."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import daskprs.azure.v1 as azure_v1
from daskprs.azure._pipeline_status import PipelineOnDisk
from daskprs.azure.v1 import (
    CondaDependencies,
    Dataset,
    Environment,
    Experiment,
    Model,
    OutputFileDatasetConfig,
    ParallelRunConfig,
    ParallelRunStep,
    Pipeline,
    PipelineData,
    PipelineParameter,
    PythonScriptStep,
    RunConfiguration,
    RunDetails,
    ScriptRunConfig,
    StepSequence,
    Workspace,
)
from daskprs.errors import (
    DaskprsError,
    OptionError,
    OutputError,
    ParallelRunFailed,
    ScriptError,
    UsageError,
)
from tests.support.cases import mostly_long

SPLIT = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
for flag in ("--text", "--lines", "--style"):
    parser.add_argument(flag)
words = parser.parse_args()
for number, line in enumerate(open(words.text)):
    path = pathlib.Path(words.lines, f"{number}.csv")
    path.write_text("word,style\\n" + line.strip() + "," + words.style + os.environ.get("END", ""))
"""
STYLE = """
def run(mini_batch):
    if isinstance(mini_batch, list):
        return [open(path).read().splitlines()[1] for path in mini_batch]
    return mini_batch
"""
JOIN = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--lines")
parser.add_argument("--whole")
words = parser.parse_args()
text = "".join(path.read_text() for path in sorted(pathlib.Path(words.lines).iterdir()))
pathlib.Path(words.whole, "whole.txt").write_text(text)
print("joined")
"""


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands: a folder of code and data beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    for name, text in [("split.py", SPLIT), ("style.py", STYLE), ("join.py", JOIN)]:
        (tmp_path / "code" / name).write_text(text)
    (tmp_path / "text.txt").write_text("one\ntwo\nthree\n")


def config(**more: Any) -> ParallelRunConfig:
    """Return a config of the step in the middle."""
    given = {
        "environment": Environment("e"),
        "entry_script": "style.py",
        "source_directory": "code",
        "error_threshold": -1,
        "output_action": "append_row",
        "compute_target": "cpu",
        "node_count": PipelineParameter("nodes", 1),
        "process_count_per_node": 1,
        "append_row_file_name": "styled.txt",
    }
    return ParallelRunConfig(**{**given, **more})


def three_steps(store: Any, *, as_table: bool) -> tuple[Pipeline, OutputFileDatasetConfig]:
    """Return a pipeline that is named by its last step alone, and its output."""
    lines = OutputFileDatasetConfig("lines", destination=(store, "lines/{run-id}"))
    styled, whole = OutputFileDatasetConfig("styled"), OutputFileDatasetConfig("whole")
    runconfig = RunConfiguration(conda_dependencies=CondaDependencies.create(["ffmpeg"]))
    runconfig.environment.environment_variables["END"] = "!"
    text = Dataset.File.from_files("text.txt")
    style = PipelineParameter("style", "plain")
    PythonScriptStep(
        name="split text",
        script_name="split.py",
        arguments=["--text", text.as_mount(), "--lines", lines, "--style", style],
        compute_target="cpu",
        runconfig=runconfig,
        source_directory="code",
    )
    table = lines.read_delimited_files() if as_table else lines
    ParallelRunStep("style-it", config(), [table], styled)
    last = PythonScriptStep(
        "join.py",
        arguments=["--lines", styled.as_input(), "--whole", whole],
        source_directory="code",
    )
    return Pipeline(Workspace(root="store"), steps=[last]), whole


@pytest.mark.parametrize("as_table", mostly_long([True, False], suite=[True]))
def test_a_pipeline_of_the_last_step_has_all_that_it_needs(
    capsys: pytest.CaptureFixture[str], *, as_table: bool
) -> None:
    """An output is files, or a table if it was said how it is read."""
    store = Workspace(root="store").get_default_datastore()
    pipeline, whole = three_steps(store, as_table=as_table)
    assert [step.name for step in pipeline.steps] == ["split text", "style-it", "join.py"]
    assert pipeline.validate() == []
    experiment = Experiment(pipeline.workspace, "styles")
    run = experiment.submit(pipeline, progress=False)
    assert RunDetails(run).show() is run
    capsys.readouterr()
    assert run.wait_for_completion(show_output=True) == run.get_status() == "Finished"
    assert capsys.readouterr().out == "[join.py] joined\n"  # a parallel step's log is no output
    assert [one.name for one in run.get_children()] == ["join.py", "style-it", "split text"]
    between = " " if as_table else ","
    text = "".join(f"{word}{between}plain!\n" for word in ("one", "two", "three"))
    assert whole.place is not None
    assert (whole.place / "whole.txt").read_text() == text
    shown = repr(run).splitlines()
    assert (shown[0], shown[-3]) == (f"{run.id}: Finished", "  join.py: Finished")
    assert shown[-2] == f"    whole: {whole.place}"
    joined = run.find_step_run("join.py")[0]
    assert [one.folder.name for one in run.get_steps()] == ["split-text", "style-it", "join.py"]
    log = joined.folder / "azureml-logs" / "70_driver_log.txt"
    assert log.read_text() == "joined\n"
    assert [one["dataset"].to_path() for one in joined.get_details()["outputDatasets"]] == [
        ["/whole.txt"]
    ]

    second = experiment.submit(pipeline, progress=False, pipeline_parameters={"style": "bold"})
    assert second.find_step_run("join.py")[0].get_output_data("whole").download("here") == 1
    first = run.find_step_run("join.py")[0].get_output_data("whole")
    assert first.download("here", overwrite=True) == 1
    assert "bold" in Path("here", "dataset", second.id, "whole", "whole.txt").read_text()
    assert "plain" in Path("here", first.path_on_datastore, "whole.txt").read_text()
    with pytest.raises(OptionError, match="did you mean 'style'"):
        experiment.submit(pipeline, pipeline_parameters={"stile": "bold"})


ASKING = """
from pathlib import Path
import numpy as np
from azureml.core import Dataset, Model, Workspace
from azureml.core.run import Run

def init():
    global run_of_step
    run_of_step = Run.get_context(allow_offline=False)

def run(mini_batch):
    for path in mini_batch:
        run_of_step.log("size", np.int64(len(Path(path).read_text())))
        run_of_step.upload_file("copies/" + Path(path).name, path)
    model = run_of_step.register_model("m", model_path="copies/text.txt", tags={"of": "text"})
    experiment = run_of_step.experiment
    known = Dataset.get_by_name(Workspace.from_config(), "words").name
    print(run_of_step.id)
    return [f"{experiment.name} {known} {Path(Model.get_model_path('m')).read_text()[:3]}"]
"""
TELLING = """
import sys
from azureml.core import Run
run = Run.get_context()
words = run.input_datasets["words"].to_pandas_dataframe()
with open(run.input_datasets["files"]) as file, run:
    run.parent.log_row("words", rows=len(words), lines=len(file.readlines()), told=sys.argv[1])
"""


@pytest.mark.long
def test_scripts_ask_about_their_run_and_tell_it() -> None:
    """With their imports as they are: by ``azureml``, in agents and in processes of their own."""
    ws = Workspace(root="store")
    Path("words.csv").write_text("word\none\ntwo\n")
    words = Dataset.Tabular.from_delimited_files("words.csv").register(ws, "words")
    text = Dataset.File.from_files("text.txt")
    Path("code/asking.py").write_text(ASKING)
    Path("code/telling.py").write_text(TELLING)
    asked = PipelineData("asked", ws.get_default_datastore())
    asked_dataset = asked.as_dataset().register(name="all that was asked", create_new_version=True)
    asking = ParallelRunStep("asking", config(entry_script="asking.py"), [text], asked_dataset)
    named = words.as_named_input("words")
    telling = PythonScriptStep(
        "telling.py",
        arguments=[named, asked],
        inputs=[named, text.as_named_input("files").as_mount(), asked_dataset],
        source_directory="code",
    )
    experiment = Experiment(ws, "asked")
    run = experiment.submit(Pipeline(ws, [telling, asking]), progress=False)
    step = run.find_step_run("asking")[0]
    assert step.get_metrics() == {"size": 14}
    printed = (step.folder / "logs/user/stdout/0/process000.stdout.txt").read_text()
    assert f"{run.id}-asking\n" in printed
    assert (step.folder / "artifacts/copies/text.txt").read_text() == "one\ntwo\nthree\n"
    assert Model(ws, "m", tags=["of"]).path.read_text() == "one\ntwo\nthree\n"
    assert run.get_metrics() == {"words": {"rows": 2, "lines": 3, "told": "words"}}
    assert Path("store/azureml", step.id, "asked/styled.txt").read_text() == "asked words one\n"

    answers = Dataset.get_by_name(Workspace(root="store"), "all that was asked")
    assert answers.download("answers") == [str(Path("answers/styled.txt").absolute())]


def test_a_named_input_may_have_more_paths_than_a_variable_of_the_environment_holds() -> None:
    """A table that is many files."""
    table = Dataset.Tabular.from_delimited_files(["text.txt"] * 9000, validate=False)
    Path("code/count.py").write_text(
        "from azureml.core import Run\nprint(len(Run.get_context().input_datasets['t'].data))\n"
    )
    given = [table.as_named_input("t")]
    PythonScriptStep("count.py", inputs=given, source_directory="code").run(job_dir="job")
    assert Path("job/azureml-logs/70_driver_log.txt").read_text() == "9000\n"


def test_what_would_need_a_service_can_be_imported_and_says_what_to_do_instead() -> None:
    """Scripts look for what they have published before they publish."""
    assert azure_v1.PublishedPipeline.list(Workspace(root="store")) == []
    step = ParallelRunStep("same", config(), [Dataset.File.from_files("code")])
    for refused in (
        Pipeline(steps=[step]).publish,
        azure_v1.PublishedPipeline.get,
        azure_v1.Schedule.create,
        azure_v1.InteractiveLoginAuthentication(force=True).get_authentication_header,
    ):
        with pytest.raises(UsageError, match="no endpoint"):
            refused()
    assert all(hasattr(azure_v1, name) for name in azure_v1.__all__)


def test_the_log_of_the_driver_is_where_azure_has_it() -> None:
    """Of a parallel step it is the log of the job's driver."""
    step = ParallelRunStep("style-it", config(), [Dataset.File.from_files("code")])
    result = step.run(progress=False)
    log = result.job_dir / "azureml-logs" / "70_driver_log.txt"
    assert log.read_text() == (result.logs_dir / "sys" / "master_role.txt").read_text()
    assert "Completed" in log.read_text()


def test_a_pipeline_reuses_what_its_steps_have_done_unless_it_is_told_not_to() -> None:
    """Each step says whether it did, and what was logged when the result was made."""
    Path("code/style.py").write_text(
        "from azureml.core import Run\n"
        "def run(paths): Run.get_context().log('files', len(paths)); return paths\n"
    )
    step = ParallelRunStep(
        "style-it", config(), [Dataset.File.from_files("code")], PipelineData("styled")
    )
    pipeline = Pipeline(steps=[[step]])
    runs = [
        next(pipeline.submit("e", progress=False, **more).get_steps())
        for more in ({}, {}, {"regenerate_outputs": True}, {"pipeline_parameters": {"nodes": 2}})
    ]
    assert [one.is_reused for one in runs] == [False, True, False, True]
    assert [one.get_metrics() for one in runs] == [{"files": 3}] * 4


def test_a_script_that_fails_ends_the_pipeline_with_what_it_wrote() -> None:
    """The steps behind it are not run."""
    Path("code/split.py").write_text("print('so far'); raise SystemExit(3)")
    pipeline, whole = three_steps(Workspace(root="store").get_default_datastore(), as_table=False)
    with pytest.raises(DaskprsError, match=r"(?s)'split text' has failed: exit code 3.*so far"):
        Experiment(name="e").submit(pipeline)
    assert whole.place is None
    (record,) = Path("daskprs-jobs").glob("*/pipeline.json")
    state = PipelineOnDisk(record.parent).state()
    assert state is not None
    assert [*state.steps.values()] == ["Failed", "NotStarted", "NotStarted"]
    assert state.status == "Failed"


def test_an_argument_of_submit_that_nothing_reads_is_refused() -> None:
    """Those that mean nothing here are taken, as notebooks give them."""
    Path("code/style.py").write_text("def run(paths): return paths")
    store = Workspace(root="store").get_default_datastore()
    styled = OutputFileDatasetConfig("styled", destination=(store, "styled"))
    step = ParallelRunStep("style-it", config(), [Dataset.File.from_files("code")], styled)
    pipeline = Pipeline(steps=[step])
    with pytest.raises(OptionError, match="no argument 'overwrit'; did you mean 'overwrite'"):
        pipeline.submit("e", overwrit=True)
    pipeline.submit("e", progress=False, tags={"a": "b"}, continue_on_step_failure=False)
    again = {"progress": False, "regenerate_outputs": True}
    with pytest.raises(OutputError, match="exists"):
        pipeline.submit("e", **again)
    pipeline.submit("e", **again, overwrite=True)


def test_a_step_that_failed_is_resumed_by_the_command_of_its_message() -> None:
    """The next submission finds its result."""
    script = Path("code/style.py")
    script.write_text("def run(paths): raise ValueError('typo')")
    step = ParallelRunStep(
        "style-it",
        config(error_threshold=0),
        [Dataset.File.from_files("code/*.py")],
        PipelineData("styled"),
    )
    with pytest.raises(ParallelRunFailed) as failed:
        Pipeline(steps=[step]).submit("e", progress=False)
    told = "To go on with a mended script: "
    (command,) = (line for line in str(failed.value).splitlines() if line.startswith(told))
    script.write_text("def run(paths): return paths")
    words = [sys.executable, "-m", *shlex.split(command.removeprefix(told))]
    subprocess.run(words, check=True, capture_output=True)


def test_an_input_that_nobody_has_written_is_refused() -> None:
    """With the way to have it written; a frame has no place where a script would find it."""
    script = PythonScriptStep("join.py", inputs=[pd.DataFrame()], source_directory="code")
    with pytest.raises(OptionError, match=r"'input_0' is a table in memory.*register_pandas_data"):
        script.run()
    step = ParallelRunStep("style-it", config(), [OutputFileDatasetConfig("lines")])
    with pytest.raises(UsageError, match=r"OutputFileDatasetConfig\('lines'\).*one Pipeline"):
        step.run()


def test_steps_run_in_order_and_a_circle_or_two_of_one_name_are_refused() -> None:
    """The order is that of data, and what is said besides; a circle is named."""
    first, second = OutputFileDatasetConfig("first"), OutputFileDatasetConfig("second")
    one = ParallelRunStep("step-one", config(), [second], first)
    two = ParallelRunStep("step-two", config(), [first], second)
    scripts = [PythonScriptStep("split.py", name=name) for name in ("late", "later", "early")]
    scripts[0].run_after(scripts[2])
    steps = StepSequence([scripts[:1], scripts[1]])
    assert [one.name for one in Pipeline(steps=steps).steps] == ["early", "late", "later"]
    with pytest.raises(UsageError, match="'step-one' needs 'step-two' needs 'step-one'"):
        Pipeline(steps=[one, two])
    files = Dataset.File.from_files("code")
    with pytest.raises(UsageError, match="two steps are called 'same'"):
        Pipeline(steps=[ParallelRunStep("same", config(), [files]) for _ in range(2)])
    store = Workspace(root="store").get_default_datastore()
    same = [PythonScriptStep(name, outputs=[PipelineData("o", store)]) for name in ("x", "y")]
    with pytest.raises(UsageError, match="'x' and 'y' both write the output 'o'"):
        Pipeline(steps=same)


def test_system_flags_among_arguments_are_options_and_the_script_receives_them() -> None:
    """A misspelt one is a warning, and goes to the script; one without its value is refused."""
    files = [Dataset.File.from_files("code")]
    flags = ["--task_overhead_timeout", 7, "--append_row_dataframe_header", "True", "--mine", "1"]
    step = ParallelRunStep("flagged", config(), files, arguments=flags)
    task = step.task(Path("job"), {}, None, None, "run")
    assert task.options["task_overhead_timeout"] == 7
    assert not task.names_output  # the step has no output
    assert task.options["append_row_dataframe_header"] is True
    assert task.options["arguments"] == [*map(str, flags)]
    misspelt = ParallelRunStep("flagged", config(), files, arguments=["--task_overhead_timeou", 7])
    with pytest.warns(UserWarning, match="Is --task_overhead_timeout meant"):
        assert len(misspelt.task(Path("job"), {}, None, None, "run").options["arguments"]) == 2
    empty = ParallelRunStep("flagged", config(), files, arguments=["--task_overhead_timeout"])
    with pytest.raises(OptionError, match="arguments: --task_overhead_timeout: its value"):
        empty.run()


def test_a_step_gives_its_pipeline_its_logs_and_metrics_if_it_is_told_to() -> None:
    """By the same flags as in a file."""
    flags = ["--copy_logs_to_parent", "True", "--push_metrics_to_parent", "True"]
    files = [Dataset.File.from_files("code")]
    step = ParallelRunStep("style-it", config(), files, arguments=flags)
    run = Pipeline(steps=[step]).submit("e", progress=False)
    assert (run.folder / "pipeline.logs" / "style-it" / "job_result.txt").is_file()
    metrics = (run.folder / "pipeline.logs" / "metrics.csv").read_text()
    assert "style-it,Completed Tasks,1\n" in metrics


def test_an_experiment_runs_a_script_by_itself() -> None:
    """With the variables of its environment, and its output where a run gives it back."""
    lines = OutputFileDatasetConfig("lines")
    script = ScriptRunConfig(
        source_directory="code",
        script="split.py",
        arguments=["--text", Path("text.txt").absolute(), "--lines", lines, "--style", "x"],
        environment=Environment("e", environment_variables={"END": "?"}),
    )
    run = Experiment(name="e").submit(script)
    assert run.get_output_data("lines").download("here") == 3
    assert lines.place is not None
    assert (lines.place / "0.csv").read_text().endswith("one,x?")


def test_programs_that_a_script_starts_find_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a command of a pipeline do, whatever the PATH of the notebook has."""
    monkeypatch.setenv("PATH", os.defpath)
    Path("code/which.py").write_text("import shutil; print(shutil.which('python'))")
    PythonScriptStep("which.py", source_directory="code").run(job_dir="job")
    (found,) = Path("job/azureml-logs/70_driver_log.txt").read_text().splitlines()
    ask = [found, "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(ask, check=True, capture_output=True, text=True).stdout[:-1] == sys.prefix


def test_runs_in_the_folder_of_the_scripts_are_no_change_of_the_scripts() -> None:
    """Nor do they travel with them: a notebook lies beside its script, and runs where it lies."""
    Path("code/style.py").rename("style.py")
    ws = Workspace(root="store")
    output = PipelineData("styled", ws.get_default_datastore())
    step = ParallelRunStep("style-it", config(source_directory="."), ["text.txt"], output)
    script = PythonScriptStep("join.py", arguments=["--lines", "code", "--whole", "."])
    Path("code/join.py").rename("join.py")
    pipeline = Pipeline(ws, steps=[step, script])
    runs = [next(pipeline.submit("e", progress=False).get_steps()) for _ in range(3)]
    reused = [one.is_reused for one in runs]
    assert reused == [False, True, True]  # the script has written into its copy of the folder
    assert not Path("whole.txt").exists()
    logs = [one.get_details_with_logs()["logFiles"] for one in runs[1:]]
    assert logs[0] == logs[1] != {}


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ("import no_such_module\ndef run(mini_batch): return mini_batch", "no_such_module"),
        ("def runs(mini_batch): return mini_batch", "run"),
        ("from azureml.core import Model\nModel.list(None)\ndef run(m): return m", "Model.list"),
    ],
)
def test_what_a_later_step_cannot_do_is_told_before_the_first_step_runs(
    later: str, told: str
) -> None:
    """Not after the training: neither of a parallel step, nor of a script under old pins."""
    Path("code/first.py").write_text("open('has_run', 'w')\n")
    Path("code/later.py").write_text(later)
    ws = Workspace(root="store", environments={"old": sys.executable})
    first = PythonScriptStep("first.py", source_directory="code")
    environment = Environment("old" if "Model" in told else "e")
    files = Dataset.File.from_files("text.txt")
    last = ParallelRunStep(
        "last", config(entry_script="later.py", environment=environment), [files]
    )
    runconfig = RunConfiguration()
    runconfig.environment = environment
    script = PythonScriptStep("later.py", source_directory="code", runconfig=runconfig)
    for step in [last, *([script] if told != "run" else [])]:
        step.run_after(first)
        with pytest.raises(ScriptError, match=told):
            Experiment(ws, "e").submit(Pipeline(ws, [step]))
        assert not Path("code/has_run").exists()


def test_a_relative_python_path_of_a_script_starts_from_its_working_directory() -> None:
    """Not from that of the notebook."""
    Path("code/lib").mkdir()
    Path("code/lib/beside.py").write_text("")
    Path("code/uses.py").write_text("import beside\n")
    runconfig = RunConfiguration()
    runconfig.environment.environment_variables.update(PYTHONPATH="lib", NUMBER=1)
    ws = Workspace(root="store")
    run = Experiment(ws, "e").submit(ScriptRunConfig("code", "uses.py", run_config=runconfig))
    assert run.get_status() == "Finished"
