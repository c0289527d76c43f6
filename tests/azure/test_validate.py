"""`daskprs validate`: every mistake in a file, in one go."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from daskprs._cli import main
from daskprs.azure._assets import Assets
from daskprs.azure._validation import validate as verdict_on

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = "def run(mini_batch):\n    return mini_batch\n"
PIPELINE = """
type: pipeline
inputs:
  data: {type: uri_folder, path: data}
jobs:
  idle:
    type: parallel
    mini_batch_size: 10 tb
    max_concurrency_per_instance: 0
    retry_settings: {timeout: 0}
    resources: {instance_count: 0}
    inputs: {files: {type: uri_folder, path: data}}
    input_data: ${{inputs.files}}
    task: {type: run_function, code: src, entry_script: score.py}
  lacking:
    type: parallel
    inputs: {files: {type: uri_folder, path: data}}
    task: {type: run_function, code: src, entry_script: score.py}
  of_a_file:
    type: parallel
    input_data: ${{inputs.files}}
    inputs: {files: {type: uri_file, path: data/a.txt}}
    task: {type: run_function, code: src, entry_script: score.py}
    mini_batch_sise: 3
"""
GOOD_PIPELINE = """
type: pipeline
inputs:
  data: {type: uri_folder}
jobs:
  score:
    type: parallel
    input_data: ${{inputs.files}}
    inputs: {files: "${{parent.inputs.data}}"}
    compute: azureml:cluster
    task:
      type: run_function
      code: src
      entry_script: score.py
      program_arguments: --resource_monitor_interva 3
