"""Batch deployments: files are scored as Azure's batch endpoints do it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs.azure import BatchDeployment

DRIVER = """
import glob, os
from os.path import basename

import pandas as pd
from azureml.core import Model

def init():
    global words
    (file,) = glob.glob(os.environ["AZUREML_MODEL_DIR"] + "/*/*.txt")
    assert open(Model.get_model_path("words") + "/words.txt").read() == open(file).read()
    words = open(file).read() + os.environ.get("ENDING", "")
    assert os.environ.get("LOUD", "True") == "True"

def run(mini_batch):
    sizes = [len(mini_batch)] * len(mini_batch)
    files = [basename(file) for file in mini_batch]
    return pd.DataFrame({"file": files, "of": sizes, "words": words})
"""
NEW = """
$schema: https://azuremlschemas.azureedge.net/latest/batchDeployment.schema.json
name: greeting
endpoint_name: greetings
type: model
model:
  name: words
  path: model
code_configuration:
  code: code
  scoring_script: driver.py
environment:
  image: some/image:latest
  conda_file: environment/conda.yaml
compute: azureml:batch-cluster
resources:
  instance_count: 1
settings:
  max_concurrency_per_instance: 2
  mini_batch_size: 2
  output_action: append_row
  output_file_name: predictions.csv
  retry_settings:
    max_retries: 1
    timeout: 30
  error_threshold: -1
  logging_level: info
  environment_variables:
    ENDING: "!"
    LOUD: true
"""
OLDER = """
name: greeting
model:
  name: words
  version: 1
  local_path: ./model/
code_configuration:
  code:
    local_path: ./code/
  scoring_script: driver.py
environment:
  conda_file: file:./environment/conda.yml
  docker: {image: some/image}
mini_batch_size: 2
output_file_name: predictions.csv
retry_settings: {max_retries: 1, timeout: 30}
error_threshold: 10
logging_level: Info
compute: {target: azureml:cpu-cluster, instance_count: 1}
environment_variables: {ENDING: "!"}
"""
SCORED = "a.txt 2 hello!\nb.txt 2 hello!\nc.txt 1 hello!\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory; a deployment's folder and its data lie in it."""
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "scoring/deployment.yml": NEW,
        "scoring/older.yml": OLDER,
        "scoring/code/driver.py": DRIVER,
        "scoring/model/words.txt": "hello",
        "scoring/notes/words.txt": "these are not of the model",
        "data/a.txt": "a",
        "data/b.txt": "b",
        "data/below/c.txt": "c",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def invoke(*words: str) -> Result:
    """Call ``daskprs invoke`` as a shell would."""
    return CliRunner().invoke(main, ("invoke", *words, "--quiet"), prog_name="daskprs")


@pytest.mark.parametrize("form", ["deployment.yml", "older.yml"])
def test_both_forms_of_a_file_score_a_folder(home: Path, form: str) -> None:
    """The model's folder contains the model alone; the variables of the file are set."""
    done = invoke(f"scoring/{form}", "--input", "data", "--output-path", "scored")
    assert done.exit_code == 0, done.output
    assert (home / "scored" / "predictions.csv").read_text() == SCORED
    assert f"scoring/{form}: without effect here: " in done.stderr
    assert "environment" in done.stderr


@pytest.mark.parametrize(
    ("data", "more", "expected"),
    [
        ("data/*.txt", (), "a.txt 2 hello!\nb.txt 2 hello!\n"),
        ("data/a.txt", ("--input-type", "uri_file"), "a.txt 1 hello!\n"),
        ("azureml:letters@latest", ("--asset", "letters=data/below"), "c.txt 1 hello!\n"),
        (
            "azureml://datastores/blobs/paths/below",
            ("--datastore", "blobs=data", "--set", "settings.environment_variables.ENDING=?"),
            "c.txt 1 hello?\n",
        ),
    ],
)
def test_input_is_a_file_a_glob_or_a_reference(
    home: Path, data: str, more: tuple[str, ...], expected: str
) -> None:
    """Only what is meant is scored."""
    done = invoke("scoring/deployment.yml", "--input", data, "--job-dir", "job", *more)
    assert done.exit_code == 0, done.output
    assert (home / "job" / "output" / "predictions.csv").read_text() == expected


