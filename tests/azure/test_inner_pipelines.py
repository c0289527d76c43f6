"""Pipelines within pipelines: they are what their steps would be in the outermost file."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from daskprs.azure import PipelineResult, run_pipeline
from daskprs.azure._assets import Assets
from daskprs.azure._deployments.pipeline_deployment import pipeline_deployment_of
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.command_step import Command
from daskprs.azure._pipelines.file import Pipeline, read_pipeline
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure._task import Task
from daskprs.azure._validation import validate
from daskprs.azure._yaml_files.document import Document
from daskprs.errors import PipelineFailed, YamlError

Values = dict[str, Any]

OUTER = """\
type: pipeline
inputs: {nodes: 2, data: {type: uri_folder, path: ./data}}
outputs: {rows: {type: uri_file}}
settings: {default_datastore: azureml:blobs}
jobs:
  twice:
    type: pipeline
    component: ./parts/twice.yml
    inputs:
      data: ${{parent.inputs.data}}
      nodes: ${{parent.inputs.nodes}}
    outputs: {rows: "${{parent.outputs.rows}}"}
  again:
    component: azureml:twice:1
    inputs: {data: "${{parent.jobs.twice.outputs.raw}}", unknown: 3}
  look:
    command: cat ${{inputs.rows}} ${{inputs.other}}
    inputs:
      rows: ${{parent.jobs.twice.outputs.rows}}
      other: {type: uri_file, path: "${{parent.jobs.again.outputs.rows}}"}
"""
TWICE = """\
type: pipeline
inputs:
  data: {type: uri_folder}
  nodes: {type: integer, default: 1, max: 9}