"""
COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/parallelComponent.schema.json
type: parallel
inputs:
  one: {type: uri_file}
outputs:
  scores: {type: uri_folder}
input_data: ${{inputs.one}}
task:
  type: run_function
  code: src
  entry_script: scor.py
  append_row_to: ${{outputs.score}}
  program_arguments: --model ${{inputs.modle}}
"""
COMMAND = """
type: command
inputs: {data: {type: uri_folder}}
code: src
command: python prepare.py --data ${{inputs.dta}}
"""
CONFIG = """
parallel_run_config:
  environment: env
  entry_script: scor.py
  source_directory: src
  error_threshold: -2
  output_action: append_rows
  compute_target: cluster
  node_count: 0
  mini_batch: 3
"""
DEPLOYMENT = """
type: model
model: {pth: model}
code_configuration: {code: src, scoring_script: score.py}
settings: {max_concurrency_per_instance: 0, retry_settings: {timeout: 0}}
"""
OF_A_LIST = """
code_configuration: {code: src, scoring_script: score.py}
output_action: []
"""
MLTABLE = """
type: mltable
paths:
  - file: ./a.csv
  - file: ./b.csv
transformations:
  - read_delimited: {delimiter: ",", partition_size: 0}
  - keep_colums: [a]
"""
GOOD_MLTABLE = """
$schema: https://azuremlschemas.azureedge.net/latest/MLTable.schema.json
paths:
  - file: ./a.csv
transformations:
  - read_delimited: {delimiter: ","}
metadata: {author: somebody}
"""
OF_A_PIPELINE = "type: pipeline\ncomponent: {}\nsettings: {{default_compute: cluster}}\n"
FILES = {
    "src/score.py": SCRIPT,
    "src/prepare.py": "",
    "data/a.txt": "a",
    "pipeline.yml": PIPELINE,
    "good.yml": GOOD_PIPELINE,
    "component.yml": COMPONENT,
    "command.yml": COMMAND,
    "config.yml": CONFIG,
    "deployment.yml": DEPLOYMENT,
    "of_a_list.yml": OF_A_LIST,
    "deployed.yml": OF_A_PIPELINE.format("good.yml"),
    "undeployed.yml": OF_A_PIPELINE.format("god.yml"),
    "table/MLTable": MLTABLE,
    "table/a.csv": "a\n1\n",
    "good_table/MLTable": GOOD_MLTABLE,
    "good_table/a.csv": "a\n1\n",
    "strange.yml": "colour: red\n",
    "list.yml": "- a\n",
    "endpoint.yml": "name: letters\nauth_mode: aad_token\n",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with all files."""
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text.lstrip("\n"))
    return tmp_path


def validate(*words: str) -> Result:
    """Call ``daskprs validate`` as a shell would."""
    return CliRunner().invoke(main, ("validate", *words), prog_name="daskprs")


@pytest.mark.parametrize(
    ("file", "places"),
    [
        (
            "pipeline.yml",
            [
                "7:22: jobs.idle.mini_batch_size",
                "8:35: jobs.idle.max_concurrency_per_instance",
                "9:31: jobs.idle.retry_settings.timeout",
                "10:33: jobs.idle.resources.instance_count",
                "15:5: jobs.lacking.input_data",
                "20:17: jobs.of_a_file.input_data",
                "23:5: jobs.of_a_file.mini_batch_sise",
            ],
        ),
        (
            "component.yml",
            [
                "7:13: input_data",
                "11:17: task.entry_script",
                "12:18: task.append_row_to",
                "13:22: task.program_arguments",
            ],
        ),
        ("command.yml", ["4:10: command"]),
        (
            "config.yml",
            [
                "3:17: parallel_run_config.entry_script",
                "5:20: parallel_run_config.error_threshold",
                "6:18: parallel_run_config.output_action",
                "8:15: parallel_run_config.node_count",
                "9:3: parallel_run_config.mini_batch",
            ],
        ),
        ("of_a_list.yml", ["2:16: output_action"]),
        (
            "deployment.yml",
            [
                "2:9: model.pth",
                "4:42: settings.max_concurrency_per_instance",
                "4:71: settings.retry_settings.timeout",
            ],
        ),
        ("undeployed.yml", ["2:12: component"]),
        ("strange.yml", ["1:1: this is not one of these files"]),
        ("list.yml", ["1:1: it is not a mapping of keys"]),
    ],
)
def test_every_mistake_has_its_place(file: str, places: list[str]) -> None:
    """In the order of the file."""
    done = validate(file)
    assert done.exit_code == 2, done.output
    found = [re.sub(r"^\S*?([\w.]+yml:)", r"\1", line) for line in done.stdout.splitlines()]
    expected = [f"{file}:{place}" for place in places]
    assert [line[: len(begin)] for line, begin in zip(found, expected, strict=True)] == expected


def test_a_mistake_in_a_pipelines_own_keys_hides_none_in_its_steps() -> None:
    """They are told together."""
    text = GOOD_PIPELINE.replace("jobs:", "setings: {}\njobs:").replace("    input_data", "    # ")
    Path("pipeline.yml").write_text(text.replace("score.py", "scor.py"))
    done = validate("pipeline.yml", "--input", "data=data")
    assert done.exit_code == 2
    assert "setings: there is no key 'setings'; did you mean 'settings'?" in done.stdout
    assert "jobs.score.input_data: it is missing" in done.stdout
    assert "jobs.score.task.entry_script: the entry script 'scor.py' does not exist" in done.stdout


def test_what_azures_client_lets_pass_is_a_mistake() -> None:
    """A step without input_data, one that cuts a file: found when the keys themselves are right."""
    text = PIPELINE.replace("10 tb", "10").replace("instance: 0", "instance: 1")
    text = text.replace("timeout: 0", "timeout: 1").replace("count: 0", "count: 1")
    Path("pipeline.yml").write_text(text.replace("    mini_batch_sise: 3\n", ""))
    done = validate("pipeline.yml")
    assert done.exit_code == 2
    assert "jobs.lacking.input_data: it is missing" in done.stdout
    assert "jobs.of_a_file.input_data: ${{inputs.files}} is a uri_file" in done.stdout


@pytest.mark.parametrize("words", [("good.yml", "--input", "data=data"), ("deployed.yml",)])
def test_warnings_are_no_mistakes(home: Path, words: tuple[str, ...]) -> None:
    """A misspelt system flag goes to the script, and keys without effect are named.

    Inputs of a deployment are given when it is invoked.
    """
    before = sorted(home.rglob("*"))
    done, file = validate(*words), words[0]
    assert done.exit_code == 0, done.output
    assert "resource_monitor_interval" in done.stdout
    assert "ompute" in done.stdout
    assert f"{file}: nothing is wrong with this " in done.stdout
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "good", "place"),
    [
        (
            "deployment.yml",
            "code_configuration: {code: src, scoring_script: score.py}\n",
            "1:49: code_configuration.scoring_script",
        ),
        (
            "component.yml",
            COMPONENT.replace("uri_file", "uri_folder")
            .replace("scor.py", "score.py")
            .replace("outputs.score", "outputs.scores")
            .replace("inputs.modle", "inputs.one"),
            "11:17: task.entry_script",
        ),
    ],
)
def test_modules_that_are_missing_are_named(file: str, good: str, place: str) -> None:
    """Each with the line that imports it; without them nothing is wrong."""
    Path(file).write_text(good.lstrip("\n"))
    assert validate(file).exit_code == 0
    Path("src/score.py").write_text(f"import there_is_no_such\n{SCRIPT}")
    done = validate(file)
    assert done.exit_code == 2
    assert f"{file}:{place}: " in done.stdout
    assert " imports what this Python " in done.stdout
    assert "there_is_no_such (" in done.stdout
    assert "score.py, line 1)" in done.stdout


def test_an_mltable_is_named_by_its_folder() -> None:
    """Or by the file in it."""
    done = validate("table", "good_table/MLTable")
    assert done.exit_code == 2
    assert "table/MLTable:6:54: transformations[0].read_delimited.partition_size: " in done.stdout
    assert "table/MLTable:7:5: transformations[1].keep_colums: there is no key" in done.stdout
    assert "good_table/MLTable: nothing is wrong with this MLTable." in done.stdout
    assert "without effect here: metadata." in done.stdout


JUNK = [
    *(None, 0, -1, 1.5, True, "", "x", "${{inputs.a", "${{parent.inputs.data}}", [], [1], {}),
    *({"a": 1}, "azureml:x:1", "azureml://datastores/a/paths/../x", "../..", "\0", "e" * 300),
    *("https://host/y", 10**30, float("nan"), "/", ".", ["${{name}}"], {"type": "pipeline"}),
]


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value in a value."""
    if way:
        yield way
    pairs = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else pairs:
        yield from ways(one, (*way, key))


@given(
    text=st.sampled_from([text for file, text in FILES.items() if file.endswith("yml")]),
    picks=st.lists(st.tuples(st.integers(0, 100), st.sampled_from(JUNK)), min_size=1, max_size=3),
)
def test_whatever_a_file_holds_there_is_a_verdict(text: str, picks: list[Any]) -> None:
    """Values of a file are replaced by others: what is wrong is told with the file's name."""
    content = yaml.safe_load(text)
    for number, junk in picks:
        known = list(ways(content))
        *above, last = known[number % len(known)] if known else [0]
        holder = reduce(getitem, above, content)
        if known:
            holder[last] = deepcopy(junk)
    Path("made.yml").write_text(yaml.safe_dump(content, allow_unicode=True))
    verdict = verdict_on("made.yml", Assets())
    assert all(line for line in verdict.wrong)
    assert verdict.kind or verdict.wrong


def test_several_files_are_checked_in_one_go() -> None:
    """One that is wrong decides."""
    done = validate("endpoint.yml", "command.yml", "endpont.yml", "src")
    assert done.exit_code == 2
    assert "endpoint.yml: nothing is wrong with this batch endpoint" in done.stdout
    assert "command.yml:4:10: command: " in done.stdout
    assert "endpont.yml: it cannot be read" in done.stdout
    assert "Did you mean 'endpoint.yml'" in done.stdout
    assert "src: this folder has no MLTable. Name files: src/*.yml\n" in done.stdout


SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/{}.schema.json\n"


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (SCHEMA.format("managedOnlineEndpoint") + "auth_mode: aad_token\n", "online endpoint", 1),
        ("name: a\nauth_mode: key\ntraffic: {b: 1}\n", "online endpoint", 1),
        (SCHEMA.format("managedOnlineDeployment") + "model: {path: m}\n", "online deployment", 1),
        ("endpoint_name: a\nmodel: m\ninstance_type: x\n", "online deployment", 1),
        (SCHEMA.format("commandJob") + "command: echo\n", "command job", 1),
        ("command: echo\nexperiment_name: e\n", "command job", 1),
        ("type: sweep\ntrial: {command: echo}\n", "sweep job", 1),
        ("type: automl\ntask: classification\n", "AutoML job", 1),
        ("type: spark\ncode: src\n", "Spark job or component", 1),
        ("type: finetuning\n", "fine-tuning job", 1),
        ("inputs: {}\noutputs: {}\nnodes: []\n", "prompt flow", 1),
        (SCHEMA.format("Run") + "flow: .\ndata: d.jsonl\n", "run of a prompt flow", 1),
        (SCHEMA.format("batchEndpoint") + "name: a\ndescription: b\n", "batch endpoint", 0),
        ("name: a\ntype: batch\nauth_mode: aad_token\ntraffic: {b: 1}\n", "batch endpoint", 0),
        (SCHEMA.format("data") + "name: a\ntype: mltable\npath: ./t\n", "data asset", 0),
        ("name: a\ntype: uri_folder\npath: ./t\n", "data asset", 0),
        ("name: a\ntype: mlflow_model\npath: ./t\n", "model asset", 0),
        ("name: a\nimage: ubuntu\nconda_file: c.yml\n", "environment", 0),
        ("channels: [c]\ndependencies: [python=3.8]\n", "environment", 0),
        ("name: c\ntype: amlcompute\nsize: s\n", "compute", 0),
        ("name: c\ntype: azure_blob\naccount_name: s\n", "datastore", 0),
        ("name: c\ntrigger: {}\ncreate_job: a.yml\n", "schedule", 0),
        ("name: c\ntype: git\ntarget: t\ncredentials: {}\n", "resource of a workspace", 0),
        ("inputs: {a: 1}\n", "inputs of an invocation", 0),
        ("on: {push: {}}\njobs: {}\n", "", 1),
        ("paths: {train: a}\n", "", 1),
        ("model: m\ntask: embeddings\n", "", 1),
        ("trigger: [main]\njobs: [{job: a}]\n", "", 1),
        ("pool: {vmImage: u}\nsteps: [{script: a}]\n", "", 1),
        ("apiVersion: v2\nname: a\ndependencies: [{name: b}]\n", "", 1),
        ("image: {repository: a, tag: b}\n", "", 1),
        ("name: a\nversion: 1\ntype: model\nspec: spec.yaml\n", "", 1),
        ("services: {a: {image: b}}\n", "", 1),
    ],
)
def test_kinds_of_files_are_told_apart(text: str, kind: str, told: int) -> None:
    """By the schema, or by keys; each says what it is, and what is done with it."""
    Path("made.yml").write_text(text)
    verdict = verdict_on("made.yml", Assets())
    assert (verdict.kind, len(verdict.wrong)) == (kind, told)
    (line,) = verdict.wrong or verdict.warnings
    assert line.startswith("made.yml:1:1: ")
    shown = validate("made.yml").stdout
    assert line in shown
    assert ("nothing is wrong" in shown) == (kind == "batch endpoint")


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ({"outputs": {"o": {"type": "uri_folder", "mode": "mount"}}}, "outputs.mode"),
        ({"inputs": {"n": {"value": 3}}}, ""),
        ({"is_deterministic": False}, "5:5: warning: jobs.a.is_deterministic: Azure only"),
        ({"$schema": "commandComponent"}, r"\$schema: the schema is that of another kind \(comp"),
        ({"$schema": "environment"}, r"schema is .* kind \(environment\), and type is 'pipeline'"),
    ],
)
def test_what_the_loaders_of_the_sdk_take_is_taken(change: dict[str, Any], warned: str) -> None:
    """What they refuse and is done here is a warning; a type counts more than a schema."""
    step = {"type": "command", "command": "echo", **change}
    schema = {"$schema": SCHEMA.split()[1].format(step.pop("$schema", "pipelineJob"))}
    content = {"type": "pipeline", "jobs": {"a": step}}
    Path("made.yml").write_text(yaml.safe_dump({**content, **schema}))
    verdict = verdict_on("made.yml", Assets())
    assert (verdict.kind, verdict.wrong) == ("pipeline", [])
    assert re.search(warned, "\n".join(verdict.warnings))


