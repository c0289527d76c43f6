"""Pipeline files: everything that is wrong is told before anything starts, each with its place."""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from daskprs.azure import run_pipeline
from daskprs.azure._assets import Assets
from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command, world_of_one
from daskprs.azure._pipelines.file import Pipeline, read_pipeline
from daskprs.azure._pipelines.parallel_step import read_task, written
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure._stand_ins.here import stand_in_folder
from daskprs.azure._task import Task
from daskprs.azure._yaml_files.document import Document
from daskprs.errors import YamlError

SCORE = """\
type: pipeline
inputs:
  nodes: 2
  data: {type: uri_folder, path: ./data}
outputs:
  rows: {type: uri_file}
settings: {default_datastore: azureml:blobs}
jobs:
  score:
    type: parallel
    inputs:
      data: ${{parent.inputs.data}}
      model: {type: uri_folder, path: ./model}
      words: a b
    outputs:
      rows: ${{parent.outputs.rows}}
      more: {path: "azureml://datastores/${{default_datastore}}/paths/${{name}}/more"}
    mini_batch_size: "5"
    resources: {instance_count: "${{parent.inputs.nodes}}"}
    input_data: ${{inputs.data}}
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      program_arguments: >-
        --model ${{inputs.model}}/m.txt --words ${{inputs.words}} --allowed_failed_percent 30
        --more "${{outputs.more}}"
      append_row_to: ${{outputs.rows}}
"""
OF_A_PATH = "score.inputs.words: it has to be of type integer, and this is a path that a step"
ROWS = """\
inputs: {data: {type: uri_folder}}
outputs: {rows: {type: mltable}}
input_data: ${{inputs.data}}
mini_batch_size: "1"
type: parallel
task: {type: run_function, code: ./src, entry_script: score.py, append_row_to: "${{outputs.rows}}"}
"""
AROUND = """\
type: pipeline
inputs: {data: {type: uri_folder}}
outputs: {rows: {type: mltable}}
jobs:
  leaf:
    component: ./rows.yml
    inputs: {data: "${{parent.inputs.data}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
"""
OUTERMOST = AROUND.replace("{type: mltable}", "{type: uri_file}").replace("r}", "r, path: data}")
"""The same with a file in place of the folder."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a script, data and a model, and work in it."""
    for folder in ("src", "data", "model"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src/score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (tmp_path / "data/1.txt").write_text("1")
    (tmp_path / "model/m.txt").write_text("m")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, assets: Assets | None = None, **given: Any) -> Pipeline:
    """Read a pipeline file with this text."""
    Path("p.yml").write_text(text)
    return read_pipeline("p.yml", PipelineFolder("run"), CallerInputs(assets or Assets(), **given))


def refused(text: str, assets: Assets | None = None, **given: Any) -> str:
    """Return why a pipeline file is refused."""
    with pytest.raises(YamlError) as caught:
        read(text, assets, **given)
    return str(caught.value)


def task(pipeline: Pipeline, step: str = "score") -> Task:
    """Return what a parallel step runs."""
    work = pipeline.steps[step].work
    assert isinstance(work, Task)
    return work


def command(pipeline: Pipeline, step: str) -> Command:
    """Return what a command step runs."""
    work = pipeline.steps[step].work
    assert isinstance(work, Command)
    return work


def test_a_parallel_step_becomes_a_task_with_its_surface_s_defaults(home: Path) -> None:
    """What is not said is as it is documented for parallel jobs."""
    made = task(read(SCORE))
    assert made.names_output
    more = home / "run/pipeline.datastores/blobs/run.score/more"
    assert made.options == {
        "input_type": "files",
        "mini_batch_size": "5",
        "node_count": 2,
        "logging_level": "INFO",
        "allowed_failed_count": -1,
        "allowed_failed_percent": 30,
        "run_max_try": 3,
        "run_invocation_timeout": 60,
        "arguments": [
            *("--model", f"{home}/model/m.txt", "--words", "a b"),
            *("--allowed_failed_percent", "30", "--more", str(more)),
        ],
        "environment_variables": {
            "AZURE_ML_INPUT_data": str(home / "data"),
            "AZURE_ML_INPUT_model": str(home / "model"),
            "AZURE_ML_INPUT_words": "a b",
            "AZURE_ML_OUTPUT_rows": str(home / "run/pipeline.outputs/rows"),
            "AZURE_ML_OUTPUT_more": str(more),
        },
        "side_inputs": {"model": str(home / "model")},
        "output_action": "append_row",
        "append_row_file_name": "rows",
    }
    assert made.data == str(home / "data")
    assert made.output_dir == home / "run/pipeline.outputs"
    assert made.job_dir == home / "run/score"


def test_only_a_step_that_takes_a_table_needs_its_file(home: Path) -> None:
    """A folder may be called an mltable, as published notebooks call it."""
    text = SCORE.replace("{type: uri_folder, path: ./data}", "{type: mltable, path: ./data}")
    wrong = "p.yml:12:13: jobs.score.inputs.data: .*/data is not an mltable: it has no file MLTable"
    assert re.fullmatch(wrong, refused(text))
    taken = text.replace("data: ${{parent.inputs.data}}", "data: {type: uri_folder, path: X}")
    assert task(read(taken.replace("X", "'${{parent.inputs.data}}'"))).data == str(home / "data")


@pytest.mark.usefixtures("home")
def test_a_number_may_be_bound_by_path() -> None:
    """Dumps of the azure-ai-ml package write every binding so."""
    step = """
type: pipeline
inputs: {last: 4}
jobs:
  count:
    type: command
    inputs: {n: {path: "${{parent.inputs.last}}"}}
    component:
      inputs: {n: {type: integer}}
      command: seq ${{inputs.n}}
"""
    assert command(read(step), "count").line == "seq 4"
    text = refused(step.replace("last: 4", "last: four"))
    assert text.endswith("jobs.count.inputs.n: it has to be of type integer, not 'four'")
    typed = step.partition("    component")[0].replace('{path: "', '{type: integer, path: "')
    assert command(read(f"{typed}    command: seq ${{{{inputs.n}}}}"), "count").line == "seq 4"
    text = refused(f"{typed.replace('last: 4', 'last: four')}    command: seq ${{{{inputs.n}}}}")
    assert text.endswith("jobs.count.inputs.n: it has to be of type integer, not 'four'")