outputs: {rows: {type: uri_file}, raw: {type: uri_folder}}
settings: {default_datastore: azureml:own, force_rerun: true, continue_on_step_failure: true}
jobs:
  copy:
    command: cp -r ${{inputs.data}}/. ${{outputs.raw}} && echo ${{inputs.where}}
    inputs: {data: "${{parent.inputs.data}}", where: "${{default_datastore}}"}
    outputs: {raw: "${{parent.outputs.raw}}"}
  deep:
    type: pipeline
    inputs: {data: "${{parent.jobs.copy.outputs.raw}}", nodes: "${{parent.inputs.nodes}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
    jobs:
      score:
        type: parallel
        inputs: {data: "${{parent.inputs.data}}"}
        outputs: {rows: "${{parent.outputs.rows}}"}
        resources: {instance_count: "${{parent.inputs.nodes}}"}
        input_data: ${{inputs.data}}
        mini_batch_size: "1"
        task:
          type: run_function
          code: ../src
          entry_script: score.py
          append_row_to: ${{outputs.rows}}
"""
ASSETS = Assets({"twice:1": "parts/twice.yml"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with data, a script and a pipeline component, and work in it."""
    for folder in ("src", "data", "parts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src/score.py").write_text(
        "def run(files):\n    return [open(file).read().upper() for file in files]\n"
    )
    (tmp_path / "data/1.txt").write_text("one")
    (tmp_path / "parts/twice.yml").write_text(TWICE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str = OUTER, **given_: Any) -> Pipeline:
    """Read a pipeline file with this text."""
    Path("p.yml").write_text(text)
    assets = ASSETS.and_also({}, {})
    return read_pipeline("p.yml", PipelineFolder("run"), CallerInputs(assets, **given_))


def line_of(pipeline: Pipeline, step: str) -> str:
    """Return the command of a step."""
    work = pipeline.steps[step].work
    assert isinstance(work, Command)
    return work.line


def test_its_steps_are_steps_of_the_file(home: Path) -> None:
    """With names that tell where they are, and what the outer pipeline gives them."""
    made = read()
    needs = {name: set(step.needs) for name, step in made.steps.items()}
    assert needs == {
        "twice.copy": set(),
        "twice.deep.score": {"twice.copy"},
        "again.copy": {"twice.copy"},
        "again.deep.score": {"again.copy", "twice.copy"},  # what `again` itself waits for, too
        "look": {"twice.deep.score", "again.deep.score"},
    }
    run = home / "run"
    one, two = run / "twice/named-outputs/raw", run / "again/named-outputs/raw"
    rows = (run / "pipeline.outputs/rows", run / "again/named-outputs/rows")
    assert line_of(made, "twice.copy") == f"cp -r {home}/data/. {one} && echo own"
    assert line_of(made, "again.copy") == f"cp -r {one}/. {two} && echo own"
    assert line_of(made, "look") == f"cat {rows[0]} {rows[1]}"
    for name, nodes, place in (("twice", 2, rows[0]), ("again", 1, rows[1])):
        work = made.steps[f"{name}.deep.score"].work
        assert isinstance(work, Task)
        assert (work.options["node_count"], work.job_dir) == (nodes, run / f"{name}.deep.score")
        assert work.output_dir == place.parent
    fresh = {name for name, step in made.steps.items() if not step.may_reuse}
    assert fresh == {"twice.copy", "twice.deep.score", "again.copy", "again.deep.score"}
    assert not made.goes_on
    told = "\n".join(made.notices)
    assert "p.yml:15:58: warning: jobs.again.inputs.unknown: its component has no input" in told
    assert "continue_on_step_failure: it has no effect here: the settings of the outermost" in told


def test_a_path_that_it_is_given_is_absolute_in_settings(home: Path) -> None:
    """As one that the outermost pipeline has: a command works in a copy of its code."""
    inner = """
    type: pipeline
    inputs: {data: INPUT}
    jobs:
      tell: {command: env, environment_variables: {DATA: "${{parent.inputs.data}}"}}
"""
    for given_ in ("{type: uri_folder, path: ./data}", "'${{parent.inputs.data}}'"):
        text = OUTER.partition("jobs:")[0].replace(", ./data", ", data")
        text = text.replace("outputs: {rows: {type: uri_file}}\n", "")
        made = read(f"{text}jobs:\n  few:{inner.replace('INPUT', given_)}")
        work = made.steps["few.tell"].work
        assert isinstance(work, Command)
        assert work.variables["DATA"] == str(home / "data")


def test_the_caller_reaches_into_it(home: Path) -> None:
    """Options name its outputs, its steps, and keys in the file of its component."""
    made = read(
        OUTER,
        inputs={"nodes": "3"},
        outputs={"again.raw": "raw", "rows": "rows.txt"},
        overrides=("jobs.twice.jobs.copy.command=cp ${{outputs.raw}} x",),
    )
    assert line_of(made, "twice.copy") == f"cp {home}/run/twice/named-outputs/raw x"
    assert made.steps["again.copy"].places == {"raw": home / "raw"}
    deep = made.steps["twice.deep.score"]
    assert (deep.work.options["node_count"], deep.places) == (3, {"rows": home / "rows.txt"})


def test_a_path_is_relative_to_the_file_that_sets_it(home: Path) -> None:
    """Whichever keys of a step in a component's file an outer file sets, at any depth."""
    (home / "parts/src").mkdir()
    (home / "parts/tell.yml").write_text("""
type: command
command: echo ${{inputs.plain}} ${{inputs.given}} ${{inputs.older}} ${{inputs.own}} ${{outputs.o}}
code: ./src
inputs:
  plain: {type: uri_folder}
  given: {type: uri_folder}
  older: {type: uri_folder}
  own: {type: uri_folder}
outputs: {o: {type: uri_folder}}
""")
    (home / "parts/inner.yml").write_text("""
type: pipeline
jobs:
  tell:
    component: ./tell.yml
    inputs: {plain: ./none, given: {path: ./none}, older: {path: ./none}, own: ./src}
""")
    (home / "middle.yml").write_text("""
type: pipeline
jobs: {in: {component: ./parts/inner.yml, jobs: {tell: {inputs: {plain: ./data}}}}}
""")
    (home / "sub").mkdir()
    (home / "sub/old").mkdir()
    (home / "sub/outer.yml").write_text("""
type: pipeline
jobs:
  out:
    component: ../middle.yml
    jobs:
      in:
        jobs:
          tell:
            code: ../src
            inputs: {given: {path: ./old}, older: {path: "", folder: ../data}}
            outputs: {o: {path: ./made}}
""")
    given_ = CallerInputs(Assets())
    made = read_pipeline("sub/outer.yml", PipelineFolder("run"), given_).steps["out.in.tell"]
    assert isinstance(made.work, Command)
    places = [Path(one).resolve() for one in made.work.line.split()[1:]]
    below = ("data", "sub/old", "data", "parts/src", "sub/made")
    assert places == [home / one for one in below]
    assert made.work.code is not None
    assert made.work.code.resolve() == home / "src"
    outer = (home / "sub/outer.yml").read_text()
    wrong = outer.replace("code: ../src", "codes: ../src\n            limits: {timeout: 0}")
    (home / "sub/outer.yml").write_text(wrong)
    with pytest.raises(YamlError) as caught:
        read_pipeline("sub/outer.yml", PipelineFolder("run"), given_)
    told = [line.split(": ")[0].rpartition("/")[2] for line in str(caught.value).splitlines()]
    assert told == ["outer.yml:10:13", "outer.yml:11:31"]
    (home / "sub/outer.yml").write_text(outer)
    (home / "sub/old").rmdir()
    with pytest.raises(YamlError, match=r"outer.yml:11:36: .*out.jobs.in.jobs.tell.inputs.given.p"):
        read_pipeline("sub/outer.yml", PipelineFolder("run"), given_)


def test_steps_that_would_wait_for_each_other_begin_with_what_is_there(home: Path) -> None:
    """Those in the circle alone: others in the same pipeline wait for what is made anew."""
    text = """
type: pipeline
jobs:
  learn:
    type: pipeline
    inputs: {state: {type: uri_folder, path: ./data}}
    outputs: {next: {type: uri_folder}}
    jobs:
      step:
        jobs:
          go:
            command: cp -r ${{inputs.state}}/. ${{outputs.next}}
            inputs: {state: "${{parent.inputs.state}}"}
            outputs: {next: "${{parent.outputs.next}}"}
        inputs: {state: "${{parent.inputs.state}}"}
        outputs: {next: "${{parent.outputs.next}}"}
      look: {command: "ls ${{inputs.state}}", inputs: {state: "${{parent.inputs.state}}"}}
  keep:
    command: cp -r ${{inputs.next}}/. ${{outputs.state}}
    inputs: {next: "${{parent.jobs.learn.outputs.next}}"}
    outputs: {state: {type: uri_folder, path: ./data}}
"""
    needs = {name: set(step.needs) for name, step in read(text).steps.items()}
    expected = {"learn.step.go": set(), "keep": {"learn.step.go"}, "learn.look": {"keep"}}
    assert needs == expected
    (home / "data/1.txt").unlink()
    (home / "data").rmdir()
    with pytest.raises(YamlError, match=r"the steps wait for each other: "):
        read(text)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("nodes: 2", "nodes: 12", "p.yml:11:14: jobs.twice.inputs.nodes: it has to be at most 9"),
        ("nodes: 2", "nodes: two", "jobs.twice.inputs.nodes: it has to be of type integer"),
        ("      data: ${{parent.inputs.data}}\n", "", "the input 'data' is missing"),
        ("twice.outputs.raw", "twice.outputs.raws", "did you mean 'raw'?"),
        ('{rows: "${{parent.outputs.rows}}"}', "{row: }", "its component has no output 'row'"),
        ("./parts/twice.yml", "./parts/none.yml", "p.yml:8:16: jobs.twice.component: "),
        ("twice:1", "twice:2", "the place of this asset is unknown"),
        ("type: pipeline\n    c", "type: pipeline\n    settings: 3\n    c", "be a mapping, not 3"),
    ],
)
def test_what_does_not_fit_it_is_refused(old: str, new: str, told: str) -> None:
    """With the place in the outer file."""
    assert old in OUTER
    with pytest.raises(YamlError) as caught:
        read(OUTER.replace(old, new, 1))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            '{data: "${{parent.inputs.data}}", where',
            '{data: "${{parent.inputs.dat}}", where',
            "twice.yml:10:20: jobs.copy.inputs.data: ${{parent.inputs.dat}}: there is no input",
        ),
        ('parent.inputs.nodes}}"}\n    o', 'parent.inputs.node}}"}\n    o', "did you mean 'nodes'"),
        ("jobs.copy.outputs", "jobs.deep.outputs", "twice.yml:14:20: jobs.deep.inputs.data: "),
        (
            "jobs.copy.outputs",
            "jobs.look.outputs",
            "the step 'look' does not exist; known are copy, deep",
        ),
        (
            '    outputs: {raw: "${{parent.outputs.raw}}"}',
            "    outputs: {raw: }",
            "p.yml:15:20: jobs.again.inputs.data: ${{parent.jobs.twice.outputs.raw}}: no step of",
        ),
        (
            '        outputs: {rows: "${{parent.outputs.rows}}"}',
            "        outputs: {rows: }",
            "twice.yml:15:21: jobs.deep.outputs.rows: no step of this pipeline writes this output",
        ),
        (
            '{raw: "${{parent.outputs.raw}}"}',
            '{raw: "${{parent.outputs.rows}}"}',
            "twice.yml:15:21: jobs.deep.outputs.rows: ${{parent.outputs.rows}} is where 'twice.c",
        ),
        (
            'outputs: {raw: "${{parent.outputs.raw}}"}',
            'outputs: {raw: {type: uri_file, path: "${{parent.outputs.raw}}"}}',
            "${{parent.outputs.raw}} is a uri_folder, and this output a uri_file",
        ),
        (
            "    type: pipeline\n",
            "    component: ./twice.yml\n",
            "13:16: jobs.deep.component: this pipeline is within itself: twice.yml → twice.yml",
        ),
        (
            "      score:",
            "      sc.ore:",
            "twice.yml:17:7: jobs.deep.jobs.sc.ore: 'sc.ore' is not a name",
        ),
    ],
)
def test_mistakes_in_it_name_its_own_file(home: Path, old: str, new: str, told: str) -> None:
    """With line and column there."""
    assert old in TWICE
    (home / "parts/twice.yml").write_text(TWICE.replace(old, new, 1))
    with pytest.raises(YamlError) as caught:
        read()
    assert told in str(caught.value)