@pytest.mark.parametrize("form", ["deployment.yml", "older.yml"])
def test_an_invocation_may_change_what_the_file_says(home: Path, form: str) -> None:
    """By flags, and by keys as either form has them."""
    words = ("--mini-batch-size", "3", "-c", "2", "--set", "settings.output_file_name=p.csv")
    more = ("--set", "retry_settings.max_retries=2", "--set", "compute.instance_count=1")
    done = invoke(f"scoring/{form}", "--input", "data", "--job-dir", "job", *words, *more)
    assert done.exit_code == 0, done.output
    assert (home / "job" / "output" / "p.csv").read_text() == SCORED.replace("2", "3").replace(
        "1", "3"
    )
    call = (home / "job" / "job.json").read_text()
    assert '"node_count": 2' in call
    assert '"run_max_try": 2' in call


def test_a_settings_file_beside_the_script_says_how_frames_are_written(home: Path) -> None:
    """As Azure's parallel jobs read it."""
    settings = '{"append_row": {"pandas.DataFrame.to_csv": {"sep": ",", "header": true}}}'
    (home / "scoring" / "code" / "parallel_run_step.settings.json").write_text(settings)
    result = BatchDeployment.load("scoring/deployment.yml").invoke("data", progress=False)
    expected = "file,of,words\n" + SCORED.replace(" ", ",")
    assert Path(str(result.output_file)).read_text() == expected


WRITER = """
import os
from pathlib import Path

def run(mini_batch):
    for file in mini_batch:
        target = Path(os.environ["AZUREML_BI_OUTPUT_PATH"], Path(file).stem + ".out")
        target.write_text(Path(file).read_text().upper())
    return mini_batch
"""


def test_a_script_may_write_files_of_its_own(home: Path) -> None:
    """With summary_only; what it returns is counted."""
    (home / "scoring" / "code" / "driver.py").write_text(WRITER)
    deployment = BatchDeployment.load("scoring/deployment.yml")
    result = deployment.invoke("data", changes={"output_action": "SummaryOnly"})
    assert result.items == (3, 3, 0)
    files = {path.name: path.read_text() for path in Path(result.output_dir).iterdir()}
    assert files == {"a.out": "A", "b.out": "B", "c.out": "C"}
    assert f"output       {result.output_dir}\n" in repr(result)


def test_a_deployment_may_be_written_in_python(home: Path) -> None:
    """Its parameters are the keys of a file."""
    deployment = BatchDeployment(
        "greeting",
        model="azureml:words:3",
        code_path="scoring/code",
        scoring_script="driver.py",
        mini_batch_size=2,
        environment_variables={"ENDING": "."},
        compute="cluster",
        assets={"words": "scoring/model"},
    )
    result = deployment.invoke("data", job_dir="job", progress=False)
    assert Path(str(result.output_file)).read_text() == SCORED.replace("!", ".")
    assert list(deployment.without_effect) == ["compute"]
    assert (home / "job" / "model" / "model" / "words.txt").read_text() == "hello"
    with pytest.raises(daskprs.OptionError, match=r"BatchDeployment: mini_batch_size: .* not 0"):
        BatchDeployment(model="scoring/model", mini_batch_size=0)


def test_a_model_may_be_a_single_file(home: Path) -> None:
    """Then it lies in the folder itself."""
    script = "import os\ndef run(files):\n    return os.listdir(os.environ['AZUREML_MODEL_DIR'])\n"
    (home / "script.py").write_text(script)
    deployment = BatchDeployment(model="scoring/model/words.txt", scoring_script="script.py")
    result = deployment.invoke("data", progress=False)
    assert Path(str(result.output_file)).read_text() == "words.txt\n"


