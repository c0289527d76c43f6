"""Defaults of a site: what Dask's config says counts where a call says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
import psutil
import pytest
import yaml

import daskprs
from daskprs import OptionError, RunOptions
from daskprs._folders.job_folder import ROOT, JobFolder
from daskprs._job.prestart import prestart
from daskprs._job.request import check_kept_call, read_call
from daskprs._options.run_options import INPUT, TABLE
from daskprs._options.site_defaults import (
    DEFAULTS,
    JOB_ROOT,
    SITE,
    default_job_dir,
    options_of_call,
    site_defaults,
)
from daskprs.errors import JobChanged
from tests.support import config_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = pd.DataFrame({"a": range(4)})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the path of a file that Dask's config reads, when a test refreshes it."""
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setattr(dask.config, "paths", [str(folder)])
    before = dict(dask.config.config)
    yield folder / "site.yaml"
    dask.config.config.clear()
    dask.config.config.update(before)


def test_the_files_are_made_from_the_table() -> None:
    """``python -m tests.support.config_files`` writes them anew after the table has changed."""
    what_to_do = "run python -m tests.support.config_files"
    assert DEFAULTS.read_text() == config_files.defaults(), what_to_do
    assert config_files.SCHEMA.read_text() == config_files.schema(), what_to_do
    text = config_files.PAGE.read_text()
    assert text == config_files.page(text), what_to_do


def test_the_files_have_every_option_that_a_site_may_set() -> None:
    """Each default is that of the table, and the schema knows the same keys."""
    (section,) = yaml.safe_load(DEFAULTS.read_text()).values()
    assert {key.replace("-", "_"): value for key, value in section.items()} == {
        name: TABLE[name].default for name in SITE
    } | {JOB_ROOT: ROOT}
    schema = yaml.safe_load(config_files.SCHEMA.read_text())["properties"]["daskprs"]
    assert schema["properties"].keys() == section.keys()
    assert not [name for name in SITE if TABLE[name].group == INPUT]


def test_without_a_config_the_defaults_are_those_of_the_table() -> None:
    """The packaged file changes nothing."""
    assert options_of_call({}) == RunOptions()
    assert dask.config.get("daskprs.run-max-try") == TABLE["run_max_try"].default


def test_an_output_has_its_form_whatever_a_site_sets_for_lines_of_text() -> None:
    """A suffix means the same everywhere; such a default does not count as given beside it."""
    with dask.config.set(
        {"daskprs.append-row-dataframe-sep": ";", "daskprs.append-row-file-name": "rows.txt"}
    ):
        assert options_of_call({"output": "a.csv"}) == RunOptions(output="a.csv")
        assert options_of_call({"output": "a.arrow"}) == RunOptions(output="a.arrow")
        assert options_of_call({})["append_row_dataframe_sep"] == ";"


def test_a_call_comes_before_the_config_and_the_config_before_the_table(tmp_path: Path) -> None:
    """A call that names the default of the table has named it."""
    kept: list[Any] = []
    settings = {"daskprs.run-max-try": 5, "daskprs.shutdown_timeout": 7, "daskprs.progress": False}
    calls: list[dict[str, Any]] = [{}, {"run_max_try": 3}, {**RunOptions(shutdown_timeout=9)}]
    with dask.config.set(settings):
        for number, given in enumerate(calls):
            folder = tmp_path / str(number)
            daskprs.parallel_run(FRAME, lambda rows: rows, job_dir=folder, **given)
            kept.append(read_call(JobFolder(folder))["options"])
    assert kept == [
        {"run_max_try": 5, "shutdown_timeout": 7},
        {"shutdown_timeout": 7},
        {"run_max_try": 5, "shutdown_timeout": 9},
    ]


def test_a_default_for_lines_of_text_contradicts_no_data_set() -> None:
    """The call asks for a data set, and the site said nothing against that."""
    with dask.config.set({"daskprs.append-row-dataframe-sep": ","}):
        assert options_of_call({}).append_row_dataframe_sep == ","
        assert options_of_call({"output_format": "arrow"}).append_row_dataframe_sep == " "


@pytest.mark.usefixtures("inline")
def test_the_root_of_jobs_is_that_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file, or of a variable, for whatever names no job folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    result = daskprs.parallel_run(FRAME, lambda rows: rows, progress=False)
    assert result.job_dir.parent == tmp_path / "daskprs-jobs"
    with dask.config.set({"daskprs.job-root": "$SCRATCH/jobs"}):
        result = daskprs.parallel_run(FRAME, lambda rows: rows, progress=False)
        assert result.job_dir.parent == tmp_path / "scratch" / "jobs"
        named = daskprs.parallel_run(FRAME, lambda rows: rows, progress=False, job_dir="named")
        assert named.job_dir == tmp_path / "named"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DASK_DASKPRS__JOB_ROOT", "~/jobs")
    dask.config.refresh()
    try:
        assert default_job_dir("a", "b").parent == tmp_path / "home" / "jobs"
    finally:
        monkeypatch.delenv("DASK_DASKPRS__JOB_ROOT")
        dask.config.refresh()


SCRIPT = "def run(rows):\n    return rows\n"