def test_values_in_python_are_read_as_their_file_is(home: Path) -> None:
    """Beside a folder that their paths start from; messages name the keys."""
    values, given = yaml.safe_load(SCORE), CallerInputs(Assets())
    document = Document.of_values(values, "scoring", home)
    made = read_pipeline(document, PipelineFolder("run"), given)
    assert task(made) == task(read(SCORE))
    values["jobs"]["score"]["task"]["entry_script"] = "gone.py"
    document = Document.of_values(values, "scoring", home)
    with pytest.raises(YamlError, match=r"^scoring: jobs\.score\.task\.entry_script: .*gone\.py"):
        read_pipeline(document, PipelineFolder("run"), given)


def test_overrides_inputs_and_outputs_change_a_file(home: Path) -> None:
    """Whatever is in it; paths that are given are relative to the working directory."""
    (home / "other").mkdir()
    (home / "other/2.txt").write_text("2")
    pipeline = read(
        SCORE,
        overrides=("jobs.score.mini_batch_size=7", "jobs.score.retry_settings.max_retries=0"),
        inputs={"nodes": "1", "data": "other"},
        outputs={"rows": "scored.txt", "score.more": "here"},
    )
    made = task(pipeline)
    assert (made.options["mini_batch_size"], made.options["run_max_try"]) == ("7", 1)
    assert made.options["node_count"] == 1
    assert made.data == str(home / "other")
    assert (made.output_dir, made.options["append_row_file_name"]) == (home, "scored.txt")
    assert made.options["arguments"][-1] == str(home / "here")


@pytest.mark.usefixtures("home")
def test_every_mistake_is_told_in_one_go() -> None:
    """With file, line, column, the rule, the value, and the nearest known name."""
    text = SCORE.replace("mini_batch_size: ", "mini_batch_sise: ").replace("data: ./", "")
    text = text.replace("inputs:\n  nodes", "inputs:\n  far: {path: azureml:far:1}\n  nodes", 1)
    text = text.replace("./data", "./dat") + (
        "  two: {command: x, inputs: {a: '${{parent.inputs.b}}'}}\n"
        "  three: {command: 'cat ${{inputs.a}}', inputs: {a: '${{parent.inputs.far}}'}}\n"
    )
    told = refused(text, inputs={"nods": "3"}, outputs={"row": "x"}).splitlines()
    missing = f"the file or folder {Path.cwd()}/dat does not exist."
    sise = "there is no key 'mini_batch_sise'; did you mean 'mini_batch_size'?"
    unknown = "${{parent.inputs.b}}: there is no input 'b'; known are far, nodes, data"
    far = "azureml:far:1: the place of this asset is unknown. Give its place by"
    assert told == [
        "p.yml:1:1: --input nods: there is no input 'nods'; did you mean 'nodes'?",
        "p.yml:1:1: --output row: there is no output 'row'; did you mean 'rows'?",
        f"p.yml:3:15: inputs.far.path: {far} --asset far:1=PATH, or in a mapping file by --assets.",
        f"p.yml:5:34: inputs.data.path: {missing} Did you mean '{Path.cwd()}/data'?",
        f"p.yml:19:5: jobs.score.mini_batch_sise: {sise}",
        f"p.yml:30:33: jobs.two.inputs.a: {unknown}",
    ]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"5"', '"5kbmb"', "jobs.score.mini_batch_size: mini_batch_size='5kbmb': must be"),
        ("type: parallel", "type: spark", "a step of type 'spark' cannot be run here"),
        ("type: parallel", "type: paralel", "no type 'paralel'. Did you mean parallel?"),
        ("  score:", "  ../score:", "'../score' is not a name"),
        ("      more:", "      ../more:", "'../more' is not a name"),
        ("      more:", f"      {'m' * 201}:", "it has more than 200 characters: use a shorter"),
        ("path: ./model", f"path: ./{'m' * 256}", "inputs.model.path: 'mmm"),
        ("}}/more", f"}}}}.{'m' * 250}", "has 260 bytes, and the name of a file or folder has at"),
        ("code: ./src", f"code: ./{'ä' * 128}", "jobs.score.task.code: 'äää"),
        ('/more"', '/../../more"', "the path climbs out of the datastore 'blobs'"),
        ("score.py", "scor.py", "script 'scor.py' does not exist. Did you mean 'score.py'?"),
        ("entry_script: score.py", "x: 1", "jobs.score.task.x: there is no key 'x'"),
        ("      entry_script: score.py\n", "", "jobs.score.task.entry_script: it is missing"),
        ("    input_data: ${{inputs.data}}\n", "", "jobs.score.input_data: it is missing"),
        ("input_data: ${{inputs.data}}", "input_data: ./data", "has to be one expression"),
        ("input_data: ${{inputs.data}}", "input_data: ${{inputs.dat}}", "did you mean 'data'?"),
        ("input_data: ${{inputs.data}}", "input_data: ${{inputs.words}}", "not a folder or an"),
        ("{type: uri_folder, path: ./data}", "{type: uri_file, path: ./data/1.txt}", "uri_file"),
        (
            "append_row_to: ${{outputs.rows}}",
            "append_row_to: ${{outputs.row}}",
            "did you mean 'rows'",
        ),
        ("program_arguments: >-", "program_arguments: >-\n        'open", "No closing quotation"),
        ("percent 30", "percent 300", "--allowed_failed_percent 300: must be a number from 0 to"),
        ("nodes: 2", "nodes: 0", "resources.instance_count: it has to be at least 1, or -1"),
        ("parent.inputs.nodes", "parent.inputs.node", "cannot stand here; inputs of the pipeline"),
        ("words: a b", "words: ${{parent.jobs.prep.outputs.o}}", "the step 'prep' does not exist"),
        ("words: a b", "words: ${{parent.jobs.score.outputs.rows}}", "score → score"),
        ("words: a b", "words: ${{parent.jobs.score.inputs.words}}", "depend on themselves"),
        ("words: a b", "words: ${{input.words}}", "expression is unknown; known are inputs.<name>"),
        ("words: a b", "words: ${{inputs.words", "}} is missing"),
        ("--words ${{inputs.words}}", "-n ${{inputs.nodes}}", "write ${{parent.inputs.nodes}}"),
        ("path: ./model", 'path: "./mo\\0del"', "it has a null character in it"),
        ("path: ./model", "path: azureml:m:1", "--asset m:1=PATH, or in a mapping file"),
        ("path: ./model", "path: https://x.org/m.zip", "--asset https://x.org/m.zip=PATH"),
        ("path: ./model", "path: azureml://datastores/x/paths/m", "--datastore x=FOLDER, or"),
        ("path: ./model", "path: ./model, type: mltable", "this key is in line"),
        ("uri_folder, path: ./model", "mltable, path: ./model", "it has no file MLTable"),
        ("words: a b", "words: {type: integer, path: '${{parent.jobs.o.outputs.o}}'}", OF_A_PATH),
        ("./model}", "./model, mode: mount}", "input should be 'ro_mount'"),
    ],
)
def test_what_cannot_be_run_is_refused(old: str, new: str, told: str) -> None:
    """The sentence says what would be right."""
    assert old in SCORE
    more = "  o: {command: a, outputs: {o: {}}}\n" if told is OF_A_PATH else ""
    assert told in refused(SCORE.replace(old, new, 1) + more)


