"""From SDK v1 to v2 and to the options of a job: every value arrives.

What one side cannot express is not asked for: a pipeline parameter (its default arrives), what a
dataset says of its paths and columns (an MLTable says it), and the name of a file that nothing is
appended to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from daskprs.azure.assets import Assets
from daskprs.azure.pipelines.file import read_pipeline
from daskprs.azure.pipelines.values import CallerInputs
from daskprs.azure.v1 import Dataset, Environment, ParallelRunConfig, ParallelRunStep
from daskprs.folders.pipeline_folder import PipelineFolder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with code and data."""
    root = tmp_path_factory.mktemp("project")
    for name in ("code/score.py", "data/a.txt", "data/b.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("def run(mini_batch): return mini_batch\n")
    return root


configs = st.fixed_dictionaries(
    {
        "error_threshold": st.integers(-1, 1000),
        "output_action": st.sampled_from(["append_row", "summary_only"]),
        "compute_target": st.sampled_from(["cpu-cluster", "gpu"]),
        "node_count": st.integers(1, 100),
        "environment": st.builds(
            Environment,
            st.sampled_from(["e", "AzureML-sklearn"]),
            version=st.sampled_from([None, "3"]),
            environment_variables=st.dictionaries(
                st.sampled_from("AB"), st.text("x1: ", max_size=4)
            ),
        ),
    },
    optional={
        "process_count_per_node": st.integers(1, 64),
        "mini_batch_size": st.sampled_from([1, 7, "5", "100"]),
        "run_invocation_timeout": st.integers(1, 259_200),
        "run_max_try": st.integers(1, 100),
        "allowed_failed_count": st.integers(-1, 100),
        "allowed_failed_percent": st.integers(0, 10_000).map(lambda percent: percent / 100),
        "append_row_file_name": st.sampled_from(["scores.csv", "1.txt"]),
        "environment_variables": st.dictionaries(st.sampled_from("BC"), st.text("y2#", max_size=4)),
        "logging_level": st.sampled_from(["DEBUG", "INFO", "WARNING"]),
        "description": st.just("all of it: scored"),
    },
)


@settings(max_examples=25)  # a pipeline is read for each
@given(values=configs)
def test_every_value_arrives_in_the_options_of_a_job(values: dict[str, Any], project: Path) -> None:
    """By way of the YAML file of a config, and of that of a pipeline."""
    code = {"entry_script": "score.py", "source_directory": str(project / "code")}
    one = ParallelRunConfig(**values, **code)
    one.save_to_yaml(project / "config.yml")
    again = ParallelRunConfig.load_yaml(None, project / "config.yml")
    job = again.as_parallel_job("./data", output="./out")
    pipeline = {"type": "pipeline", "jobs": {"score": job}}
    (project / "pipeline.yml").write_text(yaml.safe_dump(pipeline))

    given = CallerInputs(Assets())
    read = read_pipeline(project / "pipeline.yml", PipelineFolder(project / "run"), given)
    v2: Any = read.steps["score"].work
    step = ParallelRunStep("score", one, [Dataset.File.from_files(str(project / "data"))])
    v1 = step.task(project / "run" / "score", {}, None, None, "run")
    if values["output_action"] == "summary_only":
        v1.options.pop("append_row_file_name", None)
    options = [{**task.run_options(mini_batch_size=size(task))} for task in (v1, v2)]
    assert options[0] == options[1]
    assert v2.output_dir == project / "out"
    assert Path(v2.source_directory, v2.script).samefile(Path(str(v1.source_directory), v1.script))
    assert job.get("description") == values.get("description")
    assert job["compute"] == f"azureml:{values['compute_target']}"
    assert job["task"]["environment"].startswith(f"azureml:{values['environment'].name}")


def size(task: Any) -> str:
    """Return how many files make a mini-batch: ten by default, which a job has to be told."""
    return str(task.options.get("mini_batch_size", 10))


def test_partition_keys_arrive_by_way_of_an_mltable(project: Path) -> None:
    """A table has its keys in its columns."""
    (project / "MLTable").write_text(
        "paths: [{file: ./table.csv}]\ntransformations: [{read_delimited: {delimiter: ','}}]\n"
    )
    (project / "table.csv").write_text("store,n\n1,2\n")
    one = ParallelRunConfig(
        "e", "score.py", 5, "append_row", "cpu", 2, None, None, str(project / "code"),
        partition_keys=["store"],
    )  # fmt: skip
    job = one.as_parallel_job(".", data_type="mltable")
    pipeline = {"type": "pipeline", "jobs": {"score": job}}
    (project / "tables.yml").write_text(yaml.safe_dump(pipeline))
    folder = PipelineFolder(project / "run2")
    v2: Any = (
        read_pipeline(project / "tables.yml", folder, CallerInputs(Assets())).steps["score"].work
    )
    assert v2.run_options().partition_keys == ("store",)
    assert v2.run_options().mini_batch_size is None