@pytest.mark.long
def test_a_variable_of_the_environment_comes_before_a_file(tmp_path: Path) -> None:
    """In a process that has imported nothing before, by the command line."""
    (tmp_path / "score.py").write_text(SCRIPT)
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    settings = {"run-max-try": 5, "shutdown-timeout": 7, "process-count-per-node": 1}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump({"daskprs": settings}))
    environment = {"DASK_CONFIG": str(tmp_path / "site.yaml"), "DASK_DASKPRS__RUN_MAX_TRY": "6"}
    words = ["score.py", "a.csv", "--job-dir", "job", "--shutdown-timeout", "8", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "daskprs", "run", *words],
        cwd=tmp_path,
        env={**os.environ, **environment},
        check=True,
    )
    assert read_call(JobFolder(tmp_path / "job"))["options"] == {
        "run_max_try": 6,
        "shutdown_timeout": 8,
        "process_count_per_node": 1,
    }


WRONG = {
    "run-max-try: 0": "run_max_try=0: must be a whole number of at least 1.",
    "run-max-trys: 2": "run_max_trys: daskprs has no option of this name. Did you mean run_max_try",
    "resume: true": "resume=True: this belongs to one call. Give it there.",
    "job-root: s3://bucket/jobs": "job_root='s3://bucket/jobs': must be a folder of this machine",
    "job-roots: a": "job_roots: daskprs has no option of this name. Did you mean job_root?",
    "delimiter: ;": "delimiter=';': this belongs to one call. Give it there.",
    "start-method: forkserver": "start_method='forkserver': must be one of 'fork', 'spawn', ",
    "agent-memory-limit: 2 furlongs": "agent_memory_limit='2 furlongs': must be",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_value_in_a_file_is_refused_with_the_file(
    line: str, config: Path, tmp_path: Path
) -> None:
    """Nothing is started, and no job folder is made."""
    config.write_text(f"daskprs:\n  {line}\n")
    dask.config.refresh(paths=[str(config.parent)])
    with pytest.raises(OptionError) as caught:
        daskprs.parallel_run(FRAME, lambda rows: rows, job_dir=tmp_path / "job")
    assert str(caught.value).startswith(WRONG[line])
    key = f"daskprs.{line.partition(':')[0]}"
    end = f"The value is that of {key} in Dask's config, from the file {config}."
    assert str(caught.value).endswith(end)
    assert not (tmp_path / "job").exists()


def test_a_wrong_value_is_refused_with_the_place_that_counts(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable hides a file, and `dask.config.set` hides both."""
    config.write_text("daskprs:\n  run-max-try: 0\n")
    monkeypatch.setenv("DASK_DASKPRS__RUN_MAX_TRY", "-1")
    dask.config.refresh(paths=[str(config.parent)])
    variable = "run_max_try=-1: .* from the environment variable DASK_DASKPRS__RUN_MAX_TRY"
    with pytest.raises(OptionError, match=variable):
        site_defaults()
    process = "run_max_try=-2: .* from dask.config.set in this process"
    with (
        dask.config.set({"daskprs.run-max-try": -2}),
        pytest.raises(OptionError, match=process),
    ):
        site_defaults()
    with (
        dask.config.set({"daskprs": True}),
        pytest.raises(OptionError, match="daskprs=True: Dask's config must have a mapping"),
    ):
        site_defaults()


@pytest.mark.usefixtures("inline")
def test_a_resume_compares_the_config_as_it_does_options(tmp_path: Path) -> None:
    """What changes the results is refused; a call from the folder has what the job began with."""
    (tmp_path / "score.py").write_text(SCRIPT)
    FRAME.to_csv(tmp_path / "a.csv", index=False)

    def run(**options: Any) -> Any:
        return daskprs.parallel_run(
            tmp_path / "a.csv",
            tmp_path / "score.py",
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            **options,
        )

    with dask.config.set({"daskprs.append-row-dataframe-sep": ";", "daskprs.run-max-try": 2}):
        run()
    with dask.config.set({"daskprs.run-max-try": 4, "daskprs.progress": False}):
        with pytest.raises(JobChanged, match="append_row_dataframe_sep"):
            run(resume=True)
        again = check_kept_call(JobFolder(tmp_path / "job"), resume=True).options
        assert (again.append_row_dataframe_sep, again.run_max_try, again.progress) == (
            *(";", 2),
            False,
        )
        assert run(resume=True, append_row_dataframe_sep=";").status == "Completed"


@pytest.mark.cold  # a fork shows the environment of its template
def test_a_zygote_is_started_again_where_the_config_needs_another_one() -> None:
    """Only that one lives while the job runs."""
    before = set(psutil.Process().children())

    def started() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if child not in before]

    settings = {"daskprs.environment-variables": {"A": "b"}}
    with (
        dask.config.set(settings),
        prestart(RunOptions(), None, lambda: options_of_call({})) as options,
    ):
        assert [child.environ()["A"] for child in started()] == ["b"]
    assert options.environment_variables == {"A": "b"}
    assert started() == []


@pytest.mark.parametrize("name", [name for name in SITE if int in TABLE[name].types])
def test_a_number_that_a_site_sets_refuses_no_call(name: str) -> None:
    """It is there for all calls, also those that lack the options that it belongs to."""
    assert RunOptions(**{name: 2})[name] == 2
