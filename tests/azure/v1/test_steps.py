"""`ParallelRunStep`: notebooks written for SDK v1 run on folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from daskprs import ParallelRunFailed
from daskprs._job.request import check_kept_call, keep_call
from daskprs.azure._reuse import digest_of
from daskprs.azure._run_place import VARIABLE, RunPlace
from daskprs.azure.v1 import (
    AmlCompute,
    Dataset,
    DatasetConsumptionConfig,
    Environment,
    Experiment,
    Model,
    OutputFileDatasetConfig,
    ParallelRunConfig,
    ParallelRunStep,
    Pipeline,
    PipelineData,
    PipelineParameter,
    Workspace,
)
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._job.result import ParallelRunResult

SCRIPT = """
import argparse, os
from pathlib import Path
from azureml.core.model import Model
from azureml_user.parallel_run import EntryScript

def init():
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels")
    parser.add_argument("--model_name")
    global words, model
    words, _ = parser.parse_known_args()
    model = Path(Model.get_model_path(words.model_name)).read_text() if words.model_name else ""

def run(mini_batch, context):
    EntryScript().logger.info(context.minibatch_index)
    key = "".join(f"{k}={v} " for k, v in context.partition_key_value.items())
    if isinstance(mini_batch, list):
        label = Path(words.labels).read_text() if words.labels else ""
        return [f"{key}{Path(one).name} {label}{model}{len(mini_batch)}" for one in mini_batch]
    mini_batch["key"] = key
    return mini_batch
"""


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands: a folder of code and data beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "score.py").write_text(SCRIPT)
    for name in ("anna/winter/a.wav", "anna/fall/b.wav", "ben/fall/c.wav"):
        path = tmp_path / "store" / "sounds" / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
    (tmp_path / "store" / "sales.csv").write_text("store,brand\n1,x\n2,y\n1,x\n")


def config(**more: Any) -> ParallelRunConfig:
    """Return a config of the script."""
    given = {
        "environment": Environment("e"),
        "entry_script": "score.py",
        "source_directory": "code",
        "error_threshold": 5,
        "output_action": "append_row",
        "compute_target": "cpu-cluster",
        "node_count": 2,
        "process_count_per_node": 1,
    }
    return ParallelRunConfig(**{**given, **more})


def lines(result: ParallelRunResult) -> list[str]:
    """Return the lines of an output."""
    return Path(str(result.output_file)).read_text().splitlines()


def test_files_by_the_folders_that_they_lie_in() -> None:
    """The pattern carries the keys, and the output lies on the datastore, below the run."""
    store = Workspace(root="store").get_default_datastore()
    sounds = Dataset.File.from_files(
        (store, "sounds/*/*/*.wav"), partition_format="sounds/{user}/{season}/{name}.wav"
    )
    assert sounds.partition_keys == ["user", "season", "name"]
    assert sounds.get_partition_key_values(["user"]) == [{"user": "anna"}, {"user": "ben"}]
    output = PipelineData("sums", datastore=store)
    step = ParallelRunStep(
        name="by-user",
        inputs=[sounds.as_named_input("sounds")],
        output=output,
        parallel_run_config=config(partition_keys=["user"], append_row_file_name="sums.txt"),
    )
    result = step.run(progress=False)
    assert lines(result) == ["user=anna b.wav 2", "user=anna a.wav 2", "user=ben c.wav 1"]
    run = result.job_dir.name
    assert result.output_file == Path("store/azureml", run, "sums/sums.txt").absolute()


def test_a_table_by_its_keys_and_by_size() -> None:
    """Nothing has to be written to a target before."""
    store = Workspace(root="store").get_default_datastore()
    sales = Dataset.Tabular.from_delimited_files(path=(store, "*.csv"))
    assert sales.to_pandas_dataframe().equals(
        pd.DataFrame({"store": [1, 2, 1], "brand": ["x", "y", "x"]})
    )
    parts = sales.partition_by(["store", "brand"], target=(store, "parts"), name="parts")
    kept = Dataset.get_by_name(Workspace(root="store"), "parts")
    assert kept.partition_keys == ["store", "brand"]
    by_keys = ParallelRunStep("by-keys", config(partition_keys=["store"]), [parts])
    by_size = ParallelRunStep("by-size", config(mini_batch_size="1KB"), [sales])
    assert lines(by_keys.run(progress=False)) == [
        '1 x "store=1 "',
        '1 x "store=1 "',
        '2 y "store=2 "',
    ]
    assert lines(by_size.run(progress=False)) == ["1 x ", "2 y ", "1 x "]


def test_side_inputs_come_by_argument_by_name_and_at_the_path_that_a_script_expects(
    tmp_path: Path,
) -> None:
    """The link is there while the step runs, and gone after it."""
    Path("labels.txt").write_text("loud ")
    path = tmp_path / "mounted" / "labels"
    labels = Dataset.File.from_files("labels.txt").as_named_input("labels").as_mount(str(path))
    Path("code", "linked.py").write_text(
        "from daskprs import EntryScript\n"
        f"def run(files): return [open({str(path)!r}).read() + "
        "EntryScript().side_inputs['labels'] for _ in files]\n"
    )
    for script, expected in [("score.py", "a.wav loud 3"), ("linked.py", f"loud {tmp_path}")]:
        step = ParallelRunStep(
            name="labelled",
            inputs=[Dataset.File.from_files("store/sounds")],
            side_inputs=[labels],
            arguments=["--labels", labels],
            parallel_run_config=config(entry_script=script),
        )
        assert any(line.startswith(expected) for line in lines(step.run(progress=False)))
    assert not path.is_symlink()
    path.write_text("mine")
    with pytest.raises(OptionError, match="as_mount"):
        step.run(progress=False)
    assert path.read_text() == "mine"


def test_a_script_finds_a_model_of_the_workspace_of_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model that a script of the step registered is there for other steps, not for a resume."""
    ws = Workspace(root="store")
    Path("model.txt").write_text("model ")
    Model.register(ws, "model.txt", "m")
    step = ParallelRunStep(
        "scored",
        config(compute_target=AmlCompute(ws, "cpu")),
        [Dataset.File.from_files("store/sounds/ben")],
        arguments=["--model_name", "m"],
    )
    assert lines(step.run(progress=False)) == ["c.wav model 1"]
    for name, value in RunPlace.of(Path("job"), ws).variables().items():
        monkeypatch.setenv(name, value)
    Model.register(ws, "model.txt", "made")
    known = [step.task(Path(job), {}, ws, None, "").options["side_inputs"] for job in ("job", "x")]
    assert [[*one] for one in known] == [["m"], ["m", "made"]]