@pytest.mark.usefixtures("home")
def test_a_step_of_a_kind_that_is_not_run_says_what_to_write() -> None:
    """With names from the step itself, and nothing is told of its other keys."""
    Path("flow.dag.yaml").write_text("inputs: {}\noutputs: {}\nnodes: []\n")
    Path("spark.yml").write_text("type: spark\nentry: {file: count.py}\nargs: --in ${{inputs.x}}\n")
    kinds = {
        "{type: sweep, trial: ./t.yml, search_space: {rate: {type: uniform}}, limits: '${{a}}'}": (
            "`component: ./t.yml`, `inputs: {rate: …}`; or a table with a row for each trial"
        ),
        "{component: ./spark.yml}": "`command: python count.py --in ${{inputs.x}}`",
        "{type: automl, task: regression, data: '${{parent.jobs.x.outputs.y}}'}": "train.py",
        "{type: data_transfer, task: copy_data, inputs: {a: }, outputs: {b: }}": (
            "cp -r ${{inputs.a}}/. ${{outputs.b}}"
        ),
        "{type: data_transfer, task: import_data}": "download the data, and give its place",
        "{type: import}": "download the data, and give its place",
        "{type: finetuning}": "fine-tune the model by a command",
        "{type: do_while, body: '${{parent.jobs.x}}'}": "repeat the work within one command",
        "{type: if_else}": "decide within one command",
        "{type: parallel_for}": "`daskprs run items.csv each.py --mini-batch-size 1`",
        "{type: parallel, component: ./flow.dag.yaml}": "this is a prompt flow, which the",
        "{type: wizard}": "write a command or a parallel step that does the same",
    }
    told = refused("jobs:\n" + "".join(f"  s{at}: {one}\n" for at, one in enumerate(kinds)))
    lines = sorted(told.splitlines(), key=lambda line: int(line.split(":")[1]))
    for at, (line, instead) in enumerate(zip(lines, kinds.values(), strict=True)):
        assert line.startswith(f"p.yml:{at + 2}:")
        assert instead in line


@pytest.mark.usefixtures("home")
def test_of_a_folder_that_is_not_there_nothing_else_is_told() -> None:
    """That the script in it is missing comes of it."""
    said = refused(SCORE.replace("./src", "./scr", 1))
    assert re.fullmatch(r".*: jobs.score.task.code: .*scr does not exist. Did .*src'\?", said)


@pytest.mark.usefixtures("home")
def test_a_circle_of_steps_is_shown() -> None:
    """However long it is."""
    step = "{{command: x, inputs: {{i: '${{{{parent.jobs.{0}.outputs.o}}}}'}}, outputs: {{o: }}}}"
    steps = {"a": "c", "b": "a", "c": "b", "d": "a"}
    text = "jobs:\n" + "".join(f"  {one}: {step.format(two)}\n" for one, two in steps.items())
    assert "the steps wait for each other: " in (told := refused(text))
    assert "a → c → b → a" in told or "c → b → a → c" in told or "b → a → c → b" in told


COMPONENT = """\
type: command
name: c
inputs:
  n: {type: integer, min: 1, default: 3}
  kind: {type: string, enum: [one, two], optional: true}
  data: {type: uri_folder}
outputs:
  out: {type: uri_folder}
code: ../src
command: >-
  echo ${{inputs.n}} $[[--kind ${{inputs.kind}}]] ${{inputs.data}} "${{inputs.data}}"
  ${{outputs.out}}
"""
USES = "jobs: {{a: {{component: file:./parts/c.yml, inputs: {{data: {{path: ./data}}{0}}}}}}}"


@pytest.fixture
def parts(home: Path) -> Path:
    """Return a folder with a component."""
    (home / "parts").mkdir()
    (home / "parts/c.yml").write_text(COMPONENT)
    return home / "parts"