@pytest.mark.long
@pytest.mark.usefixtures("home")
def test_no_pipeline_grows_without_bounds() -> None:
    """However small its files are."""
    steps = ", ".join(f"s{at}: {{command: x}}" for at in range(1000))
    groups = "".join(f"  g{at}: {{jobs: *steps}}\n" for at in range(1, 11))
    with pytest.raises(YamlError, match=r"^p.yml:\d+:\d+: jobs.g\d.jobs: .* than 10000 steps$"):
        read(f"jobs:\n  g: {{jobs: &steps {{{steps}}}}}\n{groups}")
    long = "".join("{" + "n" * 9 + ": {jobs: " for _ in range(24))
    with pytest.raises(YamlError, match=r"has more than 200 characters: use shorter names"):
        read(f"jobs: {long}{{s: {{command: x}}}}{'}}' * 24}")


def test_no_folder_of_a_step_is_one_of_the_run(tmp_path: Path) -> None:
    """Whatever an inner pipeline and its steps are called."""
    folder = PipelineFolder(tmp_path)
    steps = ["pipeline", "pipeline.outputs", "pipeline.logs", "pipeline.a.b", "a.pipeline.logs"]
    places = [folder.step(name) for name in steps]
    own = [folder.outputs, folder.logs("x").parent, folder.record, folder.lock]
    assert len({*places, *own}) == len(places) + len(own)