def test_parameters_change_the_dataset_and_the_options_of_a_run() -> None:
    """An unknown one is refused with the nearest that there is."""
    everything = Dataset.File.from_files("store/sounds")
    given = DatasetConsumptionConfig("in", PipelineParameter("sounds", everything)).as_mount()
    size = PipelineParameter(name="size", default_value="2")
    step = ParallelRunStep("changing", config(mini_batch_size=size), [given])
    assert step.run(progress=False).mini_batches.total == 2
    one = Dataset.File.from_files("store/sounds/ben/fall/c.wav")
    changed = step.run(progress=False, pipeline_parameters={"sounds": one, "size": "1"})
    assert lines(changed) == ["c.wav 1"]
    with pytest.raises(OptionError, match="did you mean 'size'"):
        step.run(pipeline_parameters={"sise": "1"})


def test_a_step_that_has_done_the_same_before_gives_that_result() -> None:
    """Until its input, its script, its arguments or its output have changed."""
    store = Workspace(root="store").get_default_datastore()
    output = OutputFileDatasetConfig("scores", destination=(store, "scores/{run-id}"))
    first = ParallelRunStep("reused", config(), [Dataset.File.from_files("store/sounds")], output)
    job = first.run(progress=False).job_dir
    assert first.run(progress=False).job_dir == job
    assert output.place is not None
    assert output.place.is_dir()
    again = ParallelRunStep(
        "reused", config(), [Dataset.File.from_files("store/sounds")], output, allow_reuse=False
    )
    assert again.run(progress=False).job_dir != job

    changes: list[Callable[[], Any]] = [
        lambda: Path("store/sounds/ben/fall/d.wav").write_text("new"),
        lambda: Path("code/score.py").write_text(SCRIPT + "\n# mended\n"),
        lambda: first.arguments.extend(["--more", "words"]),
        lambda: next(output.place.iterdir()).unlink() if output.place else None,
    ]
    for change in changes:
        change()
        latest = first.run(progress=False).job_dir
        assert latest != job
        assert first.run(progress=False).job_dir == latest
        job = latest


def test_a_run_is_no_part_of_what_is_known_of_it() -> None:
    """Whatever letters are in the path of its folder."""
    jobs = ("/é/1", "/é/2")
    told = [(RunPlace.of(Path(job), None).variables()[VARIABLE], {job: "{job}"}) for job in jobs]
    assert digest_of(*told[0]) == digest_of(*told[1])