def test_a_component_brings_defaults_and_its_own_paths(parts: Path) -> None:
    """Those of its code are relative to it; a path is quoted where nothing quotes it."""
    home = parts.parent
    (home / "my data").mkdir()
    made = command(read(USES.format("").replace("./data", "./my data")), "a")
    place = home / "my data"
    assert made.line == f"echo 3  '{place}' \"{place}\" {home}/run/a/named-outputs/out"
    assert made.code is not None
    assert made.code.resolve() == home / "src"
    assert made.variables["AZURE_ML_INPUT_n"] == "3"
    assert "--kind two" in command(read(USES.format(", kind: two")), "a").line


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (", m: 1", "jobs.a.inputs.m: its component has no input 'm'; "),
        (", n: many", "jobs.a.inputs.n: it has to be of type integer, not 'many'"),
        (", n: 0", "jobs.a.inputs.n: it has to be at least 1, not 0"),
        (", kind: three", "it has to be one of one, two, not 'three'"),
    ],
)
def test_a_component_says_what_it_takes(more: str, told: str) -> None:
    """By type, range and choice."""
    assert told in refused(USES.format(more))


@pytest.mark.usefixtures("parts")
def test_mistakes_in_a_component_have_its_name_and_line() -> None:
    """They are told with those of the pipeline."""
    text = COMPONENT.replace("command: >", "comand: >").replace("min: 1", "minn: 1")
    Path("parts/c.yml").write_text(text)
    told = refused(USES.format(""))
    assert f"{Path.cwd()}/parts/c.yml:10:1: comand: there is no key 'comand'" in told
    assert f"{Path.cwd()}/parts/c.yml:4:22: inputs.n.minn: there is no key 'minn'" in told
    Path("parts/c.yml").unlink()
    assert "parts/c.yml: it cannot be read" in refused(USES.format(""))
    assert "is missing" in refused(
        "jobs: {a: {component: {command: x, inputs: {d: {type: string}}}}}"
    )


def test_what_a_step_says_wins_over_its_component(home: Path) -> None:
    """Key by key, also inside of retry settings, environment variables and the task."""
    component = """\
type: parallel
inputs: {data: {type: uri_folder}}
outputs: {rows: {type: uri_file}}
input_data: ${{inputs.data}}
mini_batch_error_threshold: 5
retry_settings: {max_retries: 2, timeout: 50}
environment_variables: {A: 1, B: 2}
task: {code: ./src, entry_script: score.py, append_row_to: "${{outputs.rows}}"}
"""
    (home / "c.yml").write_text(component)
    text = """\
jobs:
  score:
    component: ./c.yml
    inputs: {data: {path: ./data}}
    mini_batch_error_threshold: 10
    retry_settings: {max_retries: 5}
    environment_variables: {B: true}
"""
    options = task(read(text)).options
    assert options["allowed_failed_count"] == 10
    assert (options["run_max_try"], options["run_invocation_timeout"]) == (6, 50)
    variables = options["environment_variables"]
    assert {name: variables[name] for name in "AB"} == {"A": "1", "B": "True"}
    assert options["mini_batch_size"] == 1


def test_references_resolve_by_asset_datastore_and_mapping_file(home: Path) -> None:
    """The version first, then the name; what is given on top of the file wins."""
    (home / "places").mkdir()
    (home / "places/here.yml").write_text(
        "assets: {m: ../model, 'https://x.org/a=b': ../data}\ndatastores: {x: ..}\n"
    )
    assets = Assets.read("places/here.yml").and_also({"n:2": "data", "azureml:o": "src"}, {})
    ways = {
        "azureml:m:1": "model",
        "azureml:m@latest": "model",
        "azureml:n:2": "data",
        "azureml:o:7": "src",
        "azureml://registries/r/models/m/versions/3": "model",
        "azureml://registries/r/models/m": "model",
        "azureml://datastores/x/paths/data/": "data",
        "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/x/paths/model": "model",
        "https://x.org/a=b": "data",
        f"file://{home}/model": "model",
    }
    for reference, folder in ways.items():
        text = SCORE.replace("path: ./model", f"path: '{reference}'")
        made = task(read(text, assets))
        assert Path(made.options["side_inputs"]["model"]).resolve() == home / folder, reference
    told = refused(SCORE.replace("./model", "azureml:n:1"), assets)
    assert "azureml:n:1: the place of this asset is unknown." in told


@pytest.mark.usefixtures("home")
def test_what_has_no_effect_is_said_once_by_reason() -> None:
    """And a misspelt system flag is a warning with its place."""
    more = "type: pipeline\ncompute: azureml:cpu\ntags: {a: b}\nschedule: {type: cron}"
    text = SCORE.replace("type: pipeline", more)
    text = text.replace("percent 30", "percent 30 --resource_monitor_interva 20")
    text = text.replace("blobs}", "blobs, default_datestore: blobs}")
    notices = read(
        text.replace("type: parallel", "type: parallel\n    compute: azureml:cpu")
    ).notices
    assert (
        sum(
            "compute, jobs.score.compute (everything runs on this machine" in one for one in notices
        )
        == 1
    )
    assert any(one.startswith("Without effect here: tags (") for one in notices)
    setting = "settings.default_datestore: it has no effect: did you mean 'default_datastore'?"
    assert any(one.endswith(f": warning: {setting}") for one in notices)
    assert any(
        "warning: jobs.score.task.program_arguments: --resource_monitor" in one for one in notices
    )


@pytest.mark.usefixtures("home")
def test_the_arguments_name_no_output_of_a_step_without_rows() -> None:
    """The script finds its outputs by what the step itself passes."""
    made = task(read(SCORE.replace("      append_row_to: ${{outputs.rows}}\n", "")))
    assert not made.names_output