@pytest.mark.usefixtures("home")
def test_a_component_and_a_deployment_have_them_too() -> None:
    """And files that validate names are checked to the innermost step."""
    Path("p.yml").write_text(OUTER)
    assert validate("p.yml", ASSETS).wrong == []
    url = "https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json"
    inner = {"data": {"type": "uri_folder"}}
    step = {"component": "./parts/twice.yml", "inputs": {"data": "${{parent.inputs.data}}"}}
    component = {"$schema": url, "type": "pipeline", "inputs": inner, "jobs": {"a": step}}
    Path("c.yml").write_text(yaml.safe_dump(component))
    assert validate("c.yml", ASSETS).wrong == []
    Path("d.yml").write_text("type: pipeline\ncomponent: ./c.yml\n")
    assert validate("d.yml", ASSETS).wrong == []
    deployed = pipeline_deployment_of(Document.read("d.yml"), Assets())
    given_ = CallerInputs(Assets(), inputs={"data": "data"})
    made = read_pipeline(deployed.path, PipelineFolder("run"), given_)
    assert [*made.steps] == ["a.copy", "a.deep.score"]
    Path("src/score.py").write_text("def ran(files): pass\n")
    assert "twice.yml" in "".join(validate("d.yml", Assets()).wrong)


# ---- a pipeline with inner ones, and its twin that has all steps in one file ----