def test_keys_that_only_components_have(home: Path) -> None:
    """`is_deterministic` of a pipeline, and `output_data` of a parallel step."""
    text = "$schema: https://s/pipeline{}.schema.json\njobs: {{a: {{command: echo}}}}\n"
    (home / "p.yml").write_text(text.format("Component") + "is_deterministic: false\n")
    assert verdict_on("p.yml", Assets()).wrong == []
    component = "type: pipeline\njobs: {a: {command: echo}}\nis_deterministic: false\n"
    (home / "p.yml").write_text(component)
    assert verdict_on("p.yml", Assets()).wrong == []  # `load_component` needs no schema
    (home / "p.yml").write_text(text.format("Job") + "is_deterministic: false\nname: [1]\n")
    wrong, other = verdict_on("p.yml", Assets()).wrong
    assert "p.yml:3:19: is_deterministic: only a component has this key" in wrong
    assert "p.yml:4:7: name: " in other
    (home / "q.yml").write_text(
        "type: parallel\ninputs: {d: {type: uri_folder}}\noutputs: {o: {type: uri_file}}\n"
        "input_data: ${{inputs.d}}\noutput_data: ${{outputs.o}}\n"
        "task: {type: run_function, code: src, entry_script: score.py}\n"
    )
    verdict = verdict_on("q.yml", Assets())
    assert (verdict.wrong, ["output_data" in one for one in verdict.warnings]) == ([], [True])