def test_a_name_with_a_version_is_that_of_an_asset_where_no_path_has_it(home: Path) -> None:
    """Also without the prefix of references, as SDK v2 takes it."""
    (home / "script.py").write_text("def run(files):\n    return files\n")

    def deployed(model: str) -> BatchDeployment:
        assets = {"words": "scoring/model"}
        return BatchDeployment(model=model, scoring_script="script.py", assets=assets)

    for model in ("words:3", "words@latest"):
        found = deployed(model)._deployment
        assert (found.model, found.model_name) == (home / "scoring/model", "words")
    with pytest.raises(daskprs.OptionError, match=r"wods:3.*Nor .*--asset wods:3="):
        deployed("wods:3")
    (home / "words:3").write_text("own")
    assert deployed("words:3")._deployment.model == home / "words:3"


def test_a_script_that_looks_for_the_model_elsewhere_is_told_what_the_folder_contains(
    home: Path,
) -> None:
    """Published scripts expect the files of the model in the folder itself, or below its name."""
    script = "import os\ndef init():\n    open(os.environ['AZUREML_MODEL_DIR'] + '/words.txt')\n"
    (home / "script.py").write_text(script + "def run(files):\n    return files\n")
    deployment = BatchDeployment(model="scoring/model", scoring_script="script.py")
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        deployment.invoke("data", progress=False)
    assert str(caught.value).splitlines()[-1] == (
        "AZUREML_MODEL_DIR is a folder that contains the model, which is model: "
        "AZUREML_MODEL_DIR/model/words.txt. To load the model, the script joins both: "
        "os.path.join(os.environ['AZUREML_MODEL_DIR'], 'model')."
    )


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("raise ValueError(folder + '/model/words.txt: no words')", False),
        ("open(folder + '/cache', 'w'); open(folder + '/words.txt')", True),
        ("open(folder)", True),
    ],
)
def test_only_a_script_that_looks_elsewhere_is_told_where_the_model_is(
    home: Path, body: str, *, is_told: bool
) -> None:
    """It may also have written into the folder, or name a file of the model that it has found."""
    (home / "script.py").write_text(
        f"import os\ndef init():\n    folder = os.environ['AZUREML_MODEL_DIR']\n    {body}\n"
        "def run(files):\n    return files\n"
    )
    deployment = BatchDeployment(model="scoring/model", scoring_script="script.py")
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        deployment.invoke("data", progress=False)
    assert ("contains the model, which is model: " in str(caught.value)) == is_told


def test_a_kept_call_goes_on_with_the_model_of_the_job(home: Path) -> None:
    """The command that the failure ends with needs nothing else: the folder has no values."""
    driver = home / "scoring" / "code" / "driver.py"
    driver.write_text(DRIVER.replace("    sizes", "    raise ValueError\n    sizes"))
    failed = invoke("scoring/deployment.yml", "--input", "data", "--job-dir", "job")
    assert failed.exit_code == 42, failed.output
    driver.write_text(DRIVER)
    kept = (home / "job" / "job.json").read_text()
    assert '"ENDING"' in kept
    assert '"!"' not in kept
    told = failed.output.partition("same script and input: daskprs resume")[2]
    words = shlex.split(told.splitlines()[0])
    assert words[1:] == ["--deployment", str(home / "scoring" / "deployment.yml")]

    def called(*words: str) -> Result:
        return CliRunner().invoke(main, words, prog_name="daskprs")

    way = f"daskprs resume {shlex.join(words)}"
    assert way in called("status", "job").output
    assert way in called("report", "job", "--text").output
    alone = called("resume", "job")
    assert alone.exit_code == 2
    told = "Set them in the environment of this call, or give them by"
    assert f"{told} {shlex.join(words[1:])} or --environment-variable" in alone.output
    words = ["resume", *words, "--accept-changes", "script", "--quiet"]
    driver.write_text(DRIVER.replace("    sizes", "    raise ValueError\n    sizes"))
    again = called(*words)
    assert again.exit_code == 42
    assert f"same script and input: {way}\n" in again.output
    driver.write_text(DRIVER)
    done = called(*words)
    assert done.exit_code == 0, done.output
    assert (home / "job" / "output" / "predictions.csv").read_text() == SCORED


