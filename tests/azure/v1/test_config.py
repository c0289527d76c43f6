"""`ParallelRunConfig`: every parameter is checked, and a file keeps them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskprs
from daskprs.azure.v1 import AmlCompute, Environment, ParallelRunConfig, PipelineParameter
from daskprs.errors import OptionError, YamlError

REQUIRED = {
    "environment": "curated",
    "entry_script": "score.py",
    "error_threshold": -1,
    "output_action": "append_row",
    "compute_target": "cpu-cluster",
    "node_count": 2,
}


def config(**more: Any) -> ParallelRunConfig:
    """Return a config that has what it needs."""
    return ParallelRunConfig(**{**REQUIRED, **more})


def test_what_is_not_given_has_the_defaults_of_sdk_v1() -> None:
    """No limit on failed mini-batches is one of them."""
    assert config().options() == {
        "error_threshold": -1,
        "node_count": 2,
        "logging_level": "INFO",
        "run_invocation_timeout": 60,
        "run_max_try": 3,
        "output_action": "append_row",
        "allowed_failed_count": -1,
        "environment_variables": None,
    }


def test_the_six_required_parameters_come_first_and_may_be_given_by_place() -> None:
    """In the order of the original."""
    by_place = ParallelRunConfig(*REQUIRED.values())
    assert by_place.options() == config().options()


def test_every_wrong_parameter_is_told_in_one_go() -> None:
    """With the rule, the value, and the nearest name of what is unknown."""
    with pytest.raises(OptionError) as caught:
        config(
            node_count=0,
            run_invocation_timeout=0,
            run_max_try=0,
            process_count_per_node=0,
            error_threshold=-2,
            output_action="append_rows",
            mini_batch_sise="10",
            allowed_failed_percent=101,
            environment=None,
            logging_level="LOUD",
            append_row_file_name="a/b.txt",
            environment_variables={"A=B": "1"},
        )
    told = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "allowed_failed_percent=101",
        "append_row_file_name='a/b.txt'",
        "environment=None",
        "environment_variables={'A=B'",
        "error_threshold=-2",
        "logging_level='LOUD'",
        "mini_batch_sise",
        "node_count=0",
        "output_action='append_rows'",
        "process_count_per_node=0",
        "run_invocation_timeout=0",
        "run_max_try=0",
    ]
    assert told[6].endswith("did you mean 'mini_batch_size'?")
    assert told[11].endswith("must be a whole number of at least 1.")


@pytest.mark.parametrize("size", ["10kbmb", "10 tb", "0", -1, 0, "ten"])
def test_a_size_that_is_none_is_refused(size: object) -> None:
    """Before anything else is asked for."""
    with pytest.raises(OptionError, match="mini_batch_size="):
        config(mini_batch_size=size)


def test_keys_with_a_size_are_refused() -> None:
    """A mini-batch is one or the other."""
    with pytest.raises(OptionError, match=r"partition_keys=\['a'\]: not together with"):
        config(partition_keys=["a"], mini_batch_size="1MB")


def test_pipeline_parameters_stand_for_values_that_a_submission_may_change() -> None:
    """Their defaults are checked as values are; text that is a number is one."""
    one = config(
        mini_batch_size=PipelineParameter("size", "5"),
        run_max_try=PipelineParameter("tries", "4"),
    )
    assert one.options()["mini_batch_size"] == "5"
    assert one.options({"size": "7", "tries": 1})["run_max_try"] == 1
    with pytest.raises(OptionError, match="run_max_try=0"):
        one.options({"tries": 0})
    with pytest.raises(OptionError, match="node_count=0"):
        config(node_count=PipelineParameter("nodes", 0))


def test_variables_of_the_environment_are_set_as_far_as_the_config_sets_no_others() -> None:
    """The config stands nearer to the script."""
    environment = Environment("e", environment_variables={"A": "1", "B": "1"})
    one = config(environment=environment, environment_variables={"B": "2"})
    assert one.options()["environment_variables"] == {"A": "1", "B": "2"}


def test_variables_may_be_numbers_and_booleans() -> None:
    """Notebooks set them so."""
    environment = Environment("e", environment_variables={"A": True, "B": 1})  # type: ignore[dict-item]
    environment.environment_variables["C"] = 0.5  # type: ignore[assignment]
    one = config(environment=environment, environment_variables={"B": False})
    assert one.options()["environment_variables"] == {"A": "True", "B": "False", "C": "0.5"}


def test_a_file_keeps_every_parameter(tmp_path: Path) -> None:
    """Those of the environment that mean something here, too."""
    one = config(
        environment=Environment("e", version="3", environment_variables={"A": "1"}),
        compute_target=AmlCompute(name="gpu-cluster"),
        process_count_per_node=2,
        source_directory="src",
        description="scores",
        logging_level="DEBUG",
        run_invocation_timeout=600,
        run_max_try=5,
        append_row_file_name="scores.csv",
        allowed_failed_count=3,
        allowed_failed_percent=12.5,
        partition_keys=["store", "brand"],
        environment_variables={"N": "7"},
    )
    one.save_to_yaml(tmp_path / "config.yml")
    again = ParallelRunConfig.load_yaml(None, tmp_path / "config.yml")
    again.save_to_yaml(tmp_path / "again.yml")
    assert again.options() == one.options()
    assert again.environment.version == "3"
    assert again.compute_target == "gpu-cluster"
    assert (tmp_path / "again.yml").read_text() == (tmp_path / "config.yml").read_text()


options = st.fixed_dictionaries(
    {},
    optional={
        "process_count_per_node": st.integers(1, 64),
        "mini_batch_size": st.one_of(st.integers(1, 10**9), st.sampled_from(["1KB", "10 mb", "7"])),
        "run_invocation_timeout": st.integers(1, 259_200),
        "run_max_try": st.integers(1, 100),
        "allowed_failed_count": st.integers(-1, 100),
        "allowed_failed_percent": st.one_of(st.integers(0, 100), st.floats(0, 100)),
        "description": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
        "environment_variables": st.dictionaries(
            st.from_regex("[A-Z]{1,5}", fullmatch=True), st.text("ab1: #'\"-", max_size=9)
        ),
        "logging_level": st.sampled_from(["DEBUG", "INFO", "WARNING"]),
        "append_row_file_name": st.sampled_from(["a.txt", "123", "yes", "null"]),
    },
)


@given(more=options)
def test_whatever_the_values_are_a_file_gives_them_back(
    more: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Text that looks like a number or a truth value stays text."""
    path = tmp_path_factory.getbasetemp() / "config.yml"
    one = config(**more)
    one.save_to_yaml(path)
    again = ParallelRunConfig.load_yaml(None, path)
    assert again.options() == one.options()
    assert again.description == one.description