def nested(jobs: Values, members: list[str], group: str) -> Values:
    """Return steps with some of them in a pipeline of their own, which passes on what they use."""
    inner = {name: deepcopy(jobs[name]) for name in members}
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for name, step in inner.items():
        for port, text in step["inputs"].items():
            if isinstance(text, str) and not text.startswith(
                tuple(f"${{{{parent.jobs.{one}." for one in members)
            ):
                inputs[f"{name}_{port}"] = text
                step["inputs"][port] = f"${{{{parent.inputs.{name}_{port}}}}}"
        for port, place in step["outputs"].items():
            outputs[f"{name}_{port}"] = place
            step["outputs"][port] = f"${{{{parent.outputs.{name}_{port}}}}}"
    step = {"type": "pipeline", "inputs": inputs, "outputs": outputs, "jobs": inner}
    found: Values = {}
    for name, one in jobs.items():
        if name not in members:
            found[name] = deepcopy(one)
            for member in members:
                own, ours = f"jobs.{member}.outputs.", f"jobs.{group}.outputs.{member}_"
                given_ = found[name]["inputs"]
                given_.update({port: text.replace(own, ours) for port, text in given_.items()})
        elif group not in found:
            found[group] = step
    return found


@st.composite
def twins(draw: st.DrawFn) -> tuple[Values, Values]:
    """Return steps that use one another's outputs, and the same steps with inner pipelines."""
    count = draw(st.integers(1, 6))
    flat: Values = {}
    for at in range(count):
        used = draw(st.sets(st.integers(0, at - 1))) if at else set()
        inputs = {f"i{one}": f"${{{{parent.jobs.s{one}.outputs.o}}}}" for one in used}
        if draw(st.booleans()):
            inputs["n"] = "${{parent.inputs.n}}"
        flat[f"s{at}"] = {"command": "true", "inputs": inputs, "outputs": {"o": None}}
    flat[f"s{count - 1}"]["outputs"]["o"] = "${{parent.outputs.last}}"
    inner = flat
    for level in range(draw(st.integers(1, 3))):
        names = [*inner]
        first = draw(st.integers(0, len(names) - 1))
        last = draw(st.integers(first, len(names) - 1))
        inner = nested(inner, names[first : last + 1], f"g{level}")
    return flat, inner


