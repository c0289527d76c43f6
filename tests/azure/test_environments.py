"""Environments of Azure's files: the interpreters that stand for them."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daskprs._cli import main
from daskprs._serve.deployment import ServedDeployment
from daskprs.azure import BatchDeployment, run_pipeline
from daskprs.azure._assets import Assets, given_places
from daskprs.azure._missing_modules import missing_modules
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure.v1 import (
    Environment,
    Experiment,
    ParallelRunConfig,
    ParallelRunStep,
    Pipeline,
    PythonScriptStep,
    RunConfiguration,
    Workspace,
)
from daskprs.errors import UsageError, YamlError

SCORE = """
import sys

def run(mini_batch):
    return [f"{open(one).read().strip()} {sys.prefix}" for one in mini_batch]
"""
PIPELINE = """
type: pipeline
outputs:
  rows: {type: uri_file}
jobs:
  look:
    type: command
    code: code
    command: >-
      python look.py ${{outputs.seen}} && python3 look.py ${{outputs.seen}}
      && echo $VIRTUAL_ENV,${PYTHONPATH%%:*} > ${{outputs.seen}}/shell.txt
    environment: azureml:bare-env@latest
    outputs: {seen: {type: uri_folder}}
  score:
    type: parallel
    inputs: {seen: "${{parent.jobs.look.outputs.seen}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
    input_data: ${{inputs.seen}}
    mini_batch_size: "2"
    task:
      type: run_function
      code: code
      entry_script: score.py
      environment: {image: some/image, conda_file: code/conda.yml}
      append_row_to: ${{outputs.rows}}
"""
LOOK = """
import sys
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobServiceClient
from azureml.core import Run
BlobServiceClient("https://a.blob.core.windows.net", DefaultAzureCredential())
Run.get_context().log("looked", 1)
open(f"{sys.argv[1]}/look.txt", "a").write(sys.prefix)
"""
DEPLOYMENT = """
name: greeting
model: model
code_configuration: {code: code, scoring_script: score.py}
environment: azureml://registries/azureml/environments/sklearn-1.5/labels/latest
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a virtual environment without any package."""
    folder = tmp_path_factory.mktemp("venvs") / "bare"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a pipeline and a deployment."""
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "pipeline.yml": PIPELINE,
        "deployment.yml": DEPLOYMENT,
        "code/score.py": SCORE,
        "code/look.py": LOOK,
        "code/conda.yml": "name: of-conda\ndependencies: [python]\n",
        "model/m.txt": "m",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def call(*words: str) -> Result:
    """Call the command line as a shell would."""
    return CliRunner().invoke(main, words, prog_name="daskprs")


# ---- names ----


@pytest.mark.parametrize(
    ("in_file", "name", "others"),
    [
        ("azureml:prs-env:3", "prs-env", ("azureml:prs-env:3", "prs-env:3")),
        ("azureml:prs-env@latest", "prs-env", ("prs-env@latest", "azureml:prs-env@latest")),
        ("prs-env@latest", "prs-env", ("prs-env@latest",)),
        (
            "azureml://registries/azureml/environments/sklearn-1.5/versions/4",
            "sklearn-1.5",
            ("sklearn-1.5:4", "azureml://registries/azureml/environments/sklearn-1.5/versions/4"),
        ),
        ({"name": "own", "version": 2, "image": "some/image"}, "own", ("own:2", "some/image")),
        ({"image": "some/image:1"}, "some/image:1", ()),
        ({"conda_file": "../code/conda.yml"}, "of-conda", ("code/conda.yml", "./code/conda.yml")),
        ({"conda_file": {"name": "inside"}}, "inside", ()),
        (None, "score", ()),
    ],
)
def test_an_environment_goes_by_what_the_file_calls_it(
    home: Path, bare: Path, in_file: Any, name: str, others: tuple[str, ...]
) -> None:
    """Every one of its names may be given, and its plain name is suggested."""
    for one in (name, *others):
        assets = given_places(None, environments={one: bare})
        found = assets.environment(in_file, home / "model", "score")
        assert (found.name, found.python) == (name, f"{bare}/bin/python"), one
        assert [*assets.unused_environments([found])] == []


def test_a_version_has_an_interpreter_of_its_own(bare: Path) -> None:
    """The more exact name wins, and the plain one stands for the other versions."""
    pythons = {"e": sys.executable, "azureml:e:2": bare}
    assets = given_places(None, environments=pythons)
    found = [assets.environment(f"azureml:e:{one}", Path(), "s").python for one in (1, 2)]
    assert found == [sys.executable, f"{bare}/bin/python"]


def test_a_mapping_file_knows_environments_of_other_pipelines_too(bare: Path) -> None:
    """One that no step uses is a mistake only where the caller gives it for this file."""
    Path("places.yml").write_text(f"environments: {{of-conda: {bare}, other: {bare}}}\n")
    assert "nothing is wrong" in call("validate", "pipeline.yml", "--assets", "places.yml").output
    done = call("validate", "pipeline.yml", "--environment", f"bare_env={bare}")
    assert done.exit_code == 2
    assert "--environment bare_env: nothing here has an environment 'bare_env'" in done.output
    assert "did you mean 'bare-env'?" in done.output
    done = call("validate", "deployment.yml", "--environment", f"sklearn={bare}")
    assert "did you mean 'sklearn-1.5'?" in done.output
    several = call(
        "validate", "pipeline.yml", "deployment.yml", "--environment", f"bare-env={bare}"
    )
    assert several.exit_code == 0


def test_what_is_not_an_interpreter_is_refused() -> None:
    """With what was looked for, in a mapping file with its place."""
    for place in ("code", "code/score.py", "coed", "python9.9", 256 * "n"):
        with pytest.raises(UsageError, match=f"the environment 'e': .*{place}.* Give an interp"):
            given_places(None, environments={"e": place})
    Path("places.yml").write_text("assets: {}\nenvironments: {e: code}\n")
    with pytest.raises(YamlError, match=r"places.yml:2:15: environments: the environment 'e': "):
        Assets.read("places.yml")
    assert call("validate", "pipeline.yml", "--environment", "e").exit_code == 2
    places = ("--environment", "bare-env=/bin/true", "--environment", "of-conda=/bin/true")
    problem = "/bin/true does not answer as an interpreter of Python does"
    assert call("validate", "pipeline.yml", *places).output.count(problem) == 2


# ---- steps ----


def test_steps_run_under_the_interpreters_of_their_environments(home: Path, bare: Path) -> None:
    """A command finds it as `python`, and its programs first."""
    given = {"bare-env": bare, "of-conda": bare}
    result = run_pipeline("pipeline.yml", environments=given, outputs={"rows": "rows.txt"})
    prefix = str(bare)
    rows = (home / "rows.txt").read_text().splitlines()
    assert rows[0] == f"{prefix}{prefix} {prefix}"
    assert rows[1].startswith(f"{prefix},{result.folder}/pipeline.stand-ins/")
    assert result.steps["look"].status == "Completed"
    folder = PipelineFolder("again")
    records = []
    for environments in (given, {}):
        caller = CallerInputs(given_places(None, environments=environments))
        work = read_pipeline("pipeline.yml", folder, caller).steps["look"].work
        assert isinstance(work, Command)
        records.append(work.record())
    assert [one.pop("python") for one in records] == [f"{bare}/bin/python", None]
    assert records[0] == records[1]  # all else that a resume compares is the same


def test_modules_are_looked_for_in_the_interpreter_of_the_step(home: Path, bare: Path) -> None:
    """The message names it; without one, it names the option that gives another."""
    (home / "code/score.py").write_text("import pandas, json, no_such_a\ndef run(x): return x\n")
    (home / "code/look.py").write_text("import azureml.core, no_such_b\n")
    environments = ("--environment", f"bare-env={bare}", "--environment", f"of-conda={bare}")
    own = call("validate", "pipeline.yml").output
    assert "no_such_a (" in own
    assert "pandas (" not in own
    assert "--environment of-conda=PYTHON" in own
    assert "--environment bare-env=PYTHON" in own
    there = call("validate", "pipeline.yml", *environments).output
    for missing in ("pandas", "no_such_a", "no_such_b"):
        assert f"{missing} (" in there
    assert f"{bare}/bin/python -m pip install" in there
    script = home / "code/look.py"
    script.write_text("from azureml.core import Run, Dataset\nimport no_such_b, mltable\n")
    found = missing_modules(script, script.parent, python=f"{bare}/bin/python")
    assert [one.name for one in found] == ["azureml.core.Dataset", "no_such_b", "mltable"]


def test_steps_of_inner_pipelines_have_environments(bare: Path) -> None:
    """The inner pipeline itself runs nothing, and so it has none."""
    step = '{type: command, command: "true", environment: "azureml:e:1"}'
    Path("outer.yml").write_text(f"jobs: {{outer: {{type: pipeline, jobs: {{inner: {step}}}}}}}\n")
    folder = PipelineFolder("run")
    given = CallerInputs(given_places(None, environments={"e": bare}))
    work = read_pipeline("outer.yml", folder, given).steps["outer.inner"].work
    assert isinstance(work, Command)
    assert work.python == f"{bare}/bin/python"
    given = CallerInputs(given_places(None, environments={"outer": bare}))
    with pytest.raises(YamlError, match="nothing here has an environment 'outer'; known are e"):
        read_pipeline("outer.yml", folder, given)


def test_a_deployment_runs_under_its_interpreter(bare: Path) -> None:
    """Jobs of the service get the option, and only those whose deployment has the environment."""
    pythons = {"sklearn-1.5": bare}
    deployment = BatchDeployment.load("deployment.yml", environments=pythons)
    assert deployment.environment.python == f"{bare}/bin/python"
    assert "environment" not in deployment.without_effect
    assert "environment" in BatchDeployment.load("deployment.yml").without_effect
    with pytest.raises(YamlError, match=r"did you mean 'sklearn-1\.5'"):
        BatchDeployment.load("deployment.yml", environments={"sklearn-1.4": bare})
    assets = given_places(None, environments={**pythons, "e": bare}).for_several_files()
    words = ServedDeployment("deployment.yml", assets).words({"d": "x"}, Path("j"), Path("o"), {})
    assert words[-2:] == ["--environment", f"sklearn-1.5={bare}/bin/python"]


def test_a_workspace_of_sdk_v1_knows_interpreters(home: Path, bare: Path) -> None:
    """A script step runs under the one of its environment; a parallel step has the option."""
    (home / "config.json").write_text('{"root": "store", "environments": {"e:2": "python"}}')
    (home / "python").symlink_to(bare / "bin" / "python")
    with pytest.raises(UsageError, match="the environment 'f'"):
        Workspace(root="store", environments={"f": "code"})
    ws = Workspace.from_config()
    assert ws.environment(Environment("e", version="2")).python == str(home / "python")
    assert ws.environment(Environment.get(ws, "e")).python is None
    ws = Workspace(root="store", environments={"e": bare})
    config = ParallelRunConfig(
        Environment("e"), "code/score.py", 1, "append_row", "cpu", node_count=1
    )
    step = ParallelRunStep("score", config, inputs=["code"])
    task = step.task(home / "job", {}, ws, None, "run")
    assert task.options["python"] == f"{bare}/bin/python"
    assert "Workspace(…, environments={'e': 'PYTHON'})" in task.other_python
    running = RunConfiguration()
    running.environment = Environment("e")
    script = PythonScriptStep("code/look.py", "look", arguments=[str(home)], runconfig=running)
    run = Experiment(ws, "e").submit(Pipeline(ws, [script]))
    assert run.find_step_run("look")[0].get_metrics() == {"looked": 1}
    assert (home / "look.txt").read_text() == str(bare)