def test_a_mini_batch_that_only_runs_out_of_time_fails_the_job(home: Path) -> None:
    """Whatever the threshold of errors says."""
    script = "import time\ndef run(files):\n    time.sleep('b' in open(files[0]).read() and 1e6)\n"
    (home / "script.py").write_text(script + "    return files\n")
    deployment = BatchDeployment(
        scoring_script="script.py",
        mini_batch_size=1,
        retry_settings={"max_retries": 2, "timeout": 1},
    )
    with pytest.raises(daskprs.ParallelRunFailed, match="mini-batch 1 ran out of time in all its"):
        deployment.invoke("data", progress=False)


MISTAKES = """
name: greeting
type: model
model: modle
code_configuration:
  code: code
  scoring_script: drivr.py
resources: {instance_count: 0}
mini_batch_size: 2
settings:
  mini_batch_size: 3
  retry_settings: {timeout: 0, max_retry: 3}
  output_file_name: out/p.csv
"""


def test_every_mistake_is_told_before_anything_starts(home: Path) -> None:
    """In values, and in what they lead to."""
    file = home / "scoring" / "wrong.yml"
    file.write_text(MISTAKES)
    done = invoke("scoring/wrong.yml", "--input", "data")
    assert done.exit_code == 2
    told = [line.removeprefix("daskprs: ") for line in done.stderr.splitlines()]
    assert [line.split(": ")[:2] for line in told] == [
        ["scoring/wrong.yml:4:8", "model"],
        ["scoring/wrong.yml:7:19", "code_configuration.scoring_script"],
        ["scoring/wrong.yml:8:29", "resources.instance_count"],
        ["scoring/wrong.yml:12:29", "settings.retry_settings.timeout"],
        ["scoring/wrong.yml:12:32", "settings.retry_settings.max_retry"],
        ["scoring/wrong.yml:13:21", "settings.output_file_name"],
    ]
    good = MISTAKES.replace("count: 0", "count: 1").replace("timeout: 0, max_retry", "max_retries")
    file.write_text(good.replace("out/p.csv", "p.csv"))
    done = invoke("scoring/wrong.yml", "--input", "data")
    told = [line.removeprefix("daskprs: ") for line in done.stderr.splitlines()]
    assert [line.split(": ")[:2] for line in told] == [
        ["scoring/wrong.yml:4:8", "model"],
        ["scoring/wrong.yml:7:19", "code_configuration.scoring_script"],
        ["scoring/wrong.yml:9:18", "mini_batch_size"],
    ]
    assert "Did you mean" in told[0]
    assert "Did you mean" in told[1]
    assert "it stands in settings, too: 3" in told[2]