def test_all_nodes_and_another_place_for_rows(home: Path) -> None:
    """As components that are published have them."""
    text = SCORE.replace("nodes: 2", "nodes: -1").replace("  append_row_to:", "append_row_to:")
    made = task(read(text))
    assert "node_count" not in made.options
    assert made.options["append_row_file_name"] == "rows"
    assert made.output_dir == home / "run/pipeline.outputs"
    told = refused(text.replace("to: ${{outputs.rows}}", "to: ${{outputs.row}}"))
    assert told.startswith("p.yml:28:20: jobs.score.append_row_to: ${{outputs.row}} is not an")


def test_keys_win_over_a_size(home: Path) -> None:
    """With a warning, as the file says both."""
    (home / "data/1.txt").unlink()
    (home / "data/MLTable").write_text(
        "paths: [{file: ./1.csv}]\ntransformations: [read_delimited]\n"
    )
    (home / "data/1.csv").write_text("k\n1\n")
    text = SCORE.replace("uri_folder, path: ./data", "mltable, path: ./data")
    pipeline = read(text.replace('size: "5"', 'size: "5"\n    partition_keys: [k]'))
    assert task(pipeline).options["partition_keys"] == ["k"]
    assert "mini_batch_size" not in task(pipeline).options
    warning = (
        "p.yml:18:22: warning: jobs.score.mini_batch_size: it has no effect: partition_keys win"
    )
    assert warning in pipeline.notices
    told = refused(SCORE.replace('size: "5"', 'size: "5"\n    partition_keys: [k]'))
    assert re.search(
        r"^p\.yml:\d+:21: jobs\.score\.partition_keys: .* is a uri_folder.*mltable", told
    )


WORDS = [
    *("${{inputs.data}}", "${{parent.inputs.data}}", "${{parent.jobs.a.outputs.o}}", "${{"),
    *("$[[--x ${{inputs.data}}]]", "${{parent.jobs.b.inputs.data}}", "./data", "azureml:m:1"),
    *("parallel", "command", "uri_folder", "mltable", "azureml://datastores/x/paths/../y", "\0"),
]
KEYS = [
    *("type", "inputs", "outputs", "jobs", "a", "b", "data", "o", "path", "component", "task"),
    *("command", "code", "entry_script", "program_arguments", "append_row_to", "input_data"),
    *("resources", "instance_count", "retry_settings", "settings", "default", "mini_batch_size"),
]
leaves = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(WORDS)
trees = st.recursive(
    leaves,
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner) | st.lists(inner, max_size=2),
)
steps = st.dictionaries(st.sampled_from(KEYS), trees, min_size=1)


@pytest.mark.usefixtures("home")
@given(
    jobs=st.dictionaries(st.sampled_from(["a", "b"]), steps | trees, min_size=1),
    more=st.dictionaries(st.sampled_from(["inputs", "outputs", "settings"]), trees),
)
def test_whatever_is_in_a_file_is_read_or_refused(jobs: Any, more: Any) -> None:
    """Nothing else is raised."""
    with contextlib.suppress(YamlError):
        read(json.dumps({"jobs": jobs, **more}))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "text", ["", "[]", "jobs: {}", "jobs: 3", "a", "jobs: {a: }", "type: command"]
)
def test_what_is_no_pipeline_is_refused(text: str) -> None:
    """With a place."""
    assert refused(text).startswith("p.yml:1:")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "word",
    ["jobs", "jobs.score.inputs.words.x=1", "=3", "jobs.score=[", "a=b: c: d", "a=!!int x"],
)
def test_an_override_that_leads_nowhere_is_refused(word: str) -> None:
    """It is repeated as it was written."""
    assert refused(SCORE, overrides=(word,)).startswith(f"--set {word}: ")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("value", ["9" * 5000, "[" * 20_000, "1" + ":59" * 100_000, "!!int x"])
def test_a_value_on_the_command_line_is_checked_as_one_in_a_file_is(value: str) -> None:
    """It neither stalls nor crashes, and is shown in part."""
    ways: list[dict[str, Any]] = [
        {"overrides": (f"inputs.nodes={value}",)},
        {"inputs": {"nodes": value}},
    ]
    for way in ways:
        told = refused(SCORE, **way)
        assert "it cannot be read as YAML" in told
        assert len(told) < 600


@pytest.mark.usefixtures("home")
def test_a_misspelt_key_hides_no_other_mistake_of_its_step() -> None:
    """Whatever its value is: it is told by its nearest name, and what else is wrong as well."""
    text = SCORE.replace("    input_data: ${{inputs.data}}", "    input_dta: ${{inputs.data}}")
    text = text.replace("inputs.nodes}}", "inputs.nods}}").replace("score.py", "scor.py")
    text = text.replace("words: a b", "words: ${{parent.jobs.prp.outputs.words}}")
    told = [line.partition(": jobs.score.")[2] for line in refused(text).splitlines()]
    begins = [
        "inputs.words: ${{parent.jobs.prp.outputs.words}}: the step 'prp' does not exist; known",
        "resources.instance_count: ${{parent.inputs.nods}} cannot stand here; inputs of the",
        "input_dta: there is no key 'input_dta'; did you mean 'input_data'?",
        "task.entry_script: the entry script 'scor.py' does not exist",
    ]
    assert [line[: len(begin)] for line, begin in zip(told, begins, strict=True)] == begins


def test_an_input_may_lie_in_the_default_datastore(home: Path) -> None:
    """As an output may."""
    (home / "blobs/data").mkdir(parents=True)
    (home / "blobs/data/1.txt").touch()
    text = SCORE.replace(
        "data: ${{parent.inputs.data}}",
        'data: {path: "azureml://datastores/${{default_datastore}}/paths/data"}',
    )
    made = task(read(text, Assets().and_also({}, {"blobs": str(home / "blobs")})))
    assert made.data == str(home / "blobs/data")