def test_every_wrong_parameter_of_a_step_is_told_in_one_go() -> None:
    """The rule for names is one of them."""
    table = Dataset.Tabular.from_delimited_files("store/sales.csv")
    files = Dataset.File.from_files("store/sounds")
    with pytest.raises(OptionError) as caught:
        ParallelRunStep("A_step", "config", [table, files, 7], 7, [table], "--x")  # type: ignore[arg-type]
    assert [line.split("=")[0].split(":")[0] for line in str(caught.value).splitlines()] == [
        *("name", "parallel_run_config", "output", "arguments"),
        *("inputs", "inputs", "side_inputs"),
    ]


@pytest.mark.parametrize("name", ["ab", "Abc", "a_b", "1ab", "ab-", "a" * 33, "äbc", ""])
def test_a_name_that_a_step_cannot_have_is_refused(name: str) -> None:
    """Three to thirty-two lower case letters, digits and dashes."""
    files = Dataset.File.from_files("store/sounds")
    with pytest.raises(OptionError, match="name="):
        ParallelRunStep(name, config(), [files])
    assert ParallelRunStep("a-1" * 10 + "bc", config(), [files])


def test_paths_and_frames_need_no_dataset_around_them() -> None:
    """Nor a workspace; an output at a path is that folder."""
    files = ParallelRunStep(
        "of-paths", config(), ["store/sounds/anna", Path("store/sounds/ben")], "o"
    )
    assert sorted(lines(files.run(progress=False))) == ["a.wav 2", "b.wav 2", "c.wav 1"]
    assert Path("o/parallel_run_step.txt").is_file()
    frame = pd.DataFrame({"n": [1, 2]})
    table = ParallelRunStep("of-frame", config(partition_keys=["n"]), [frame])
    assert lines(table.run(progress=False)) == ['1 "n=1 "', '2 "n=2 "']


def test_a_script_fills_the_outputs_among_its_arguments() -> None:
    """They need no `output`, have places of their own, and later steps read them."""
    Path("code/split.py").write_text(
        "import argparse\nfrom pathlib import Path\n\n"
        "def init():\n    global given\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--first')\n    parser.add_argument('--rest')\n"
        "    given = parser.parse_known_args()[0]\n\n"
        "def run(mini_batch):\n    for path in map(Path, mini_batch):\n"
        "        Path(given.first, path.name).write_text(path.read_text()[:1])\n"
        "        Path(given.rest, path.name).write_text(path.read_text()[1:])\n"
        "    return mini_batch\n"
    )
    ws = Workspace(root="store")
    store = ws.get_default_datastore()
    first = OutputFileDatasetConfig("first", destination=(store, "split/first"))
    rest = OutputFileDatasetConfig("rest").register_on_complete("rests")
    for _ in range(2):  # as when a cell runs again
        split = ParallelRunStep(
            name="split-files",
            inputs=[Dataset.File.from_files((store, "sounds"))],
            arguments=["--first", first, "--rest", rest],
            parallel_run_config=config(entry_script="split.py", output_action="summary_only"),
        )
    again = ParallelRunStep("read-rest", config(), [rest.as_input()], arguments=["--more", first])
    assert split.outputs == [first, rest]
    assert (split.needed, again.outputs, again.needed) == ([], [], [rest, first])
    for _ in range(2):  # it is not reused: the kept result has one output
        run = Experiment(ws, "split").submit(Pipeline(ws, steps=[again]))
        step = run.find_step_run("split-files")[0]
        assert not step.is_reused
        assert Path("store/split/first/a.wav").read_text() == "a"
        (there,) = step.result.job_dir.glob("named-outputs/rest/a.wav")
        assert there.read_text() == "nna/winter/a.wav"
        assert Dataset.get_by_name(ws, "rests").data == [str(there.parent)]


def test_a_failed_step_raises_and_is_not_reused() -> None:
    """Its message is that of a job."""
    Path("code/score.py").write_text("def run(files): raise ValueError('no')")
    step = ParallelRunStep(
        "failing", config(run_max_try=1), [Dataset.File.from_files("store/sounds")]
    )
    for _ in range(2):
        with pytest.raises(ParallelRunFailed, match="ValueError: no"):
            step.run(progress=False)


def test_data_beside_a_script_is_no_source_also_for_who_goes_on_by_the_folder() -> None:
    """Nor is what was registered; a folder that has the script in it is source all the same."""
    ws = Workspace(root=".", datastores={"sounds": "store", "code": "code"})
    Model.register(ws, "store/sales.csv", "m")
    given = config(source_directory=".", entry_script="code/score.py")
    step = ParallelRunStep("beside", given, ["store/sounds/ben"])
    call = step.task(Path("job"), {}, ws, None, "").checked()
    call.folder.path.mkdir()
    keep_call(call.folder, call.kept)
    for one in (call, check_kept_call(call.folder, resume=True)):
        one.script.look(exclude=[call.folder.path])
        assert [*one.script.fingerprint()["files"]] == ["code/score.py"]