@pytest.mark.parametrize("given", ["table", "table/MLTable"])
def test_an_mltable_leads_nowhere(home: Path, given: str) -> None:
    """What is scored are the files that lie there, and it is one of them."""
    (home / "table").mkdir()
    (home / "table" / "MLTable").write_text("paths: [{file: /etc/hostname}]\n")
    done = invoke("scoring/deployment.yml", "--input", given, "--output-path", "scored")
    assert done.exit_code == 0, done.stderr
    assert (home / "scored" / "predictions.csv").read_text().count("\n") == 1
    attempts = next(home.glob("daskprs-jobs/*/logs/sys/job_report/processed_mini-batches.csv"))
    assert "MLTable" in attempts.read_text()
    assert "hostname" not in attempts.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--input", "dta"), "there is no file or folder .*dta'. Did you mean"),
        (("--input", "azureml:letters:1"), "--asset letters:1=PATH"),
        (("--input", "https://host/data"), "is not on this machine"),
        (
            ("--input", "data", "--input-type", "uri_file"),
            "uri_file: .*data is not a uri_file",
        ),
        (("--input", "data", "--set", "mini_batch_size"), "write NAME=VALUE"),
        (("--input", "data", "--set", "mini_batch_sise=3"), "mini_batch_sise: there is no key"),
        (("--input", "data", "--mini-batch-size", "x"), "mini_batch_size: input should be a valid"),
        (
            ("--input", "data", "--output-path", "there"),
            "csv exists.*another --output-path or --set",
        ),
        (("--input", "data", "--job-dir", "job"), "Go on with it by daskprs resume FOLDER"),
    ],
)
def test_what_is_refused_leaves_nothing(home: Path, words: tuple[str, ...], said: str) -> None:
    """Neither a job folder nor the model in it."""
    (home / "there").mkdir()
    (home / "there" / "predictions.csv").touch()
    (home / "job").mkdir()
    (home / "job" / "epoch.1").touch()
    (home / "job" / "journal.1").touch()
    before = sorted(home.rglob("*"))
    done = invoke("scoring/deployment.yml", *words)
    assert done.exit_code == 2
    assert pd.Series([done.stderr.replace("\n", " ")]).str.contains(said).all(), done.stderr
    assert sorted(home.rglob("*")) == before


PIPELINE = """
type: pipeline
inputs:
  letters: {type: uri_folder}
  mark: {type: string, default: "?"}
outputs:
  scores: {type: uri_folder}
jobs:
  mark:
    type: command
    command: >-
      for f in ${{inputs.data}}/*.txt; do echo $(cat $f)${{inputs.mark}}; done
      > ${{outputs.out}}/all
    inputs: {data: "${{parent.inputs.letters}}", mark: "${{parent.inputs.mark}}"}
    outputs: {out: "${{parent.outputs.scores}}"}
"""
OF_A_PIPELINE = """
name: marking
endpoint_name: marks
type: pipeline
component: pipeline.yml
settings: {continue_on_step_failure: false, default_compute: batch-cluster}
"""
INPUTS = """
inputs:
  letters: {type: uri_folder, path: data}
  mark: {type: string, default: "!"}
outputs:
  scores: {type: uri_folder, path: from_file, mode: upload}
"""


def test_a_deployment_of_a_pipeline_runs_it(home: Path) -> None:
    """Its inputs are given by name, on the command line or in a file."""
    (home / "scoring" / "pipeline.yml").write_text(PIPELINE)
    (home / "scoring" / "deployment.yml").write_text(OF_A_PIPELINE)
    (home / "inputs.yml").write_text(INPUTS)
    words = ("--input", "letters=data", "--output", "scores=told")
    done = invoke("scoring/deployment.yml", *words)
    assert done.exit_code == 0, done.output
    assert (home / "told" / "all").read_text() == "a?\nb?\n"
    done = invoke("scoring/deployment.yml", "--file", "inputs.yml")
    assert done.exit_code == 0, done.output
    assert (home / "from_file" / "all").read_text() == "a!\nb!\n"
    done = invoke("scoring/deployment.yml", "--input", "letters=data", "--mini-batch-size", "3")
    assert done.exit_code == 2
    assert "--mini-batch-size: only for a deployment of a model" in done.stderr
    with pytest.raises(daskprs.UsageError, match="run it by daskprs invoke"):
        BatchDeployment.load("scoring/deployment.yml")