def test_every_mistake_in_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    """A root key of another name is one."""
    path = tmp_path / "config.yml"
    path.write_text(
        "parallel_run_config:\n"
        "  environment: e\n"
        "  entry_scrip: score.py\n"
        "  error_threshold: lots\n"
        "  output_action: append_row\n"
        "  compute_target: cpu\n"
        "  node_count: 0\n"
    )
    with pytest.raises(YamlError) as caught:
        ParallelRunConfig.load_yaml(None, path)
    rule = "must be a whole number of at least"
    assert [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()] == [
        "2:3: parallel_run_config.entry_script: it is missing",
        (
            "3:3: parallel_run_config.entry_scrip: there is no key 'entry_scrip'; "
            "did you mean 'entry_script'?"
        ),
        f"4:20: parallel_run_config.error_threshold: error_threshold='lots': {rule} -1",
        f"7:15: parallel_run_config.node_count: node_count=0: {rule} 1",
    ]
    path.write_text("parallel_run_confg: {}\n")
    with pytest.raises(YamlError, match="did you mean 'parallel_run_config'"):
        ParallelRunConfig.load_yaml(None, path)


TOLD = "{name: e, docker: {baseImage: some/image}, environmentVariables: {A: 1}}"


@pytest.mark.parametrize(
    "told",
    [
        f"environment: {TOLD}\n  compute_target: cpu",
        "environment_name: e\n  environment_variables: {A: 1}\n  compute_target_name: cpu",
        "environment_name:\n  environment_dir_path: saved/e\n  compute_target_name: cpu",
        "environment: saved/e\n  compute_target: cpu",
    ],
)
def test_an_environment_is_its_name_and_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Whole, by its name, or in the folder that it was saved in; images mean nothing here."""
    monkeypatch.chdir(tmp_path)
    Path("saved/e").mkdir(parents=True)
    saved = '{"name": "e", "version": null, "environmentVariables": {"A": "1"}, "python": {}}'
    Path("saved/e/azureml_environment.json").write_text(saved)
    rest = (
        "  input_format:\n  entry_script: score.py\n  error_threshold: 1\n  description:\n"
        "  output_action: summary_only\n  node_count: 1\n"
    )
    Path("config.yml").write_text(f"parallel_run_config:\n  {told}\n{rest}")
    one = ParallelRunConfig.load_yaml(None, "config.yml")
    assert (one.environment.name, one.compute_target) == ("e", "cpu")
    assert one.options()["environment_variables"] == {"A": "1"}
    if "saved" in told:
        Path("saved/e/azureml_environment.json").write_text('{"environmentVariables": 1}')
        with pytest.raises(YamlError, match=r"ment.json:1:1: name: (?s:.*)ment.json:1:26: "):
            ParallelRunConfig.load_yaml(None, "config.yml")
    Path("config.yml").write_text(f"parallel_run_config:\n{rest}")
    with pytest.raises(YamlError, match="it has no environment and no compute_target"):
        ParallelRunConfig.load_yaml(None, "config.yml")


TYPED = """
from daskprs.azure.v1 import ParallelRunConfig

ParallelRunConfig("e", "score.py", -1, "append_row", "c", 1, run_max_try=1)
ParallelRunConfig("e", "score.py", -1, "append_row", "c", 1, run_max_tries=1)  # misspelt
"""


@pytest.mark.long
def test_a_type_checker_finds_misspelt_parameters(tmp_path: Path) -> None:
    """In their line, and nothing else."""
    pytest.importorskip("mypy", reason="the group style is not installed")
    script = tmp_path / "typed.py"
    script.write_text(TYPED)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", script],
        cwd=Path(daskprs.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    (error,) = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert "typed.py:5: error: Unexpected keyword argument" in error, checked.stdout
