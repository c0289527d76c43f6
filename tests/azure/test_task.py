"""A task: an entry script with the files beside it that `parallel_run` knows nothing of."""

from __future__ import annotations

import json
from dataclasses import replace
from shutil import rmtree
from typing import TYPE_CHECKING

import dask
import pytest

from daskprs._folders.job_folder import JobFolder
from daskprs._job.request import check_kept_call
from daskprs.azure._task import Task
from daskprs.errors import ParallelRunFailed, ScriptError, YamlError

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "def run(mini_batch):\n    return mini_batch.assign(double=2 * mini_batch['n'])\n"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return a task over a small table."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/entry.py").write_text(SCRIPT)
    (tmp_path / "table.csv").write_text("n\n1\n2\n")
    return Task(
        name="double",
        data=tmp_path / "table.csv",
        script="entry.py",
        source_directory=tmp_path / "src",
        options={"process_count_per_node": 1},
        job_dir=tmp_path / "job",
        output_dir=tmp_path / "out",
    )


def settings(tmp_path: Path, to_csv: object) -> None:
    """Write the settings file beside the script."""
    found = {"append_row": {"pandas.DataFrame.to_csv": to_csv}}
    (tmp_path / "src/parallel_run_step.settings.json").write_text(json.dumps(found))


def test_the_settings_file_beside_the_script_makes_the_lines(task: Task, tmp_path: Path) -> None:
    """Its separator and header are those of the output."""
    settings(tmp_path, {"sep": ";", "header": True, "index": False})
    result = task.run(progress=False)
    assert (tmp_path / "out/parallel_run_step.txt").read_text() == "n;double\n1;2\n2;4\n"
    assert result.job_dir == tmp_path / "job"


def test_any_second_parameter_is_for_the_context(task: Task, tmp_path: Path) -> None:
    """As Azure has it, also for who goes on by the folder."""
    script = "def run(rows, about=None):\n    return [about.minibatch_index] * len(rows)\n"
    (tmp_path / "src/entry.py").write_text(script)
    task.run(progress=False)
    assert (tmp_path / "out/parallel_run_step.txt").read_text() == "0\n0\n"
    assert check_kept_call(JobFolder(tmp_path / "job"), resume=True).script.any_second


@pytest.mark.usefixtures("inline")
def test_the_arguments_name_the_output_where_the_step_has_one(task: Task, tmp_path: Path) -> None:
    """A script may have options of its own that begin so."""
    script = "import sys\ndef run(rows):\n    return ['--output' in sys.argv] * len(rows)\n"
    (tmp_path / "src/entry.py").write_text(script)
    for names_output in (True, False):
        one = replace(task, names_output=names_output)
        result = one.run(progress=False, overwrite=True)
        assert result.output_file.read_text() == f"{names_output}\n" * 2
        kept = check_kept_call(JobFolder(tmp_path / "job"), resume=True)
        assert kept.names_output == names_output
        rmtree(tmp_path / "job")


def test_a_name_of_another_format_is_a_warning(
    task: Task, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Azure writes text under any name, so the file is as there."""
    task.run(progress=False, append_row_file_name="rows.parquet")
    assert (tmp_path / "out/rows.parquet").read_text() == "1 2\n2 4\n"
    assert "append_row_file_name='rows.parquet': the output is lines of text" in caplog.text


MIXED = """
def run(mini_batch):
    return mini_batch if mini_batch["n"][0] == 1 else mini_batch[["m", "n"]]
"""


def test_mixed_columns_are_written_as_azure_writes_them_with_a_warning(
    task: Task, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run or a resume by the folder names the mini-batches; with a header the job fails."""
    (tmp_path / "src/entry.py").write_text(MIXED)
    (tmp_path / "table.csv").write_text("n,m\n1,2\n3,4\n")
    task.run(progress=False, mini_batch_size=4)
    assert (tmp_path / "out/parallel_run_step.txt").read_text() == "1 2\n4 3\n"
    told = "mini-batches 1 and 2 returned frames with different columns: 'n m' and 'm n'"
    assert told in caplog.text
    for call in (task.checked(resume=True), check_kept_call(JobFolder(tmp_path / "job"), True)):
        assert call.output.mixed_columns
    settings(tmp_path, {"header": True})
    with pytest.raises(ParallelRunFailed, match=told):
        replace(task, job_dir=None).run(progress=False, mini_batch_size=4, overwrite=True)


def test_options_win_over_the_settings_file(task: Task, tmp_path: Path) -> None:
    """They are nearer to the run."""
    settings(tmp_path, {"sep": ";"})
    assert task.run_options()["append_row_dataframe_sep"] == ";"
    assert task.run_options(append_row_dataframe_sep=",")["append_row_dataframe_sep"] == ","


def test_init_has_the_time_of_three_calls_up_to_the_limit(task: Task) -> None:
    """A timeout of a call that is within the limit is not refused for what follows from it."""
    times = [
        task.run_options(run_invocation_timeout=one).init_timeout for one in (60, 258_600, 259_200)
    ]
    assert times == [210, 259_200, 259_200]


def test_mistakes_in_the_settings_file_are_told_in_one_go(task: Task, tmp_path: Path) -> None:
    """With what is known."""
    settings(tmp_path, {"seperator": ";", "header": "yes", "sep": "||", "index": True})
    with pytest.raises(YamlError) as caught:
        task.checked()
    told = str(caught.value)
    assert "header: input should be a valid boolean, not 'yes'" in told
    assert "sep: string should have at most 1 character, not '||'" in told
    assert "seperator: there is no key 'seperator'" in told
    assert "index: input should be False, not True" in told


def test_a_module_that_is_missing_is_named_before_the_start(task: Task, tmp_path: Path) -> None:
    """No job folder is made."""
    (tmp_path / "src/entry.py").write_text("import no_such_module\n" + SCRIPT)
    with pytest.raises(ScriptError, match="no_such_module"):
        task.run(progress=False)
    assert not (tmp_path / "job").exists()


def test_azures_surfaces_have_the_defaults_of_the_site(tmp_path: Path) -> None:
    """What a file of Azure's says comes before."""
    task = Task(name="a", data="a", script=str(tmp_path / "a.py"), options={"run_max_try": 2})
    with dask.config.set({"daskprs": {"run_max_try": 5, "shutdown-timeout": 7}}):
        options = task.run_options()
    assert (options.run_max_try, options.shutdown_timeout) == (2, 7)
