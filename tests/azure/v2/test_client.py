"""`MLClient`: a workspace in a folder, which runs jobs and finds again what is registered."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from daskprs.azure._pipeline_folder import PipelineFolder
from daskprs.azure._pipelines.file import read_pipeline
from daskprs.azure._pipelines.values import CallerInputs
from daskprs.azure.v2 import (
    AmlCompute,
    BatchDeployment,
    BatchEndpoint,
    CodeConfiguration,
    Data,
    DefaultAzureCredential,
    Environment,
    Input,
    MLClient,
    Model,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
    Output,
    PipelineComponentBatchDeployment,
    ResourceExistsError,
    ResourceNotFoundError,
    RunFunction,
    command,
    load_batch_deployment,
    load_component,
    parallel_run_function,
)
from daskprs.azure.v2.batch_operations import as_override, place_of_output
from daskprs.azure.v2.dsl import pipeline
from daskprs.azure.v2.job import Job, kept
from daskprs.errors import ParallelRunCanceled, ParallelRunFailed, PipelineFailed, UsageError

SQUARE = """\
import os

def run(mini_batch):
    if model := os.environ.get("AZUREML_MODEL_DIR"):
        (name,) = os.listdir(model)
        return [f"{name} {os.path.basename(file)}" for file in mini_batch]
    return [int(open(file).read()) ** 2 for file in mini_batch]
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MLClient:
    """Return a client in a folder with code, data and a model."""
    for name, text in {
        "src/square.py": SQUARE,
        "data/1.txt": "1",
        "data/2.txt": "2",
        "model/weights": "w",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return MLClient(DefaultAzureCredential(), "<SUBSCRIPTION_ID>", "<RESOURCE_GROUP>", "<NAME>")


def copy(**more: Any) -> Any:
    """Return a step that copies files."""
    return command(
        name="copy",
        command="cp ${{inputs.data}}/* ${{outputs.copies}}",
        inputs={"data": Input(type="uri_folder")},
        outputs={"copies": Output(type="uri_folder")},
        **more,
    )


def test_a_job_runs_to_its_end_and_is_found_again(
    client: MLClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its steps and outputs, also by another client."""
    square = parallel_run_function(
        name="square",
        inputs={"numbers": Input(type="uri_folder")},
        outputs={"rows": Output(type="uri_file")},
        input_data="${{inputs.numbers}}",
        task=RunFunction(code="src", entry_script="square.py", append_row_to="${{outputs.rows}}"),
    )

    @pipeline
    def squares_of(data: Any) -> Any:
        copies = copy()(data=data)
        squares = square(numbers=copies)  # a step stands for its only output
        store = "azureml://datastores/${{default_datastore}}/paths/${{name}}/rows.txt"
        squares.outputs.rows.path = store
        return {"squares": squares.outputs.rows}

    asset = client.data.create_or_update(Data(name="numbers", path="data"))
    job = client.create_or_update(squares_of(Input(path=asset.id)), experiment_name="tries")
    assert job.status == "Completed"
    assert job.outputs["squares"].is_relative_to(client.workspace.root)
    assert job.outputs["squares"].read_text() == "1\n4\n"
    assert job.creation_context.last_modified_at >= job.creation_context.created_at
    other = MLClient.from_config()
    assert [one.name for one in other.jobs.list()] == [job.name]
    assert other.jobs.get(job.name) == job
    with pytest.raises(AttributeError, match=r"Job\.statos of Azure's .*'status'"):
        _ = job.statos  # type: ignore[attr-defined]
    steps = {
        one.properties["azureml.moduleName"]: one.status
        for one in other.jobs.list(parent_job_name=job.name)
    }
    assert steps == {"copy": "Completed", "square": "Completed"}
    other.jobs.download(job.name, download_path="down", output_name="squares")
    assert Path("down/named-outputs/squares/rows.txt").read_text() == "1\n4\n"
    other.jobs.download(f"{job.name}.copies", download_path="step", all=True)
    assert {one.name for one in Path("step").rglob("*") if one.is_file()} == {
        "1.txt",
        "2.txt",
        "std_log.txt",
    }
    (log,) = Path("step/artifacts").rglob("std_log.txt")
    assert log.is_file()
    capsys.readouterr()
    other.jobs.stream(job.name)
    assert f"{job.name}: Completed\n  copies: Completed\n" in capsys.readouterr().err
    other.jobs.begin_cancel(job.name).result()
    with pytest.raises(UsageError, match="has no output 'square'; did you mean 'squares'"):
        other.jobs.download(job.name, output_name="square")
    with pytest.raises(ResourceNotFoundError, match="no job"):
        other.jobs.get("none")


def test_a_job_that_fails_raises_and_is_kept(client: MLClient) -> None:
    """A step by itself runs as a pipeline of one; what cannot start leaves no job."""
    step = command(
        command="test -e ok && echo $((${{inputs.n}})) > ${{outputs.o}}/o",
        code="src",
        inputs={"n": 3},
        outputs={"o": None},
    )
    with pytest.raises(PipelineFailed, match=r"To go on: resume=True, job_dir=") as caught:
        client.jobs.create_or_update(step)
    (job,) = client.jobs.list()
    assert (job.status, job.folder) == ("Failed", caught.value.result.folder)
    assert [one.status for one in job.children] == ["Failed"]
    Path("src/ok").touch()
    again = client.jobs.create_or_update(step, job_dir=job.folder, resume=True)
    assert client.jobs.get(job.name).status == again.status == "Completed"
    assert again.creation_context.created_at == job.creation_context.created_at
    assert (again.outputs["o"] / "o").read_text() == "3\n"
    with pytest.raises(UsageError, match="does not exist"):
        client.jobs.create_or_update(copy()(data=Input(path="gone")))
    with pytest.raises(UsageError, match="is not a job: give a pipeline"):
        client.jobs.create_or_update("x")  # type: ignore[arg-type]
    assert [one.name for one in client.jobs.list()] == [job.name]


def test_a_step_of_an_inner_pipeline_is_found_by_its_name(client: MLClient) -> None:
    """Its name has that of the inner pipeline in it, though the component's file is gone then."""
    Path("say.yml").write_text(f"name: said\ncommand: rm {Path('say.yml').absolute()}\n")
    say = load_component("say.yml")

    @pipeline
    def inner() -> None:
        say().name = "say"

    @pipeline
    def outer() -> None:
        inner().name = "few"

    job = client.jobs.create_or_update(outer())
    (step,) = client.jobs.list(parent_job_name=job.name)
    assert step.name == f"{job.name}.few.say"
    assert step.properties == {"azureml.moduleName": "said"}
    assert not Path("say.yml").exists()
    assert client.jobs.get(step.name) == step
    with pytest.raises(ResourceNotFoundError, match="no job"):
        client.jobs.get(f"{job.name}.few.sey")


def test_a_job_goes_by_the_name_of_one_folder(client: MLClient) -> None:
    """A resume has what the record had; a step that runs ends as its job does."""
    with kept(client.registry, Job("run", Path("A/run").absolute())):
        pass
    first = client.jobs.get("run")
    other = Job("run", Path("B/run").absolute())
    told = pytest.raises(ResourceExistsError, match=r"a job 'run' already, in .*A/run")
    with told, kept(client.registry, other):
        pass
    assert client.jobs.get("run") == first
    first.children = [Job("run.step", first.folder)]
    with pytest.raises(KeyboardInterrupt), kept(client.registry, first):
        raise KeyboardInterrupt
    again = Job("run", first.folder)
    with pytest.raises(RuntimeError), kept(client.registry, again, goes_on=True):
        raise RuntimeError
    assert (again.status, again.created) == ("Failed", first.created)
    (found,) = client.jobs.list(parent_job_name="run")
    assert (found.name, found.status) == ("run.step", "Canceled")


def test_a_canceled_job_keeps_its_steps_logs_and_outputs(client: MLClient) -> None:
    """What is Completed by then, too; Ctrl-C of a notebook is SIGINT for its process."""
    first = command(command="echo 1 > ${{outputs.o}}", outputs={"o": Output(type="uri_file")})
    last = command(
        command=f"cat ${{{{inputs.i}}}}; kill -INT {os.getpid()}; sleep 300",
        inputs={"i": Input(type="uri_file")},
    )

    @pipeline
    def interrupted() -> Any:
        one = first()
        two = last(i=one.outputs.o)
        two.name = "last"
        return {"o": one.outputs.o}

    with pytest.raises(ParallelRunCanceled) as caught:
        client.jobs.create_or_update(interrupted(), job_dir="broken")
    job = client.jobs.get("broken")
    steps = {one.name: one.status for one in job.children}
    assert (job.status, steps) == (
        "Canceled",
        {"broken.one": "Completed", "broken.last": "Canceled"},
    )
    assert caught.value.result.status == "Canceled"
    assert caught.value.result.steps["last"].status == "Canceled"
    client.jobs.download("broken", all=True, download_path="got")
    assert Path("got/named-outputs/o/o").read_text() == "1\n"


def test_a_workspace_in_the_code_is_not_source(
    client: MLClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """So a step is reused, whatever was kept in the workspace meanwhile."""
    step = command(command="ls > ${{outputs.o}}/o", code=".", outputs={"o": None})
    client.models.create_or_update(Model(name="m", path="model"))
    first = client.jobs.create_or_update(step)
    kept = json.loads((first.children[0].folder / "assets.json").read_text())
    assert kept["m@latest"] == str(client.models.get("m").path)
    listed = (first.outputs["o"] / "o").read_text().split()
    assert {"src", "data"} <= {*listed}
    assert not {"daskprs-workspace", "daskprs-jobs"} & {*listed}
    client.data.create_or_update(Data(name="d", path="data"))
    client.jobs.create_or_update(step)
    assert ": reused, " in capsys.readouterr().err


def test_an_asset_belongs_to_the_steps_whose_code_may_ask_for_it(client: MLClient) -> None:
    """All others are the same steps, whatever is registered, and so are reused."""
    step = parallel_run_function(
        name="square",
        inputs={"numbers": Input(type="uri_folder")},
        input_data="${{inputs.numbers}}",
        task=RunFunction(code="src", entry_script="square.py"),
    )

    @pipeline
    def squares_of(numbers: Any) -> None:
        step(numbers=numbers)

    def variables() -> dict[str, str]:
        given = CallerInputs(client.assets())
        job = squares_of(Input(path="data")).document()
        work: Any = read_pipeline(job, PipelineFolder("run"), given).steps["square"].work
        return dict(work.options["environment_variables"])

    client.models.create_or_update(Model(name="m", path="model"))
    assert "DASKPRS_ASSETS" not in variables()
    asks = "from azureml.core.model import Model\nplace = Model.get_model_path\n"
    Path("src/place.py").write_text(asks)
    place = client.models.get("m").path
    assert json.loads(variables()["DASKPRS_ASSETS"])["m:1"] == str(place)

    @pipeline
    def asks_in_a_command(numbers: Any) -> None:
        asking = command(command="ls", code="src", inputs={"numbers": Input(type="uri_folder")})
        asking(numbers=numbers)

    job = asks_in_a_command(Input(path="data")).document()
    works = read_pipeline(job, PipelineFolder("run"), CallerInputs(client.assets())).steps
    (work,) = (one.work for one in works.values())
    assert json.loads(work.variables["DASKPRS_ASSETS"])["m@latest"] == str(place)


def test_what_is_registered_is_found_by_name_and_version(client: MLClient) -> None:
    """Versions count up; data is a path, a model a copy."""
    assert client.data.create_or_update(Data(name="d", path="data")).version == "1"
    assert client.data.create_or_update(Data(name="d", path="src")).version == "2"
    assert client.data.create_or_update(Data(name="d", path="src", version="x")).version == "x"
    with pytest.raises(UsageError, match="'d' has a version 1 already, with other content"):
        client.data.create_or_update(Data(name="d", path="model", version="1"))
    client.data.create_or_update(Data(name="d", path="data", version="1"))
    assert client.data.get("d", label="latest").version == "x"
    assert client.data.get("d", version="1").path == str(Path("data").absolute())
    assert [one.version for one in client.data.list("d")] == ["1", "2", "x"]
    assert [one.name for one in client.data.list()] == ["d"]
    model = client.models.create_or_update(Model(name="m", path="model", tags={"a": "b"}))
    Path("model/weights").write_text("changed")
    assert (Path(model.path or "") / "weights").read_text() == "w"
    assert client.models.get("m", label="latest") == model
    seventh = client.models.create_or_update(Model(name="m", path="model", version="007"))
    assert seventh.version == "7"
    assert client.models.get("m", version="007") == seventh
    with pytest.raises(ResourceExistsError, match="has a version 7 already"):
        client.models.create_or_update(Model(name="m", path="model", version="7"))
    with pytest.raises(UsageError, match="whole number"):
        client.models.create_or_update(Model(name="m", path="model", version="v1"))
    client.models.download("m", version="1", download_path="down")
    assert Path("down/m/model/weights").read_text() == "w"
    places = client.assets()
    assert places.place("azureml:d@latest", Path()) == Path("src").absolute()
    assert places.place("d@latest", Path()) == Path("src").absolute()
    assert ModelBatchDeployment(model="m:1").values()["model"] == "m:1"
    Path("m:1").touch()
    assert ModelBatchDeployment(model="m:1").values()["model"] == str(Path("m:1").absolute())
    assert places.place(model.id, Path()) == Path(model.path or "")
    kept = client.components.create_or_update(copy().component, version="3")
    found = client.components.get("copy", version="3")
    assert (found.id, found.inputs) == (kept.id, {"data": {"type": "uri_folder"}})
    assert found(data=Input(path="data")).values()["inputs"]["data"]["type"] == "uri_folder"
    assert [one.version for one in client.components.list("copy")] == ["3"]
    for wanted in (
        lambda: client.components.get("copy", version="4"),
        lambda: client.components.get("cpy"),
        lambda: client.models.get("m", version="9"),
        lambda: client.data.get("none"),
        lambda: client.batch_endpoints.get("none"),
    ):
        with pytest.raises(ResourceNotFoundError):
            wanted()
    environment = client.environments.create_or_update(Environment(name="e", image="i"))
    assert (environment.version, client.environments.get("e").image) == ("1", "i")
    assert client.environments.get("curated", label="latest").name == "curated"
    assert client.compute.get("cpu").name == "cpu"
    client.begin_create_or_update(AmlCompute(name="gpu", max_instances=5)).result()
    assert [one.name for one in client.compute.list()] == ["gpu"]


def test_registering_at_the_same_time_loses_nothing(client: MLClient, tmp_path: Path) -> None:
    """Threads wait for each other; of one version, one content is kept."""
    folders = [tmp_path / str(number) for number in range(12)]
    component = copy().component

    def register(folder: Path) -> tuple[str, str]:
        data = client.data.create_or_update(Data(name="d", path=folder))
        one = client.components.create_or_update(component)
        client.batch_endpoints.begin_create_or_update(BatchEndpoint(name="e"))
        return data.version or "", one.version or ""

    def is_first(asset: Data | Model) -> bool:
        try:
            client.create_or_update(asset)
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        found = [*threads.map(register, folders)]
        data = [Data(name="x", path=folder, version="1") for folder in folders]
        models = [Model(name="x", path="model", version="1")] * 6
        of_data, of_models = [*threads.map(is_first, data)], [*threads.map(is_first, models)]
    for versions in zip(*found, strict=True):
        assert sorted(map(int, versions)) == [*range(1, 13)]
    places = {one.version: one.path for one in client.data.list("d")}
    assert places == {data: str(folder) for (data, _), folder in zip(found, folders, strict=True)}
    assert [*places] == [str(number) for number in range(1, 13)]
    assert of_data.count(True) == of_models.count(True) == 1
    assert client.data.get("x").path == str(folders[of_data.index(True)])


def test_two_assets_of_one_short_name_are_never_mixed_up(client: MLClient) -> None:
    """By their ids both are found; the short reference that both have is refused."""
    data = client.data.create_or_update(Data(name="iris", path="data"))
    model = client.models.create_or_update(Model(name="iris", path="model"))
    places = client.assets()
    assert places.place(data.id, Path()) != places.place(model.id, Path())
    with pytest.raises(UsageError, match="the place of this asset is unknown"):
        places.place("azureml:iris:1", Path())


def test_a_workspace_is_the_folder_that_a_config_names(client: MLClient, tmp_path: Path) -> None:
    """One of Azure's own names none, as a warning says; given datastores and assets are found."""
    assert client.workspace.root == tmp_path / "daskprs-workspace"
    assert MLClient.from_config().workspace.root == tmp_path / "daskprs-workspace"
    Path("config.json").write_text(json.dumps({"subscription_id": "1", "workspace_name": "w"}))
    for given, told in (
        ({"path": "no/x.json"}, r"no/x\.json does not exist\. Write MLClient\(root='FOLDER'\)"),
        ({"file_name": "x.json"}, r"no x\.json was found"),
    ):
        with pytest.raises(UsageError, match=f"^MLClient.from_config: .*, and .*{told}"):
            MLClient.from_config(**given)
    with pytest.warns(UserWarning, match=r"config\.json has no root: the workspace is /"):
        client = MLClient.from_config()
    assert client.workspace.root == tmp_path / "daskprs-workspace"
    assert MLClient.from_config(root="here").workspace.root == tmp_path / "here"
    Path("config.json").write_text(json.dumps({"root": "ws", "datastores": {"blobs": "data"}}))
    named = MLClient.from_config(
        datastores={"more": "src"},
        assets={"azureml:m:1": "model"},
        environments={"e": sys.executable},
    )
    assert named.assets().environments == {"e": sys.executable}
    assert named.workspace.root == tmp_path / "ws"
    other = {"root": "ws", "workspace_name": "other", "environments": {"of": sys.executable}}
    Path("src/other.json").write_text(json.dumps(other))
    for more in ({}, {"datastores": {"more": "src"}}):
        found = MLClient.from_config(path="src", file_name="other.json", **more)
        assert found.workspace.root == tmp_path / "src" / "ws"
        assert (found.workspace_name, [*found.assets().environments]) == ("other", ["of"])
    assert MLClient.from_config(file_name="config.json").workspace.root == tmp_path / "ws"
    own = named.workspaces.get(named.workspace_name)
    assert (own.name, own.location) == (named.workspace_name, "local")
    assert own.mlflow_tracking_uri == (tmp_path / "ws/mlruns").as_uri()
    for owner, attribute, told in (
        (named, "schedules", r"^MLClient\.schedules of Azure's SDK v2 is .*: let a scheduler"),
        (named.jobs, "validate", r"^JobOperations\.validate .*create_or_update"),
        (named.jobs, "archive", r"^JobOperations\.archive "),
        (named.models, "lists", r"did you mean 'list'\?$"),
        (own, "tags", "known are location, "),
    ):
        assert not hasattr(owner, attribute)
        with pytest.raises(UsageError, match=told):
            getattr(owner, attribute)
    assert [one.name for one in named.datastores.list()] == ["workspaceblobstore", "blobs", "more"]
    assert named.datastores.get_default().root == str(tmp_path / "ws")
    places = named.assets()
    assert places.place("azureml:m:1", Path()) == tmp_path / "model"
    assert places.place("azureml://datastores/blobs/paths/1.txt", Path()) == tmp_path / "data/1.txt"


def test_an_endpoint_scores_files_by_its_default_deployment(
    client: MLClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """A deployment is checked as it is registered, and its invocations are jobs."""
    model = client.models.create_or_update(Model(name="m", path="model"))
    endpoint = BatchEndpoint(name="scoring", description="scores")
    client.batch_endpoints.begin_create_or_update(endpoint).result()
    deployment = ModelBatchDeployment(
        name="first",
        endpoint_name=endpoint.name,
        model=model,
        code_configuration=CodeConfiguration(code="src", scoring_script="square.py"),
        compute="batch-cluster",
        mini_batch_size=3,
        settings=ModelBatchDeploymentSettings(output_file_name="scores.csv"),
    )
    client.begin_create_or_update(deployment).result()
    with pytest.raises(UsageError, match="no default deployment \\(known: first\\)"):
        client.batch_endpoints.invoke("scoring", input=Input(path="data"))
    found = client.batch_endpoints.get("scoring")
    found.defaults = {}
    found.defaults["deployment_name"] = deployment.name
    assert found.defaults.deployment_name == found.defaults["deployment_name"] == "first"
    assert "deployment_name" in found.defaults
    assert dict(found.defaults) == {"deployment_name": "first"}
    with pytest.raises(KeyError):
        found.defaults["values"]
    client.batch_endpoints.begin_create_or_update(found).result()
    store = client.datastores.get_default()
    job = client.batch_endpoints.invoke(
        "scoring",
        input=Input(type="uri_folder", path=Path("data")),
        params_override=[
            {"output_dataset.datastore_id": f"azureml:{store.id}"},
            {"output_dataset.path": "/scores/"},
            {"output_file_name": "other.csv"},
            {"mini_batch_size": "2"},
        ],
    )
    assert job.outputs == {"score": client.workspace.root / "scores"}
    assert "warning" not in capsys.readouterr().err
    (scored,) = client.jobs.list(parent_job_name=job.name)
    assert scored.status == "Completed"
    assert scored.creation_context.last_modified_at > scored.creation_context.created_at
    client.jobs.download(scored.name, output_name="score")
    rows = Path("named-outputs/score/other.csv").read_text().splitlines()
    assert rows == ["model 1.txt", "model 2.txt"]
    assert [one.name for one in client.batch_deployments.list_jobs("first", "scoring")] == [
        job.name
    ]
    client.jobs.download(job.name, download_path="here", output_name="score")
    assert {str(one) for one in Path("here").rglob("other.csv")} == {
        "here/other.csv",
        "here/named-outputs/score/other.csv",
    }
    Path("src/fails.py").write_text("def init(): raise ValueError('gone')\ndef run(_): ...\n")
    with pytest.raises(ParallelRunFailed):
        client.batch_endpoints.invoke(
            "scoring",
            input=Input(path="data"),
            params_override=[{"code_configuration.scoring_script": "fails.py"}],
        )
    (failed,) = client.jobs.list(max_results=1)
    (scored,) = client.jobs.list(parent_job_name=failed.name)
    assert (failed.status, scored.status) == ("Failed", "Failed")
    for one in (failed.name, scored.name):
        client.jobs.download(one, download_path=one)
        assert "gone" in Path(one, "artifacts/logs/job_error.txt").read_text()
    with pytest.raises(UsageError, match="the input has no data"):
        client.batch_endpoints.invoke("scoring", input=Input(type="uri_folder"))
    wrong = BatchDeployment(name="second", endpoint_name="scoring", model="gone", mini_batch_size=0)
    with pytest.raises(
        UsageError, match=r"^second: mini_batch_size: .*\nsecond: model: the file .*gone"
    ):
        client.batch_deployments.begin_create_or_update(wrong)
    assert [one.name for one in client.batch_deployments.list("scoring")] == ["first"]
    client.batch_endpoints.begin_delete("scoring").result()
    assert client.batch_endpoints.list() == []
    assert client.jobs.get(job.name).status == "Completed"


def test_an_endpoint_is_invoked_by_older_names_of_its_output(client: MLClient) -> None:
    """It has no URI, which the message says, and suggests attributes that it has."""
    client.begin_create_or_update(BatchEndpoint(name="scoring"))
    deployment = ModelBatchDeployment(
        name="first",
        endpoint_name="scoring",
        model=Model(path="model"),
        code_configuration=CodeConfiguration(code="src", scoring_script="square.py"),
    )
    client.begin_create_or_update(deployment)
    job = client.batch_endpoints.invoke(
        "scoring",
        deployment_name="first",
        input=Input(path="data"),
        output_path={"score": Input(path="azureml://datastores/workspaceblobstore/paths/old")},
        output_file_name="old.csv",
    )
    assert [*job.outputs["score"].iterdir()] == [client.workspace.root / "old/old.csv"]
    endpoint = client.batch_endpoints.get("scoring")
    assert not hasattr(endpoint, "provisioning_state")
    with pytest.raises(UsageError, match=r"^BatchEndpoint\.scoring_uri of .*daskprs serve"):
        _ = endpoint.scoring_uri
    with pytest.raises(UsageError, match=r"did you mean 'tags'\?$"):
        _ = endpoint.tag


def test_the_output_of_a_deployment_may_be_a_file_or_a_folder(client: MLClient) -> None:
    """Of a file, the folder and the name are two options of the job."""
    changes: dict[str, Any] = {}
    given = Output(type="uri_file", path="azureml://datastores/workspaceblobstore/paths/a/b.csv")
    folder = str(client.workspace.root / "a")
    assert place_of_output(given, changes, client.assets()) == folder
    assert changes == {"output_file_name": "b.csv"}
    given = Output(type="uri_folder", path="out")
    assert place_of_output(given, {}, client.assets()) == str(Path("out").absolute())
    assert place_of_output(None, {}, client.assets()) is None


@pytest.mark.parametrize("value", ["007", "yes", "a: 1 # é😀", "", None, 7, True, {"A": "1e3"}])
def test_values_of_an_override_keep_their_types(value: Any) -> None:
    """What is read back from the text is the value."""
    assert yaml.safe_load(as_override(value)) == value


def test_an_endpoint_runs_a_pipeline_that_a_function_makes(client: MLClient) -> None:
    """Its inputs come with the invocation."""

    @pipeline
    def copied(data: Input(type="uri_folder"), word: str = "a") -> Any:  # type: ignore[valid-type]
        copies = copy()(data=data)
        said = command(
            command="echo ${{inputs.w}} > ${{outputs.o}}/w", inputs={"w": "-"}, outputs={"o": None}
        )(w=word)
        return {"copies": copies.outputs.copies, "said": said.outputs.o}

    component = client.components.create_or_update(copied().component)
    client.batch_endpoints.begin_create_or_update(BatchEndpoint(name="copies")).result()
    for name, one in {"kept": component, "own": copied.build(), "named": component.id}.items():
        deployment = PipelineComponentBatchDeployment(
            name=name, endpoint_name="copies", component=one, settings={"default_compute": "c"}
        )
        client.batch_deployments.begin_create_or_update(deployment).result()
    data = client.data.create_or_update(Data(name="fast", path="data"))
    for name, place, word, said in (
        ("kept", Input(path="data"), Input(type="string", default="b"), "b"),
        ("own", data.id, "fast:1", "fast:1"),
        ("named", Input(path="azureml:fast:1"), "azureml:fast:1", "azureml:fast:1"),
    ):
        given = {"data": place, "word": word}
        job = client.batch_endpoints.invoke("copies", deployment_name=name, inputs=given)
        client.jobs.download(job.name, download_path=name, output_name="said")
        assert Path(name, "named-outputs/said/w").read_text() == f"{said}\n"
        steps = {one.properties["azureml.moduleName"]: one.status for one in job.children}
        assert steps == {"copy": "Completed", "said": "Completed"}
    own = client.batch_deployments.get("own", "copies")
    with pytest.raises(UsageError, match="continue_on_step_failure"):
        client.batch_deployments.begin_create_or_update(
            PipelineComponentBatchDeployment(
                name="own",
                endpoint_name="copies",
                component=copied.build(),
                settings={"continue_on_step_failure": "maybe"},
            )
        )
    component = copied.build()
    component.steps["copies"].environment_variables = {"A": "${{parent.inputs.dta}}"}
    with pytest.raises(UsageError, match=r"^own: jobs\.copies\.environment_variables\.A: "):
        client.batch_deployments.begin_create_or_update(
            PipelineComponentBatchDeployment(
                name="own", endpoint_name="copies", component=component
            )
        )
    assert client.batch_deployments.get("own", "copies") == own
    own.tags = {"changed": "yes"}
    client.batch_deployments.begin_create_or_update(own)
    assert client.batch_deployments.get("own", "copies") == own
    assert len([*Path().rglob("own*.component")]) == 1
    with pytest.raises(UsageError, match=r"is a command component\. Call it in the function"):
        client.batch_deployments.begin_create_or_update(
            PipelineComponentBatchDeployment(
                name="x", endpoint_name="copies", component=copy().component
            )
        )
    for one in (copied(Input(path="data")), job):
        with pytest.raises(UsageError, match=r"component=pipeline_job\.component\.$"):
            client.batch_deployments.begin_create_or_update(
                PipelineComponentBatchDeployment(
                    name="x", endpoint_name="copies", job_definition=one
                )
            )


SAYS = """
type: pipeline
inputs:
  code: abc
  word: {type: string, default: x}
jobs:
  one:
    type: command
    command: echo "${{inputs.code}} ${{inputs.word}}" > ${{outputs.o}}/w
    inputs: {code: "${{parent.inputs.code}}", word: "${{parent.inputs.word}}"}
    outputs: {o: }
"""


def test_text_for_an_input_without_a_type_stays_text(client: MLClient) -> None:
    """On the command line it would be YAML, in which yes is true."""
    Path("says.yml").write_text(SAYS)
    Path("deployment.yml").write_text(
        "name: says\nendpoint_name: says\ntype: pipeline\ncomponent: ./says.yml\n"
    )
    client.batch_endpoints.begin_create_or_update(BatchEndpoint(name="says")).result()
    deployment = load_batch_deployment("deployment.yml")
    client.batch_deployments.begin_create_or_update(deployment).result()
    given = {"code": "yes", "word": "1_0"}
    job = client.batch_endpoints.invoke("says", deployment_name="says", inputs=given)
    (written,) = job.logs[0].parents[2].rglob("named-outputs/o/w")
    assert written.read_text() == "yes 1_0\n"


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_name_leads_nowhere_else(client: MLClient, name: str) -> None:
    """Not to the folder of the workspace, nor out of it."""
    client.data.create_or_update(Data(name="kept", path="data", type="uri_folder"))
    with pytest.raises(UsageError, match=r"name"):
        client.data.create_or_update(Data(name=name, path="data", type="uri_folder"))
    with pytest.raises(UsageError, match=r"name"):
        client.batch_endpoints.begin_create_or_update(BatchEndpoint(name=name))
    with pytest.raises(UsageError, match=r"name"):
        client.batch_endpoints.begin_delete(name)
    assert [one.name for one in client.data.list()] == ["kept"]
