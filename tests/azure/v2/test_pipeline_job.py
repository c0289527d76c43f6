"""Pipelines of SDK v2 in Python: each ends as the values of a file, and runs as the file does."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from daskprs.azure._assets import Assets
from daskprs.azure._deployments.batch_deployment import BatchDeployment as FileDeployment
from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.file import Pipeline, read_pipeline
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure.v1.absent import NotBuiltError
from daskprs.azure.v2 import (
    BatchDeployment,
    BatchEndpoint,
    BatchRetrySettings,
    BuildContext,
    CodeConfiguration,
    CommandComponent,
    Data,
    Environment,
    Input,
    Model,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
    Output,
    PipelineComponentBatchDeployment,
    PipelineJob,
    RetrySettings,
    RunFunction,
    command,
    load_batch_deployment,
    load_batch_endpoint,
    load_component,
    load_data,
    load_environment,
    load_job,
    load_model,
    parallel_run_function,
)
from daskprs.azure.v2.dsl import pipeline
from daskprs.errors import UsageError, YamlError

PREPARE = """\
type: command
name: prepare
inputs:
  data: {type: uri_folder}
  plus: {type: integer, default: 1}
outputs:
  numbers: {type: uri_folder}
code: ./src
command: python prepare.py ${{inputs.data}} ${{inputs.plus}} ${{outputs.numbers}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with code, data and a component, and work in it."""
    for name, text in {
        "src/score.py": "def run(mini_batch):\n    return mini_batch\n",
        "src/prepare.py": "print('prepared')\n",
        "data/1.txt": "1",
        "prepare.yml": PREPARE,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def score(**more: Any) -> Any:
    """Return a parallel step that scores files."""
    return parallel_run_function(
        inputs={"numbers": Input(type="uri_folder"), "word": "a b"},
        outputs={"rows": Output(type="uri_file")},
        input_data="${{inputs.numbers}}",
        task=RunFunction(
            code="./src",
            entry_script="score.py",
            environment=Environment(name="e", conda_file="env.yml"),
            program_arguments="$[[--word ${{inputs.word}}]]",
            append_row_to="${{outputs.rows}}",
        ),
        **more,
    )


def scoring(data: Any = None) -> PipelineJob:
    """Return a pipeline of two steps."""
    prepare = load_component(source="prepare.yml")
    scored = score(name="score", instance_count=2, retry_settings={"max_retries": 2, "timeout": 9})

    @pipeline(display_name="scoring of numbers", default_compute="cpu")
    def numbers_scored(data: Input, plus: int = 3, word: str | None = None) -> Any:
        """Score numbers."""
        prepared = prepare(data=data, plus=plus)
        rows = scored(numbers=prepared.outputs.numbers, word=word)
        rows.resources.instance_count = 1
        rows.max_concurrency_per_instance = 4
        rows.retry_settings.timeout = 10
        rows.inputs.numbers.mode = "direct"
        rows.outputs.rows.mode = "upload"
        return {"scores": rows.outputs.rows}

    job: PipelineJob = numbers_scored(data=data or Input(type="uri_folder", path="./data"))
    return job


def read(source: Any) -> Pipeline:
    """Read a job or a file as a run does."""
    given = source.document() if isinstance(source, PipelineJob) else source
    return read_pipeline(given, PipelineFolder("run"), CallerInputs(Assets()))


def test_a_pipeline_in_python_has_the_values_of_a_file(home: Path) -> None:
    """Steps are called as variables, parallel ones as themselves; a step's own keys win."""
    job = scoring()
    job.settings.continue_on_step_failure = True
    values = job.values()
    step = values["jobs"]["score"]
    content = step.pop("component")
    assert values == {
        "type": "pipeline",
        "display_name": "scoring of numbers",
        "description": "Score numbers.",
        "settings": {"default_compute": "cpu", "continue_on_step_failure": True},
        "inputs": {
            "data": {"type": "uri_folder", "path": str(home / "data")},
            "plus": 3,
            "word": {"type": "string", "optional": True},
        },
        "outputs": {"scores": {"type": "uri_file", "mode": "upload"}},
        "jobs": {
            "prepared": {
                "type": "command",
                "component": str(home / "prepare.yml"),
                "inputs": {
                    "data": "${{parent.inputs.data}}",
                    "plus": "${{parent.inputs.plus}}",
                },
            },
            "score": {
                "type": "parallel",
                "resources": {"instance_count": 1},
                "max_concurrency_per_instance": 4,
                "retry_settings": {"max_retries": 2, "timeout": 10},
                "inputs": {
                    "numbers": {
                        "path": "${{parent.jobs.prepared.outputs.numbers}}",
                        "mode": "direct",
                    },
                    "word": "${{parent.inputs.word}}",
                },
                "outputs": {"rows": "${{parent.outputs.scores}}"},
            },
        },
    }
    assert content["task"]["environment"] == {"name": "e", "conda_file": str(home / "env.yml")}
    assert content["resources"] == {"instance_count": 2}
    made = read(job)
    assert [*made.steps] == ["prepared", "score"]
    assert made.goes_on


def test_a_job_is_the_same_by_way_of_its_file(home: Path, tmp_path_factory: Any) -> None:
    """From objects to YAML, in any folder, and back to objects."""
    other = tmp_path_factory.mktemp("other")
    job = scoring()
    for folder in (home, other):
        job.dump(folder / "job.yml")
        loaded = load_job(folder / "job.yml")
        assert read(folder / "job.yml").steps == read(job).steps
        assert read(loaded).steps == read(job).steps
    assert "./data" in (home / "job.yml").read_text()
    loaded.inputs.data = Input(type="uri_folder", path=home / "src")
    loaded.settings.continue_on_step_failure = True
    assert read(loaded).steps["prepared"].inputs["data"].path == home / "src"
    loaded.dump(other / "again.yml")
    again, made = read(other / "again.yml"), read(loaded)
    labels = "Without effect here: description (daskprs does not show it)."
    assert [one for one in again.notices if one != labels] == made.notices  # no one wrote a key
    assert (again.files[0], made.files[0]) == (other / "again.yml", other / "job.yml")
    assert replace(again, notices=made.notices, files=made.files) == made
    assert again.files[1:] == made.files[1:]
    with pytest.raises(UsageError, match=f"its paths are relative to {other}"):
        loaded.dump(home / "again.yml")


@settings(max_examples=20)  # a pipeline is read twice for each
@given(
    keys=st.fixed_dictionaries(
        {},
        optional={
            "mini_batch_size": st.sampled_from(["1", 7, "20"]),
            "max_concurrency_per_instance": st.integers(1, 64),
            "instance_count": st.sampled_from([-1, 1, 9]),
            "error_threshold": st.integers(-1, 100),
            "mini_batch_error_threshold": st.integers(-1, 100),
            "logging_level": st.sampled_from(["DEBUG", "INFO", "WARNING"]),
            "environment_variables": st.dictionaries(
                st.sampled_from("AB"), st.text("y: #", max_size=3)
            ),
            "retry_settings": st.builds(
                RetrySettings, max_retries=st.integers(0, 9), timeout=st.integers(1, 99)
            ),
            "is_deterministic": st.booleans(),
        },
    )
)
def test_every_key_of_a_parallel_step_arrives(
    keys: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In the options of its job, from objects and from the file that they write."""
    home = tmp_path_factory.mktemp("home")
    for name in ("src/score.py", "data/1.txt"):
        (home / name).parent.mkdir()
        (home / name).write_text("def run(mini_batch): return mini_batch\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        step = score(name="score", **keys)

        @pipeline
        def scored() -> Any:
            step(numbers=Input(path="data"), word="x")

        job = scored()
        job.dump("job.yml")
        made = read(job).steps["score"]
        assert made == read("job.yml").steps["score"]
    work: Any = made.work
    size = str(keys.get("mini_batch_size", "1"))
    assert str(work.options["mini_batch_size"]) == size
    given = keys.get("environment_variables", {})
    assert work.options["environment_variables"].items() >= given.items()
    retry = keys.get("retry_settings") or RetrySettings(max_retries=2, timeout=60)
    assert work.options["run_max_try"] == retry.max_retries + 1
    assert work.options["run_invocation_timeout"] == retry.timeout
    assert made.may_reuse is keys.get("is_deterministic", True)


@settings(max_examples=10)  # a pipeline is read twice for each
@given(
    keys=st.fixed_dictionaries(
        {},
        optional={
            "timeout": st.integers(1, 99),
            "environment_variables": st.dictionaries(
                st.sampled_from("AB"), st.text("y: #", max_size=3)
            ),
            "is_deterministic": st.booleans(),
            "code": st.just("src"),
        },
    ),
    word=st.text("a1: #'", min_size=1),
)
def test_every_key_of_commands_and_inner_pipelines_arrives(
    keys: dict[str, Any], word: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also when it is read into objects again, and from a folder below."""
    home = tmp_path_factory.mktemp("home")
    (home / "src").mkdir()
    (home / "below").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        say = command(
            command="echo ${{inputs.w}} > ${{outputs.o}}/o",
            inputs={"w": Input(type="string")},
            outputs={"o": None},
            **keys,
        )

        @pipeline
        def inner(w: str) -> Any:
            one = say(w=w)
            return {"said": one.outputs.o}

        @pipeline
        def outer(w: str) -> Any:
            two = inner(w=w)
            two.settings.force_rerun = True
            return {"said": two.outputs.said}

        job = outer(word)
        made = read(job).steps
        for file in ("job.yml", "below/job.yml"):
            job.dump(file)
            assert read(file).steps == read(load_job(file)).steps == made
    work: Any = made["two.one"].work
    assert work.timeout_s == keys.get("timeout")
    for name, value in keys.get("environment_variables", {}).items():
        assert work.variables[name] == value
    assert not made["two.one"].may_reuse


def deployed(**more: Any) -> dict[str, Any]:
    """Return what two kinds of deployments have in common, and more."""
    return {
        "name": "a",
        "endpoint_name": "e",
        "model": Model(name="m", path="data"),
        "environment": Environment(name="e", conda_file="env.yml"),
        "tags": {"a": "b"},
        **more,
    }


OF_SCORING: dict[str, Any] = {
    "mini_batch_size": 3,
    "output_action": "append_row",
    "retry_settings": BatchRetrySettings(max_retries=2, timeout=4),
    "environment_variables": {"A": "007"},
    "error_threshold": -1,
}


@pytest.mark.parametrize(
    "made",
    [
        lambda: Data(name="d", version="1", path="data", type="uri_folder", tags={"a": "b"}),
        lambda: Model(name="m", path="data", type="mlflow_model", properties={"k": "v"}),
        lambda: Environment(name="e", image="i", conda_file="env.yml"),
        lambda: Environment(name="e", build=BuildContext(path="src"), conda_file={"name": "x"}),
        lambda: BatchEndpoint(name="e", defaults={"deployment_name": "a"}),
        lambda: ModelBatchDeployment(
            **deployed(
                code_configuration=CodeConfiguration(code="src", scoring_script="score.py"),
                settings=ModelBatchDeploymentSettings(**OF_SCORING),
            )
        ),
        lambda: BatchDeployment(
            **deployed(code_path="src", scoring_script="score.py", **OF_SCORING)
        ),
        lambda: PipelineComponentBatchDeployment(
            name="p", endpoint_name="e", component="prepare.yml", settings={"force_rerun": True}
        ),
    ],
)
def test_what_is_dumped_is_read_again(home: Path, made: Any) -> None:
    """By the function of its kind, from any folder, and with the same values."""
    one = made()
    (home / "below").mkdir()
    loads = {
        Data: load_data,
        Model: load_model,
        Environment: load_environment,
        BatchEndpoint: load_batch_endpoint,
    }
    for file in ("one.yml", "below/one.yml"):
        one.dump(file)
        again = loads.get(type(one), load_batch_deployment)(file)
        assert type(again) is type(one)
        assert again.values() == one.values()
    if isinstance(one, ModelBatchDeployment | BatchDeployment):
        kept = FileDeployment.load("below/one.yml")
        assert (kept.name, kept.endpoint_name) == ("a", "e")


def test_a_deployment_names_the_file_of_its_pipeline(home: Path) -> None:
    """So one whose pipeline is in no file is not written."""
    step = load_component("prepare.yml")

    @pipeline
    def prepared(data: Any) -> None:
        step(data=data)

    component = prepared.build()
    given = PipelineComponentBatchDeployment(name="p", component=component)
    with pytest.raises(UsageError, match=r'"pipeline.yml"\), and deploy component="pipeline.yml"'):
        given.dump(home / "p.yml")
    with pytest.raises(UsageError, match="settings: there is no key 'mini_batch_sise'; did you"):
        ModelBatchDeployment(name="a", settings={"mini_batch_sise": 1})


@pytest.mark.usefixtures("home")
def test_steps_without_a_variable_are_called_as_their_component() -> None:
    """And numbered; a name that is set wins, and what reads the step follows."""
    say = command(
        name="Say-it",
        command="echo ${{inputs.n}} > ${{outputs.o}}/o",
        inputs={"n": 1},
        outputs={"o": None},
    )

    @pipeline(non_pipeline_inputs=["many"])
    def said(many: int = 2) -> Any:
        for n in range(many):
            last = say(n=n)
        say(n=9)
        named = say()
        named.name = "by_hand"
        say.component(n=last.outputs.o)
        return {"last": named.outputs.o}

    jobs = said(many=3).values()["jobs"]
    assert [*jobs] == ["say_it", "say_it_1", "last", "say_it_2", "by_hand", "say_it_3"]
    assert jobs["by_hand"]["inputs"] == {"n": 1}
    assert jobs["say_it_3"]["inputs"] == {"n": "${{parent.jobs.last.outputs.o}}"}
    assert [*said().jobs] == ["say_it", "last", "say_it_1", "by_hand", "say_it_2"]


@pytest.mark.usefixtures("home")
def test_steps_of_one_component_share_no_key() -> None:
    """A change of one step is not one of another, wherever the key is written."""
    Path("say.yml").write_text("command: echo $A\nenvironment_variables: {A: file}\n")
    say = command(command="echo $A", environment_variables={"A": "base"}, timeout=100)
    loaded, scored = load_component("say.yml"), score(name=None)

    @pipeline
    def changed() -> None:
        one, two, three, four = say(), say(), loaded(), loaded()
        one.environment_variables["A"] = "one"
        one.limits.timeout = 7
        three.environment_variables["A"] = "three"
        assert four.environment_variables == {"A": "file"}
        five, six = scored(numbers=Input(path="data")), scored(numbers=Input(path="data"))
        five.task.program_arguments = "--k 5"
        assert two.environment_variables["A"] == "base"
        assert six.task.code == "./src"

    steps = changed().values()["jobs"]
    given = {name: one.get("environment_variables") for name, one in steps.items()}
    assert [*given.values()][:4] == [{"A": "one"}, {"A": "base"}, {"A": "three"}, None]
    assert [steps[name]["limits"]["timeout"] for name in ("one", "two")] == [7, 100]
    assert steps["five"]["task"]["program_arguments"] == "--k 5"
    assert "task" not in steps["six"]


def test_a_pipeline_in_another_one_is_a_step() -> None:
    """With the values of a pipeline component."""
    say = command(
        command="echo ${{inputs.n}} > ${{outputs.o}}/o", inputs={"n": 1}, outputs={"o": None}
    )

    @pipeline
    def inner(n: int, word: str = "a") -> Any:  # noqa: ARG001 - declared
        one = say(n=n)
        return {"said": one.outputs.o}

    @pipeline
    def outer(n: int = 4) -> Any:
        two = inner(n=n)
        two.settings.continue_on_step_failure = True
        return {"said": two.outputs.said}

    assert outer().values()["jobs"] == {
        "two": {
            "type": "pipeline",
            "component": inner.build().values(),
            "settings": {"continue_on_step_failure": True},
            "inputs": {"n": "${{parent.inputs.n}}"},
            "outputs": {"said": "${{parent.outputs.said}}"},
        }
    }
    assert inner.build().values()["inputs"] == {
        "n": {"type": "integer"},
        "word": {"type": "string", "default": "a"},
    }


def test_a_task_may_be_the_mapping_of_a_file() -> None:
    """With its type, which an object has by itself."""
    given = {"type": "run_function", "entry_script": "a.py"}
    assert parallel_run_function(task=given).component.values()["task"] == given


def test_functions_take_every_key_of_the_form_of_a_step() -> None:
    """Those of its resources as they are, or together; help shows them."""
    step = command(command="x", resources={"instance_count": 2}, instance_type="a", timeout=3)
    assert step.component.values()["resources"] == {"instance_count": 2, "instance_type": "a"}
    assert step.limits.timeout == 3
    assert {"command", "additional_includes", "timeout"} <= signature(command).parameters.keys()
    with pytest.raises(TypeError, match="no argument 'mini_batch_sise'; did you mean 'mini_batch"):
        parallel_run_function(mini_batch_sise=1)
    with pytest.raises(TypeError, match=r"pipeline\(\) has no argument 'force_rrun'"):
        pipeline(force_rrun=True)
    with pytest.raises(TypeError, match=r"Input\(\) has no argument 'pth'; did you mean 'path'"):
        Input(pth="data")


def test_scalars_of_numpy_are_plain_values() -> None:
    """As inputs, as defaults and in keys; what is written is YAML."""
    say = command(
        command="x", inputs={"n": np.float64(2)}, environment_variables={"A": np.int64(1)}
    )

    @pipeline
    def said(n: Any = np.int64(3)) -> None:  # noqa: B008 - a scalar
        say(n=np.int64(5)).name = "one"
        say(n=n)

    values = yaml.safe_load(str(said(n=np.float32(0.5))))
    assert values["inputs"] == {"n": 0.5}
    assert yaml.safe_load(str(said()))["inputs"] == {"n": 3}
    one = values["jobs"]["one"]
    assert one["component"]["inputs"] == {"n": {"type": "number"}}
    assert (one["inputs"], one["environment_variables"]) == ({"n": 5}, {"A": 1})


def test_what_belongs_to_another_pipeline_is_refused() -> None:
    """Though the inner one has a step and an input of the same names."""
    say = command(command="echo ${{inputs.n}}", inputs={"n": "1"}, outputs={"o": None})

    @pipeline(non_pipeline_inputs=["way"])
    def outer(n: str = "OUTER", way: str = "") -> Any:
        w = say(n=n)

        @pipeline
        def inner(n: str = "INNER") -> Any:
            own = say(n=n)
            own.name = "w"
            last = say(n={"step": w.outputs.o, "input": outer_n, "": own.outputs.o}[way])
            return {"o": last.outputs.o}

        outer_n = n
        return {"o": inner().outputs.o}

    assert [*outer().jobs] == ["w", "inner"]
    for way, told in {"step": "the output 'o' of a step", "input": "the input 'n'"}.items():
        with pytest.raises(UsageError, match=f"'inner', last.inputs.n: {told} of another pipeline"):
            outer(way=way)
    job = outer()
    job.jobs["w"].inputs.n = outer().jobs["w"].outputs.o
    with pytest.raises(UsageError, match=r"'outer', w\.inputs\.n: the output 'o' of a step"):
        job.values()


@pytest.mark.usefixtures("home")
def test_mistakes_name_the_object_and_the_key() -> None:
    """Those in a component's file name file and line."""
    job = scoring(Input(path="gone"))
    job.jobs["score"].task = RunFunction(code="src", entry_script="gone.py")
    Path("prepare.yml").write_text(PREPARE.replace("type: integer", "type: intger"))
    with pytest.raises(YamlError) as caught:
        read(job)
    lines = str(caught.value).splitlines()
    assert any("prepare.yml:5:" in line and "intger" in line for line in lines)
    assert any(line.startswith("numbers_scored: inputs.data.path: the file or") for line in lines)


def _decides(data: Any) -> Any:
    if data:
        command(command="x")()


def _returns_text(data: Any) -> Any:
    del data
    return {"a": "b"}


def _takes_a_number(plus: int) -> None:
    command(command="x")()
    del plus


def _gives_a_method(data: Any) -> Any:
    one = command(command="x", inputs={"keys": 1}, outputs={"values": None})(keys=data)
    command(command="x", inputs={"a": Input()})(a=one.outputs.values)


def _returns_a_method(data: Any) -> Any:
    one = command(command="x", inputs={"keys": 1}, outputs={"values": None})(keys=data)
    assert one.outputs["values"].port_name == "values"
    return {"a": one.inputs.keys}


def _writes_an_output(data: Any) -> Any:
    del data
    step = command(command="x", outputs={"o": None})()
    command(command=f"cat {step.outputs.o}")()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: pipeline(_decides)(1), "non_pipeline_inputs=\\['data'\\]"),
        (lambda: pipeline(_returns_text)(1), "not an output of a step"),
        (lambda: pipeline(_gives_a_method)(1), r'a: outputs\.values is a method .*"values"\]'),
        (lambda: pipeline(_returns_a_method)(1), r'a: inputs\.keys is a method .*"keys"\]'),
        (pipeline(lambda: None), "the pipeline '<lambda>' has no steps"),
        (lambda: pipeline(_writes_an_output)(1), "Give the output to an input of another step"),
        (lambda: pipeline(_decides)(dat=1), "unexpected keyword argument 'dat'. Its inputs: data"),
        (lambda: pipeline(_returns_text, non_pipeline_inputs=["x"]), "has no parameter 'x'"),
        (lambda: load_component("prepare.yml")(dta=1), "no input 'dta'; did you mean 'data'"),
        (lambda: load_component("prepare.yml")(1), "by name: data=…, plus=…"),
        (lambda: load_component("gone.yml"), "gone.yml: it cannot be read"),
        (lambda: load_component("prepare.yml")(data={}).values(), "is not an input: give text"),
        (lambda: scoring().outputs.scored, "no 'scored'; did you mean 'scores'"),
        (lambda: setattr(scoring(), "setings", 1), "no attribute 'setings'; did you mean"),
        (lambda: setattr(scoring().settings, "contine", 1), "no attribute 'contine'"),
        (lambda: setattr(scoring(), "settings", {"contine": 1}), "settings: there is no key 'cont"),
        (lambda: setattr(score(), "mini_batch_sise", 1), "did you mean 'mini_batch_size'"),
        (lambda: parallel_run_function(task={"codde": "."}), "key 'codde'; did you mean 'code'"),
        (lambda: parallel_run_function(task={"type": "model"}), "'run_function', not 'model'"),
        (lambda: setattr(load_component("prepare.yml"), "code", 1), "set it on the step"),
        (lambda: scoring(Input(type="uri_folder")).document(), "'data' .*has no value: give it"),
        (lambda: pipeline(_takes_a_number)("abc").document(), "'plus' .* integer, not 'abc'"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(wrong: Any, told: str) -> None:
    """With the nearest name, or with what to write."""
    with pytest.raises((UsageError, AttributeError), match=told):
        wrong()


def test_names_that_are_not_here_are_refused_with_what_to_do() -> None:
    """When they are used; each name in the data file is one that is not built."""
    names = {
        "": "spark",
        ".sweep": "Choice",
        ".entities": "AzureBlobDatastore",
        ".exceptions": "DeploymentException",
        ".constants": "TimeZone",
    }
    for module, name in names.items():
        absent = getattr(import_module(f"daskprs.azure.v2{module}"), name)
        with pytest.raises(NotBuiltError, match=f"^{name} of Azure's SDK v2 is not available here"):
            absent()
        with pytest.raises(AttributeError, match="no_such"):
            _ = import_module(f"daskprs.azure.v2{module}").no_such
    import daskprs.azure.v2 as sdk
    from daskprs.azure.v2 import entities, exceptions

    assert issubclass(sdk.ResourceNotFoundError, sdk.HttpResponseError)
    assert issubclass(UsageError, exceptions.ValidationException)
    content = tomllib.loads(Path(str(sdk.__file__)).with_name("names.toml").read_text())
    listed = {name for group in content["names"].values() for name in group.split()}
    assert listed.isdisjoint(sdk.__all__)
    for name in " ".join(content["instead"].values()).split():
        assert "." in name or name in listed, name
    token = sdk.get_bearer_token_provider(sdk.ClientSecretCredential("t", "c", "s"), "scope")
    assert token() == ""
    assert sdk.__all__ == sorted(sdk.__all__)
    own = (name for name in sdk.__all__ if not name.endswith("Credential"))  # all of one class
    assert all(getattr(sdk, name).__name__ == name for name in own)
    assert entities.Data is sdk.Data


@pytest.mark.usefixtures("home")
def test_a_component_in_python_is_as_that_of_a_file() -> None:
    """Called with inputs by name, as often as it is needed."""
    say = CommandComponent(
        name="say",
        command="echo ${{inputs.n}} > ${{outputs.o}}/o",
        inputs={"n": {"type": "integer", "default": 2}},
        outputs={"o": {"type": "uri_folder"}},
    )
    say.dump("say.yml")
    loaded = load_component("say.yml")

    @pipeline
    def said() -> None:
        one = say(n=5)
        two = loaded(n=5)
        one.outputs.o = Output(type="uri_folder", path="./said")
        two.outputs.o.path = "./again"

    first, second = (read(said()).steps[name].work for name in ("one", "two"))
    assert first.line == second.line.replace("again", "said")  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="no argument 'comand'; did you mean 'command'"):
        CommandComponent(comand="x")
    with pytest.raises(UsageError, match="has to be an Output"):
        say().outputs.o = "./said"


def test_objects_are_read_from_their_files(home: Path) -> None:
    """Paths start from the file; an unknown key is refused with its place."""
    Path("env").mkdir()
    Path("env/e.yml").write_text("$schema: x\nname: e\nconda_file: c.yml\nbuild: {path: .}\n")
    made = load_environment("env/e.yml")
    assert yaml.safe_load(str(made)) == {
        "name": "e",
        "build": {"path": str(home / "env")},
        "conda_file": str(home / "env/c.yml"),
    }
    for key in ("inputs", "outputs", "tags"):
        Path("p.yml").write_text(f"type: pipeline\njobs: {{}}\n{key}: 1\n")
        with pytest.raises(YamlError, match=rf"p\.yml:3:\d+: {key}: it has to be a mapping"):
            load_job("p.yml")
    Path("p.yml").write_text("type: pipeline\njobs: {}\ninputs: {a: {type: [], default: 1}}\n")
    assert load_job("p.yml").document().content["inputs"] == {"a": {"type": [], "default": 1}}
    Path("m.yml").write_text("name: m\npth: x\n")
    with pytest.raises(YamlError, match=r"m\.yml:2:1: pth: an unknown key; did you mean 'path'"):
        load_model("m.yml")