@pytest.mark.usefixtures("home")
def test_an_output_of_the_pipeline_is_that_of_one_step() -> None:
    """Else nobody could say whose result it is."""
    step = "{command: x, outputs: {o: '${{parent.outputs.all}}'}}"
    told = refused(f"outputs: {{all: }}\njobs:\n  a: {step}\n  b: {step}\n")
    assert told.startswith("p.yml:4:32: jobs.b.outputs.o: ${{parent.outputs.all}} is where 'a.o' ")


def test_what_lies_in_outputs_waits_for_all_who_write_there(home: Path) -> None:
    """Whether or not an earlier run has left something; but nobody waits for who waits for him."""
    text = """\
outputs: {last: , none: }
jobs:
  first: {command: x, inputs: {i: {path: ./all/raw}}, outputs: {o: {path: ./all}}}
  second: {command: x, outputs: {o: {path: ./all/b}, last: "${{parent.outputs.last}}"}}
  third: {command: x, inputs: {i: {path: ./all/b}, l: {path: "${{parent.outputs.last}}"}}}
  fourth: {command: x, inputs: {i: {path: ./all/d}}, outputs: {o: {path: ./all/raw}}}
"""
    (home / "all/raw").mkdir(parents=True)
    (home / "all/d").mkdir()
    for _ in range(2):
        needs = {name: step.needs for name, step in read(text).steps.items()}
        assert (needs["third"], needs["fourth"]) == ({"first", "second"}, {"first"})
        assert needs["first"] == needs["second"] == set()
        (home / "all/b").mkdir(exist_ok=True)
    told = refused(text.replace('l: {path: "${{parent.outputs.last', 'l: {path: "${{outputs.none'))
    assert "p.yml:5:62: jobs.third.inputs.l.path: the file or folder" in told


def test_a_place_is_one_place_however_it_is_spelled(home: Path) -> None:
    """By way of `..`, of a link, or of a default in a component's own file."""
    text = """\
inputs: {given: {type: uri_folder, path: ./data}}
jobs:
  first: {command: x, outputs: {o: {path: ./parts/../all}}}
  linked: {command: x, inputs: {i: {path: ./link/x}}}
  spelled: {command: x, inputs: {i: {path: ./src/../all/x}}}
  default: {component: ./parts/c.yml}
  inner: {type: pipeline, component: ./parts/inner.yml}
  outer: {type: pipeline, component: ./parts/outer.yml}
  given: {command: x, inputs: {i: "${{parent.inputs.given}}"}}
  other: {command: x, inputs: {i: {path: ./data}}}
"""
    (home / "parts").mkdir()
    port = "inputs: {i: {type: uri_folder, path: ../all}}"
    (home / "parts/c.yml").write_text(f"type: command\n{port}\ncommand: x\n")
    (home / "parts/inner.yml").write_text(f"type: pipeline\njobs: {{e: {{command: x, {port}}}}}\n")
    bound = "jobs: {e: {command: x, inputs: {i: '${{parent.inputs.i}}'}}}"
    (home / "parts/outer.yml").write_text(f"type: pipeline\n{port}\n{bound}\n")
    (home / "link").symlink_to(home / "all")
    for words in ({}, {"given": f"../{home.name}/all/x"}):  # then an earlier run has left it
        steps = read(text, inputs=words).steps
        waiting = {name for name, step in steps.items() if step.needs == {"first"}}
        assert waiting == {"linked", "spelled", "default", "inner.e", "outer.e", *words}
        (home / "all/x").mkdir(parents=True, exist_ok=True)
    assert steps["first"].places == {"o": home / "all"}


def test_steps_share_a_place_however_it_is_spelled(home: Path) -> None:
    """Nothing in it is removed, or taken from an earlier run; a link may lead out of its folder."""
    (home / "far/deep").mkdir(parents=True)
    (home / "link").symlink_to(home / "far/deep")
    text = """\
jobs:
  a: {command: x, outputs: {o: {path: ./far/all}}}
  b: {command: x, outputs: {o: {path: ./link/../all/b}}}
  c: {command: x, outputs: {o: {path: ./all}}}
"""
    steps = read(text).steps
    assert [step.shares for step in steps.values()] == [True, True, False]
    assert steps["b"].places == {"o": home / "far/all/b"}


@pytest.mark.parametrize(
    "old", ["dataset: {local_path: ./model}", "dataset: 'azureml:m:1'", "file: ./model/m.txt"]
)
def test_data_may_be_named_as_in_older_files(home: Path, old: str) -> None:
    """By other keys than ``path``."""
    made = task(read(SCORE.replace("path: ./model", old), Assets().and_also({"m": "model"}, {})))
    assert made.options["side_inputs"]["model"].startswith(str(home / "model"))


def test_a_path_of_another_type_is_told(home: Path) -> None:
    """Before the start, as a warning: some scripts take either."""
    made = read(SCORE.replace("path: ./model", "path: ./model/m.txt"))
    assert any(f"{home}/model/m.txt is a file, and the type" in one for one in made.notices)
    made = read(SCORE.replace("uri_folder, path: ./model", "uri_file, path: ./model"))
    assert any(f"{home}/model is a folder, and the type" in one for one in made.notices)


@pytest.mark.usefixtures("home")
def test_the_pipeline_s_type_of_an_output_wins() -> None:
    """Where rows are appended to it; a command cannot be told what to write."""
    Path("rows.yml").write_text(ROWS)
    Path("around.yml").write_text(AROUND)
    deeper = OUTERMOST.replace("./rows.yml", "./around.yml")
    for text, step in ((OUTERMOST, "leaf"), (deeper, "leaf.leaf")):
        made = read(text)
        assert task(made, step).options["append_row_file_name"] == "rows"
        assert task(made, step).output_dir == Path("run/pipeline.outputs").absolute()
        assert made.steps[step].outputs["rows"].type == "uri_file"
    inputs = "inputs: {data: {type: uri_folder}}\noutputs: {rows: {type: mltable}}\n"
    Path("rows.yml").write_text(f"type: command\ncommand: a\n{inputs}")
    said = (
        "jobs.leaf.outputs.rows: ${{parent.outputs.rows}} is a uri_file, and this output a mltable"
    )
    assert f"p.yml:8:21: {said}: give both one type" in refused(OUTERMOST)
    assert f"around.yml:8:21: {said}" in refused(deeper)