def data_flow(jobs: Values, folder: Path) -> tuple[dict[str, Any], Any]:
    """Return what each step is given, down to the steps that read nothing; then the last output."""
    content = {
        "type": "pipeline",
        "inputs": {"n": 3},
        "outputs": {"last": {"type": "uri_folder"}},
        "jobs": jobs,
    }
    document = Document.of_values(content, "p", folder)
    made = read_pipeline(document, PipelineFolder(folder / "run"), CallerInputs(Assets()))
    told: dict[str, Any] = {}
    by_place: dict[Path, str] = {}
    for name, step in made.steps.items():  # each after those that it needs
        own = name.rpartition(".")[2]
        told[own] = {
            port: told[by_place[bound.path]] if bound.is_path else bound.value
            for port, bound in step.inputs.items()
        }
        by_place.update(dict.fromkeys(step.places.values(), own))
    return told, by_place[made.outputs["last"].path]


@given(twins())
def test_inner_pipelines_move_the_same_data(pair: tuple[Values, Values]) -> None:
    """However steps are put into pipelines, and these into others."""
    with tempfile.TemporaryDirectory() as folder:
        flat, inner = (data_flow(jobs, Path(folder)) for jobs in pair)
    assert inner == flat


STEPS: Values = {
    "a": {
        "command": "echo ${{inputs.n}} > ${{outputs.o}}/n.txt",
        "inputs": {"n": "${{parent.inputs.n}}"},
        "outputs": {"o": {"type": "uri_folder"}},
    },
    "b": {
        "command": "cat ${{inputs.i}}/*.txt > ${{outputs.o}}/b.txt; test -e go",
        "code": "./src",
        "inputs": {"i": "${{parent.jobs.a.outputs.o}}"},
        "outputs": {"o": {"type": "uri_folder"}},
    },
    "c": {
        "command": "cat ${{inputs.i}}/*.txt ${{inputs.j}}/*.txt > ${{outputs.o}}/c.txt",
        "inputs": {"i": "${{parent.jobs.a.outputs.o}}", "j": "${{parent.jobs.b.outputs.o}}"},
        "outputs": {"o": "${{parent.outputs.last}}"},
    },
}


def test_it_is_resumed_and_reused_as_its_twin_is(home: Path) -> None:
    """Byte for byte the same outputs, and the same steps that need not run."""
    inner = nested(nested(STEPS, ["a", "b"], "g"), ["g"], "h")
    said: dict[str, list[list[str]]] = {}
    outputs: dict[str, list[bytes]] = {}
    for kind, jobs in (("flat", STEPS), ("inner", inner)):
        (home / kind).mkdir()
        (home / kind / "src").mkdir()
        content = {"type": "pipeline", "inputs": {"n": 3}, "outputs": {"last": None}, "jobs": jobs}
        (home / kind / "p.yml").write_text(yaml.safe_dump(content, sort_keys=False))
        told: list[str] = []

        def run(kind: str = kind, told: list[str] = told, **more: Any) -> PipelineResult:
            return run_pipeline(home / kind / "p.yml", show=told.append, **more)

        with pytest.raises(PipelineFailed):
            run(job_dir=home / kind / "one")
        (home / kind / "src/go").touch()
        results = [run(job_dir=home / kind / "one", resume=True)]
        results += [
            run(job_dir=home / kind / "two"),
            run(job_dir=home / kind / "3", inputs={"n": 4}),
        ]
        said[kind] = [
            line.split(",")[0].split(" in ")[0].rpartition("]")[2].split(".")[-1]
            for line in told
            if not line.startswith("Without")
        ]
        assert not [*(home / kind).glob("*/*/code")]  # of Completed commands
        outputs[kind] = [(result.outputs["last"] / "c.txt").read_bytes() for result in results]
    assert said["inner"] == said["flat"]
    assert said["flat"].count("c: reused") == said["flat"].count("a: kept") == 1
    assert outputs["inner"] == outputs["flat"] == [b"3\n3\n", b"3\n3\n", b"4\n4\n"]