def test_a_command_may_import_a_name_that_is_not_built(home: Path) -> None:
    """The import works, and only a use of the name would fail."""
    (home / "src/train.py").write_text("from azureml.core import Keyvault, Run\n")
    step = {"type": "command", "code": "src", "command": "python train.py"}
    (home / "w.yml").write_text(yaml.safe_dump({"jobs": {"a": step}}))
    assert verdict_on("w.yml", Assets()).wrong == []


def test_a_script_of_a_parallel_step_reaches_no_workspace_either(home: Path) -> None:
    """It is refused before the first step, as that of a command."""
    (home / "src/score.py").write_text(
        "from azureml.core import Run\ndef init():\n    Run.get_context().experiment\n"
        "def run(mini_batch):\n    return mini_batch\n"
    )
    task = {"type": "run_function", "code": "src", "entry_script": "score.py"}
    step = {"type": "parallel", "input_data": "${{inputs.d}}", "mini_batch_size": "1", "task": task}
    step["inputs"] = {"d": {"type": "uri_folder", "path": "src"}}
    (home / "w.yml").write_text(yaml.safe_dump({"jobs": {"a": step}}))
    told = "\n".join(verdict_on("w.yml", Assets()).wrong)
    assert "Run.get_context().experiment (" in told
    assert told.endswith("which is registered after the run")