def test_all_that_a_command_leaves_is_its_output_artifacts(home: Path) -> None:
    """As long as nothing is said of it but its name."""
    text = "jobs: {{a: {{command: x > outputs/y, outputs: {{artifacts: {0}}}}}}}"
    for said, place in (("", "run/a"), ("{type: uri_folder}", "run/a/named-outputs/artifacts")):
        assert read(text.format(said)).steps["a"].outputs["artifacts"].path == home / place


@pytest.mark.usefixtures("home")
def test_a_distributed_command_finds_a_world_of_one() -> None:
    """With a port that is free when it starts, which is no part of its definition."""
    text = "jobs: {{a: {{command: x, distribution: {{type: {0}}}}}}}"
    made = {kind: command(read(text.format(kind)), "a") for kind in ("PyTorch", "mpi", "ray")}
    torch, mpi, ray = (world_of_one(one.distribution) for one in made.values())
    assert int(torch.pop("MASTER_PORT")) > 0
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0"}
    assert torch == {"WORLD_SIZE": "1", **ranks, "MASTER_ADDR": "127.0.0.1"}
    assert (mpi["OMPI_COMM_WORLD_SIZE"], mpi["OMPI_COMM_WORLD_RANK"], ray) == ("1", "0", {})
    assert json.loads(world_of_one("tensorflow")["TF_CONFIG"])["task"]["index"] == 0
    assert "MASTER_PORT" not in json.dumps(made["PyTorch"].record())
    assert not command(read("jobs: {a: {command: x}}"), "a").record()["distribution"]


@pytest.mark.usefixtures("home")
def test_files_of_another_kind_are_told_with_the_way_to_run_them() -> None:
    """Instead of each of their keys that a pipeline does not have."""
    told = "p.yml:1:1: this is a batch deployment of a pipeline: daskprs invoke p.yml --input "
    schema = "$schema: https://a.net/latest/pipelineComponentBatchDeployment.schema.json\n"
    for more in ("endpoint_name: e\n", schema):
        assert refused(f"{more}type: pipeline\ncomponent: ./c.yml\n").startswith(told)
    told = "p.yml:1:1: this is a batch deployment: daskprs invoke p.yml --input DATA"
    assert refused("name: d\nmodel: m\nsettings: {}\n") == told
    assert refused("command: x\n").startswith("p.yml:1:1: this is a step by itself: ")
    Path("p.yml").write_text(SCORE)
    with pytest.raises(YamlError, match=r"jobs: this is a pipeline: daskprs run p\.yml$"):
        pipeline_deployment_of(Document.read("p.yml"), Assets())


@pytest.mark.usefixtures("home")
def test_a_component_that_nobody_has_hides_nothing_else() -> None:
    """What its step is given is looked for, and what it makes may be all that others name."""
    text = """\
jobs:
  a: {component: "azureml:c:1", inputs: {i: {path: "azureml:d:1"}, j: {path: ./data}}}
  b: {command: "cat ${{inputs.i}}", inputs: {i: "${{parent.jobs.a.outputs.whatever}}"}}
"""
    told = [line.partition(": ")[2] for line in refused(text).splitlines()]
    begins = [
        "jobs.a.component: azureml:c:1: the place",
        "jobs.a.inputs.i.path: azureml:d:1: the place",
    ]
    assert [line[: len(begin)] for line, begin in zip(told, begins, strict=True)] == begins


def test_stand_ins_of_commands_are_written_once(home: Path) -> None:
    """Steps that run side by side import them while others are started."""
    file = next(stand_in_folder(home).glob("azureml_user/__init__.py"))
    before = file.stat()
    stand_in_folder(home)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.usefixtures("home")
def test_an_optional_part_without_a_reference_is_a_warning() -> None:
    """It stays text in commands and in arguments, as published components have it."""
    either = "$[[inputs.words]] $[[--w ${{inputs.words}}]]"
    text = SCORE.replace("--words ${{inputs.words}}", either)
    pipeline = read(f"{text}  say:\n    command: echo $[[ inputs.name ]]\n")
    told = [line.partition(": ")[2] for line in pipeline.notices if "it stays as the text" in line]
    begins = [
        "warning: jobs.say.command: $[[ inputs.name ]] has no ${{…}} in it",
        "warning: jobs.score.task.program_arguments: $[[inputs.words]] has no ${{…}} in it",
    ]
    for line, begin, name in zip(sorted(told), begins, ("name", "words"), strict=True):
        assert line.startswith(begin)
        assert line.endswith(f"write $[[--flag ${{{{inputs.{name}}}}}]]")


INCLUDING = """\
type: command
code: ./src
command: python tell.py
additional_includes: [shared/words, shared/more.txt, shared/pack.zip]
"""


