"""What SDK v1 has and is not built here: it can be imported, and its use says what to write."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from daskprs.azure import v1, v2
from daskprs.azure.v1 import (
    AmlCompute,
    Dataset,
    Environment,
    Experiment,
    Model,
    Pipeline,
    PipelineRun,
    PythonScriptStep,
    Run,
    UserErrorException,
    Workspace,
)
from daskprs.azure.v1.absent import FILE, NotBuilt, NotBuiltError
from daskprs.errors import UsageError

CONTENT = tomllib.loads(FILE.read_text())
LISTED = {name for group in CONTENT["names"].values() for name in group.split()}


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand where a notebook stands."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("sdk", [v1, v2])
def test_dir_has_every_public_name(sdk: Any) -> None:
    """Also one that is there from the start."""
    assert set(sdk.__all__) <= set(dir(sdk))


def test_every_public_name_can_be_imported_and_is_refused_when_it_is_used() -> None:
    """The next step for a name is that of the data file, also for a subclass in a notebook."""
    assert set(v1.__all__) - {"VERSION"} <= LISTED
    for name in sorted(LISTED - set(v1.__all__)):
        absent: Any = getattr(v1, name)
        assert issubclass(absent, NotBuilt), name
        with pytest.raises(NotBuiltError, match=f"^{name} of Azure's SDK v1 is not available here"):
            absent()
        assert not hasattr(absent, "MAXIMIZE")
    search: Any = v1.HyperDriveConfig  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"HyperDriveConfig\.x .*: write a table with a row for"):
        _ = search.x
    with pytest.raises(NotBuiltError, match=r"^AutoMLStep of Azure's .* PythonScriptStep"):
        type("Mine", (v1.AutoMLStep,), {})()  # type: ignore[attr-defined]
    with pytest.raises(NotBuiltError, match=r"^ViewType of Azure's"):
        v1.ViewType["ALL"]  # type: ignore[attr-defined]
    with pytest.raises(NotBuiltError, match=r"^ViewType of Azure's"):
        list(v1.ViewType)  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from daskprs.azure.v1 import no_such_name")  # noqa: S102 - as a notebook does


def test_the_next_steps_are_for_names_that_are_not_built() -> None:
    """Each is listed; a method belongs to a class that is built, and which does not have it."""
    for name in " ".join(CONTENT["instead"].values()).split():
        owner, _, method = name.partition(".")
        assert owner in LISTED, name
        assert (owner in v1.__all__) == bool(method), name
        assert not (method and hasattr(getattr(v1, owner), method)), name


def test_other_attributes_say_what_there_is() -> None:
    """In place of a bare AttributeError, which is still what `hasattr` sees."""
    ws = Workspace(root="store")
    Path("model.txt").write_text("m")
    known: list[tuple[Any, str, str]] = [
        (ws, "get_default_keyvault", r"Workspace\.get_default_keyvault .*os\.environ"),
        (ws, "get_defult_datastore", r"did you mean 'get_default_datastore'\?$"),
        (Model, "deploy", r"Model\.deploy .*daskprs serve"),
        (Model.register(ws, "model.txt", "m"), "deploy", r"Model\.deploy .*daskprs serve"),
        (Run.get_context(), "get_secret", r"get_secret .*os\.environ"),
        (Dataset.Tabular, "from_sql_query", "from_sql_query .*register_pandas_dataframe"),
        (Environment("e"), "build", r"Environment\.build .* scripts use the Python"),
        (Experiment(ws, "e"), "archive", "remove the folders"),
        (ws, "get_details", r"a workspace is a folder: ws\.root"),
        (ws, "write_config", r'config\.json yourself: {"root": "FOLDER"}'),
        (AmlCompute(ws, "cpu"), "vm_size", "node_count is a number"),
        (Dataset.File.from_files("model.txt"), "mount", "download"),
    ]
    for one, attribute, told in known:
        assert not hasattr(one, attribute)
        with pytest.raises(UsageError, match=told):
            getattr(one, attribute)
    with pytest.raises(AttributeError, match="knows no workspace"):  # a property's own error
        _ = Run.get_context().experiment
    with pytest.raises(UserErrorException):
        Dataset.get_by_name(ws, "none")


def test_computes_and_environments_answer_by_any_name() -> None:
    """Names of computes; environments with the variables that they were registered with."""
    ws = Workspace(root="store")
    assert "cpu" not in ws.compute_targets
    assert isinstance(ws.compute_targets["cpu"], AmlCompute)
    assert "cpu" in ws.compute_targets
    assert (ws.environments["AzureML-Minimal"].name, [*ws.environments]) == ("AzureML-Minimal", [])
    numbers = []
    for value in ("1", "1", "2"):
        one = Environment("mine", environment_variables={"A": value}).register(ws)
        numbers.append(one.version)
    assert numbers == ["1", "1", "2"]
    again = Workspace(root="store")
    assert again.environments["mine"].environment_variables == {"A": "2"}
    assert Environment.list(again).keys() == {"mine"}
    assert Environment.get(again, "mine", "1").environment_variables == {"A": "1"}
    assert Environment.get(again, "mine", label="latest").version == "2"
    with pytest.raises(UsageError, match=r"no version 7 \(known: 1, 2\)"):
        Environment.get(again, "mine", "7")


def test_runs_are_found_again_with_their_logs_metrics_and_outputs() -> None:
    """Those of a failed run, too."""
    Path("say.py").write_text(
        "import pathlib, sys\nfrom azureml.core import Run, Webservice\n"
        "Run.get_context().log('n', 1)\npathlib.Path(sys.argv[1], 'a').write_text('b')\n"
        "print('said')\nsys.exit(int(sys.argv[2]))\n"
    )
    ws = Workspace(root="store")

    def submit(name: str, code: int) -> PipelineRun:
        out = v1.PipelineData("out", datastore=ws.get_default_datastore())
        step = PythonScriptStep("say.py", "say it", [out, code])
        return Experiment(ws, name).submit(Pipeline(ws, [step]))

    run = submit("good", 0)
    with pytest.raises(Exception, match="exit code 3"):
        submit("bad", 3)
    assert [one.name for one in Experiment.list(ws)] == ["bad", "good"] == [*ws.experiments]
    (found,) = ws.experiments["good"].get_runs()
    assert repr(found) == repr(run) == repr(PipelineRun(Experiment(ws, "good"), run.id))
    (step,) = found.get_children()
    assert (found.status, step.get_metrics(), step.name) == ("Finished", {"n": 1}, "say it")
    assert step.get_details_with_logs()["logFiles"] == {"azureml-logs/70_driver_log.txt": "said\n"}
    assert step.get_output_data("out").download("there") == 1
    (failed,) = ws.experiments["bad"].get_runs()
    assert (failed.get_status(), next(failed.get_steps()).get_status()) == ("Failed", "Failed")
    with pytest.raises(UsageError, match=r"no run 'good-1' in .*get_runs"):
        PipelineRun(Experiment(ws, "good"), "good-1")


def test_a_script_may_be_called_as_files_of_ours() -> None:
    """The folder of its step gets another name, in which its metrics are found."""
    Path("pipeline.py").write_text(
        "from azureml.core import Run\nRun.get_context().log('n', 1)\nprint('said')\n"
    )
    run = Experiment(Workspace(root="store"), "e").submit(v1.ScriptRunConfig(".", "pipeline.py"))
    assert (run.name, run.get_metrics()) == ("pipeline.py", {"n": 1})
    assert run.get_details_with_logs()["logFiles"]


def test_a_run_that_cannot_be_read_hides_no_others() -> None:
    """One of another version, or one that was cut short."""
    for name, text in (("old", '{"pipeline": "old", "version": 1, "steps": {}}'), ("cut", "{")):
        Path("daskprs-jobs", name).mkdir(parents=True)
        Path("daskprs-jobs", name, "pipeline.json").write_text(text)
    Path("say.py").write_text("print('said')\n")
    ws = Workspace(root="store")
    run = Experiment(ws, "good").submit(v1.ScriptRunConfig(".", "say.py"))
    assert run.wait_for_completion(True) == "Finished"  # as notebooks do
    assert [*ws.experiments] == ["good"]
    assert [one.id for one in Experiment(ws, "good").get_runs()] == [run.id]


def test_what_a_script_writes_into_outputs_is_uploaded() -> None:
    """As in Azure; what was there before is not. The script works in a copy of its folder."""
    Path("src/outputs").mkdir(parents=True)
    Path("src/outputs/old").write_text("old")
    Path("src/train.py").write_text(
        "import os\nopen('outputs/m.pkl', 'w').write('m')\nos.remove('outputs/old')\n"
        "os.remove('train.py')\nopen('logs/own', 'w')\n"
    )
    ws = Workspace(root="store")
    assert Experiment(ws, "e").start_logging().get_details_with_logs()["logFiles"] == {}
    status = ws.compute_targets["cpu"].get_status()
    assert (status.allocation_state, status.scale_settings.maximum_node_count) == ("Steady", 1)
    with pytest.raises(NotBuiltError, match="known are allocation_state"):
        _ = status.vm_size
    run = Experiment(ws, "train").submit(v1.ScriptRunConfig("src", "train.py"))
    assert run.get_file_names() == ["outputs/m.pkl"]
    files = sorted(str(one) for one in Path("src").rglob("*") if one.is_file())
    assert files == ["src/outputs/old", "src/train.py"]
    run.download_files(prefix="outputs", output_directory="down")
    assert Path("down/outputs/m.pkl").read_text() == "m"
    Path("src/logs").write_text("a file of this name is no folder for logs")
    Path("src/train.py").write_text("open('outputs/read', 'w').write(open('logs').read())\n")
    assert Experiment(ws, "e").submit(v1.ScriptRunConfig("src", "train.py")).get_file_names()
    with pytest.raises(UsageError, match=r"has no artifact 'm.pkl' \(known: outputs/m.pkl\)"):
        run.download_file("m.pkl")
    with pytest.raises(UsageError, match="the pipeline has no steps"):
        Experiment(ws, "e").submit(Pipeline(ws, []))
    assert run.register_model("m", "outputs/m.pkl").path.read_text() == "m"
    packages = v1.CondaDependencies.create(pip_packages=["a"], conda_packages=["b=1"])
    assert packages.save_to_file(".") == "conda_dependencies.yml"
    assert Path("conda_dependencies.yml").read_text() == "dependencies:\n- b=1\n- pip:\n  - a\n"


def test_a_conda_file_has_all_that_a_notebook_has_named() -> None:
    """Also what a given file has; a package may be one of pip and of conda."""
    packages = v1.CondaDependencies.create(None, ["a", "b"], ["b"], python_version="3.11")
    assert packages.serialize_to_string() == (
        "dependencies:\n- python=3.11\n- b\n- pip:\n  - a\n  - b\n"
    )
    Path("conda.yml").write_text(
        "name: mine\nchannels: [main]\ndependencies: [python=3.9, pip, {pip: [a]}]\n"
    )
    packages = v1.CondaDependencies(conda_dependencies_file_path="conda.yml")
    packages.set_python_version("3.12")
    packages.add_channel("conda-forge")
    packages.add_conda_package("b")
    packages.add_pip_package("c")
    assert packages.serialize_to_string() == (
        "name: mine\nchannels:\n- main\n- conda-forge\n"
        "dependencies:\n- python=3.12\n- pip\n- b\n- pip:\n  - a\n  - c\n"
    )