def test_a_deployed_pipeline_that_failed_goes_on_by_the_command_that_is_told(home: Path) -> None:
    """All that it was given is in it."""
    text = PIPELINE.replace("for f in", f"test -e {home}/gate || exit 3; for f in")
    (home / "scoring" / "pipeline.yml").write_text(text)
    (home / "scoring" / "deployment.yml").write_text(OF_A_PIPELINE)
    given = ("--input", "letters=data", "--input", "mark=x y", "--output", "scores=told")
    given = (*given, "--overwrite")
    failed = invoke("scoring/deployment.yml", *given)
    assert failed.exit_code == 42
    told = failed.stderr.rpartition("To go on: ")[2].splitlines()[0]
    assert " --overwrite " in told  # steps that had not begun write yet
    (home / "gate").touch()
    done = CliRunner().invoke(main, shlex.split(told)[1:], prog_name="daskprs")
    assert done.exit_code == 0, done.output
    assert (home / "told" / "all").read_text() == "ax y\nbx y\n"


def test_a_deployment_names_the_file_of_its_pipeline(home: Path) -> None:
    """One that is written out in the deployment is told to be put into a file."""
    text = OF_A_PIPELINE.replace("component: pipeline.yml", "component: {type: pipeline, jobs: {}}")
    (home / "scoring" / "deployment.yml").write_text(text)
    done = invoke("scoring/deployment.yml", "--input", "letters=data")
    assert done.exit_code == 2
    assert "component: write it into a file of its own, and name that file here" in done.stderr


JOB = """
type: pipeline
experiment_name: marks
display_name: "marks: last"
compute: batch-cluster
component: pipeline.yml
inputs:
  letters: {type: uri_folder, path: azureml:letters@latest}
  mark: "."
"""


def test_a_deployment_may_name_the_pipeline_job_that_it_came_from(home: Path) -> None:
    """The job may consist of a component, and give inputs, which an invocation overrides."""
    (home / "scoring" / "pipeline.yml").write_text(PIPELINE)
    (home / "scoring" / "job.yml").write_text(JOB)
    text = OF_A_PIPELINE.replace("component: pipeline.yml", "job_definition: azureml:a_job")
    (home / "scoring" / "deployment.yml").write_text(text)
    assets = ("--asset", "a_job=scoring/job.yml", "--asset", "letters=data")
    done = invoke("scoring/deployment.yml", "--output", "scores=told", *assets)
    assert done.exit_code == 0, done.output
    assert (home / "told" / "all").read_text() == "a.\nb.\n"
    words = ("--input", "letters=azureml:others:1", "--asset", "others=data/below")
    done = invoke("scoring/deployment.yml", "--output", "scores=again", *words, *assets)
    assert done.exit_code == 0, done.output
    assert (home / "again" / "all").read_text() == "c.\n"
    (home / "below").mkdir()
    (home / "below" / "job.yml").write_text(JOB.replace("pipeline.yml", "../scoring/pipeline.yml"))
    words = ("--set", "inputs.letters.path=../data/below", "--output", "scores=set")
    done = CliRunner().invoke(main, ["run", "below/job.yml", *words])
    assert done.exit_code == 0, done.output
    assert (home / "set" / "all").read_text() == "c.\n"
    records = [path.read_text() for path in home.glob("daskprs-jobs/*/pipeline.json")]
    assert all('"pipeline": "marks: last"' in one for one in records)


def test_a_deployment_of_a_model_is_given_one_input(home: Path) -> None:
    """Whatever it is called in a file."""
    (home / "inputs.yml").write_text(INPUTS.replace('  mark: {type: string, default: "!"}\n', ""))
    done = invoke("scoring/deployment.yml", "--file", "inputs.yml")
    assert done.exit_code == 0, done.output
    assert (home / "from_file" / "predictions.csv").read_text() == SCORED
    done = invoke("scoring/deployment.yml", "--input", "data", "--input", "more")
    assert done.exit_code == 2
    assert "a deployment of a model has one --input" in done.stderr
    assert "Here are 2 and 0." in done.stderr