@pytest.fixture
def including(home: Path) -> Path:
    """Return the folder of a component whose code is put together of several places."""
    files = {
        "step/component.yml": INCLUDING,
        "step/src/tell.py": "import words.all\n",
        "step/shared/words/all.py": "import json\n",
        "step/shared/more.txt": "more",
        "step/shared/pack/inner/one.txt": "1",
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home / "step"


def test_a_component_s_code_is_put_together(including: Path) -> None:
    """Files, folders and archives of folders; the folder has the name of its content."""
    with pytest.raises(YamlError, match=r"the script other\.py does not exist"):
        read("jobs: {a: {component: step/component.yml, command: python other.py}}\n")
    text = "jobs: {a: {component: step/component.yml}}\n"
    code = command(read(text), "a").code
    assert code is not None
    found = sorted(str(one.relative_to(code)) for one in code.rglob("*") if one.is_file())
    assert found == ["more.txt", "pack.zip", "tell.py", "words/all.py"]
    with zipfile.ZipFile(code / "pack.zip") as archive:
        assert archive.namelist() == ["pack/inner/one.txt"]
    assert command(read(text), "a").code == code
    (including / "shared/pack/inner/one.txt").write_text("2")
    assert command(read(text), "a").code != code


@pytest.mark.usefixtures("including")
def test_includes_may_be_listed_in_a_file_beside_the_component() -> None:
    """As lines or as YAML; the code is the component's folder then, unless it is given."""
    text = "jobs: {a: {component: step/component.yml}}\n"
    Path("step/component.yml").write_text("type: command\ncommand: cat score.py\n")
    for listed in ("../src/score.py\n\n", "additional_includes:\n  - ../src/score.py\n"):
        Path("step/component.additional_includes").write_text(listed)
        code = command(read(text), "a").code
        assert code is not None
        assert (code / "score.py").read_bytes() == Path("src/score.py").read_bytes()
        assert (code / "src/tell.py").is_file()


@pytest.mark.usefixtures("including")
def test_includes_that_cannot_be_put_there_are_mistakes() -> None:
    """What does not exist, what has the name of something else, and what is in a feed."""
    Path("step/src/more.txt").write_text("mine")
    more = "shared/pack.zip, ./sharde, {type: artifact, feed: f}]"
    Path("step/component.yml").write_text(INCLUDING.replace("shared/pack.zip]", more))
    told = refused("jobs: {a: {component: step/component.yml}}\n").splitlines()
    shown = [line.partition("additional_includes: ")[2] for line in told]
    assert [line.partition(",")[0][:40] for line in shown] == [
        "'shared/more.txt' would be 'more.txt' be",
        f"the file or folder {Path.cwd()}/step"[:40],
        "{'type': 'artifact'",
    ]
    assert told[1].endswith("step/shared'?")
    with pytest.raises(YamlError, match="additional_includes"):
        run_pipeline("p.yml", job_dir="jobs/run")
    assert not Path("jobs").exists()


DUMPED = """\
inputs:
  data: {type: mltable, path: "azureml:./data", mode: eval_mount}
jobs:
  score:
    type: parallel
    component:
      type: parallel
      input_data: ${{inputs.rows}}
      inputs: {rows: {type: mltable}, folder: {type: uri_folder}}
      mini_batch_size: '0'
      partition_keys: [n]
      task: {type: run_function, code: src, entry_script: score.py}
    inputs:
      rows: {path: "${{parent.inputs.data}}"}
      folder: {type: mltable, path: "azureml:./model/"}
    mini_batch_size: '0'
    partition_keys: [n]
"""


def test_what_azure_s_client_has_dumped_is_read(home: Path) -> None:
    """Its paths are relative to the file, its size of 0 is none, and a folder is a folder."""
    (home / "data/MLTable").write_text("paths: [{file: t.csv}]\ntransformations: [read_delimited]")
    (home / "data/t.csv").write_text("n\n1\n")
    pipeline = read(DUMPED)
    made = task(pipeline)
    assert made.data == str(home / "data")
    assert made.options["partition_keys"] == ["n"]
    assert "mini_batch_size" not in made.options
    assert made.options["side_inputs"] == {"folder": str(home / "model")}
    assert not any("mini_batch_size" in line for line in pipeline.notices)
    assert "mini_batch_size: " in refused(DUMPED.replace("partition_keys: [n]", ""))


WASBS, ABFSS = "wasbs://c@a.blob.core.windows.net", "abfss://c@a.dfs.core.windows.net/t"
STORE = "azureml://datastores/blobs/paths"


@pytest.mark.parametrize(
    ("path", "known", "place"),
    [
        (f"{STORE}/tables/t.csv", "blobs", "."),
        (f"{STORE}/tables/t.csv", f"{STORE}/tables/", "tables"),
        (f"{WASBS}/tables/t.csv", WASBS, "."),
        (
            "abfss://c@a.dfs.core.windows.net/t",
            "abfss://c@a.dfs.core.windows.net/t",
            "tables/t.csv",
        ),
    ],
)
def test_urls_in_an_mltable_are_looked_up(home: Path, path: str, known: str, place: str) -> None:
    """By the places of datastores and assets that are given to the pipeline, for a step, too."""
    (home / "tables").mkdir()
    (home / "tables/t.csv").write_text("n\n1\n")
    table = f"paths: [{{file: '{path}'}}]\ntransformations: [read_delimited]"
    (home / "data/MLTable").write_text(table)
    text = DUMPED.replace("azureml:./data", "./data")
    assert "data/MLTable:1:16: paths[0].file: " in refused(text)
    given = {known: str(home / place)}
    assets = Assets(given) if "://" in known else Assets(datastores=given)
    file = home / "task.json"
    file.write_text(written(task(read(text, assets)), {}))
    call = read_task(file).checked()
    assert [one.path for one in call.source.files()] == [str(home / "tables/t.csv")]


def test_a_step_that_may_read_blobs_is_not_reused(home: Path) -> None:
    """They may have changed, or lie elsewhere now; without datastores it has none to read."""
    (home / "src/reads.py").write_text("from azure.storage.blob import BlobServiceClient\n")
    (home / "other").mkdir()
    text = """\
jobs:
  reads: {command: python reads.py, code: ./src}
  other: {command: x, code: ./other}
"""
    for datastores, reused in (({}, True), ({"pictures": str(home)}, False)):
        steps = read(text, Assets(datastores=datastores)).steps
        assert (steps["reads"].may_reuse, steps["other"].may_reuse) == (reused, True)