def test_what_is_no_batch_deployment_is_told_by_its_name() -> None:
    """Instead of each of its keys."""
    Path("online.yml").write_text("endpoint_name: a\nmodel: m\ninstance_type: x\n")
    done = CliRunner().invoke(main, ("invoke", "online.yml", "--input", "data"))
    assert done.exit_code == 2
    assert "online.yml:1:1: this is an online deployment: nothing here answers" in done.output
    Path("endpoint.yml").write_text("name: a\nauth_mode: aad_token\n")
    done = CliRunner().invoke(main, ("invoke", "endpoint.yml", "--input", "data"))
    assert "endpoint.yml:1:1: this is a batch endpoint: give a file of one of its" in done.output


def test_settings_of_a_pipeline_component_may_wait_for_its_inputs(home: Path) -> None:
    """Nothing that depends on an input without a value is a mistake; what is wrong is one."""
    text = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
inputs: {word: {type: string}, count: {type: integer}, data: {type: uri_folder}}
jobs:
  score:
    type: parallel
    input_data: ${{inputs.files}}
    inputs: {files: "${{parent.inputs.data}}"}
    environment_variables: {WORD: "${{parent.inputs.word}}", TWO: "${{parent.inputs.word}}-2"}
    resources: {instance_count: "${{parent.inputs.count}}"}
    mini_batch_size: ${{parent.inputs.count}}kb
    task: {type: run_function, code: src, entry_script: score.py}
"""
    (home / "c.yml").write_text(text)
    assert verdict_on("c.yml", Assets()).wrong == []
    (home / "c.yml").write_text(text.replace("inputs.word}}-2", "inputs.wrod}}-2"))
    (wrong,) = verdict_on("c.yml", Assets()).wrong
    assert "c.yml:10:67: jobs.score.environment_variables.TWO: ${{parent.inputs.wrod}}" in wrong


def test_mistakes_in_files_are_shown_with_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line and column as numbers, and a file without mistakes with none."""
    monkeypatch.chdir(tmp_path)
    Path("wrong:1.yml").write_text("type: pipeline\njobs:\n  a:\n    type: paralel\n")
    (tmp_path / "fine").mkdir()
    Path("fine/MLTable").write_text("paths:\n  - pattern: ./*.csv\n")
    Path("fine/a.csv").touch()
    done = validate("wrong:1.yml", "fine", "nothing.yml", "--json")
    assert done.exit_code == 2, done.output
    wrong, fine, missing = json.loads(done.stdout)
    assert wrong["file"] == "wrong:1.yml"
    (mistake,) = wrong["mistakes"]
    assert (mistake["file"], mistake["line"], mistake["column"]) == ("wrong:1.yml", 4, 11)
    assert mistake["message"].startswith("jobs.a.type: ")
    assert fine == {"file": "fine", "kind": "MLTable", "mistakes": [], "warnings": []}
    assert missing["mistakes"]


def test_a_working_directory_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the other commands."""
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    done = validate("pipeline.yml")
    monkeypatch.chdir(tmp_path)
    assert done.exit_code == 2, done.output
    assert "the working directory of this process was removed" in done.output
