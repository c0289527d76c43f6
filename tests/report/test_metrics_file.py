"""The file of a job's metrics, for a node exporter."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs._core.ending import JobStatus
from daskprs._core.events import MessageLogged
from daskprs._folders.job_folder import JobFolder
from daskprs._report.job_figures import sample
from daskprs._report.metrics_file import MetricsFile, open_metrics
from daskprs._system.interrupts import Terminated
from daskprs.errors import OptionError, ParallelRunFailed
from tests.support.job_events import job_ended, job_started, stood

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")
FRAME = pd.DataFrame({"n": range(4)})


def run(folder: Path, script: Any, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job of four mini-batches that writes its metrics."""
    given = {"job_dir": folder / "job", "metrics_file": folder / "job.prom", "mini_batch_size": 8}
    return daskprs.parallel_run(FRAME, script, progress=False, **(given | options))


def metrics(file: Path) -> dict[str, float]:
    """Return the values of a file, by name with all labels but those of the job."""
    text = file.read_text()
    assert text.endswith("\n# EOF\n")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    job = f'job="job",job_dir="{file.parent / "job"}"'
    assert all(job in line for line in lines)
    pairs = (line.replace(f"{job},", "").replace(f"{{{job}}}", "").rsplit(" ", 1) for line in lines)
    return {name.removeprefix("daskprs_job_"): float(value) for name, value in pairs}


def test_the_file_has_the_end_of_the_job(tmp_path: Path) -> None:
    """With the counts, and when it was; what is gone with the job is left out."""

    def script(rows: pd.DataFrame) -> pd.DataFrame:
        if 3 in rows["n"].to_numpy():
            raise ValueError
        return rows

    run(tmp_path, script, run_max_try=1, allowed_failed_count=1)
    found = metrics(tmp_path / "job.prom")
    assert found['mini_batches{state="succeeded"}'] == 3
    assert found['mini_batches{state="failed"}'] == 1
    assert found["mini_batches_planned"] == 4
    assert found['items{state="failed",unit="row"}'] == 1
    statuses = {name: value for name, value in found.items() if name.startswith("status")}
    assert statuses.pop('status{status="Completed"}') == 1
    assert list(statuses.values()) == [0, 0, 0, 0]
    assert 0 <= found["end_timestamp_seconds"] - found["start_timestamp_seconds"] < 60
    assert "since_settled_seconds" not in found

    with pytest.raises(ParallelRunFailed):
        run(tmp_path, script, run_max_try=1, job_dir=tmp_path / "job", overwrite=True, resume=True)
    assert metrics(tmp_path / "job.prom")['status{status="Failed"}'] == 1


def test_a_running_job_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    """A reader finds one that is complete, at any time."""

    def script(rows: pd.DataFrame) -> list[str]:
        (here,) = tmp_path.glob("*.prom")
        return [here.read_text()] * len(rows)

    result = run(tmp_path, script)
    for text in result.to_pandas().iloc[:, 0]:
        assert 'status="Running"} 1.0\n' in text
        assert text.endswith("\n# EOF\n")
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["job.prom"]


def test_it_is_written_again_while_the_job_runs(tmp_path: Path) -> None:
    """Every five seconds, also while the input is prepared."""
    file = MetricsFile(JobFolder(tmp_path / "job"), str(tmp_path / "job.prom"))
    file.tell(job_started())
    file.tell(stood(1))
    assert 'mini_batches{state="succeeded"}' not in metrics(tmp_path / "job.prom")
    file._due_s = 0.0
    file.tell(stood(3, quiet_s=7.5))
    found = metrics(tmp_path / "job.prom")
    assert found['mini_batches{state="succeeded"}'] == 3
    assert found["since_settled_seconds"] == 7.5
    assert "end_timestamp_seconds" not in found
    file.tell(job_ended(JobStatus.CANCELED))
    file.close()
    assert metrics(tmp_path / "job.prom")['status{status="Canceled"}'] == 1


def test_a_job_that_ends_before_it_begins_has_failed(tmp_path: Path) -> None:
    """Its input cannot be read, say; else the file would say of the job before that all is well."""
    MetricsFile(JobFolder(tmp_path / "job"), str(tmp_path / "job.prom")).close()
    assert metrics(tmp_path / "job.prom")['status{status="Failed"}'] == 1


@pytest.mark.parametrize(
    ("interrupt", "status"), [(KeyboardInterrupt, "Canceled"), (Terminated, "Interrupted")]
)
def test_a_job_that_is_interrupted_before_it_begins_has_not_failed(
    tmp_path: Path, interrupt: type[KeyboardInterrupt], status: str
) -> None:
    """Nobody wants an alert of it."""
    file = MetricsFile(JobFolder(tmp_path / "job"), str(tmp_path / "job.prom"))
    with pytest.raises(interrupt), closing(file):
        raise interrupt
    found = metrics(tmp_path / "job.prom")
    assert found[f'status{{status="{status}"}}'] == 1
    assert found['status{status="Failed"}'] == 0


def test_a_misspelt_folder_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Nobody would miss the file until it is needed."""
    with pytest.raises(OptionError, match=r"metrics_file=.*there is no folder .*/metrix\."):
        run(tmp_path, lambda rows: rows, metrics_file=tmp_path / "metrix" / "job.prom")
    assert not (tmp_path / "job").exists()


def test_a_file_that_cannot_be_written_does_not_fail_the_job(tmp_path: Path) -> None:
    """A warning says so."""
    place = tmp_path / "metrics"
    place.mkdir()

    def script(rows: pd.DataFrame) -> pd.DataFrame:
        shutil.rmtree(place, ignore_errors=True)
        return rows

    assert run(tmp_path, script, metrics_file=place / "job.prom").status == "Completed"
    log = JobFolder(tmp_path / "job").master_log.read_text()
    assert "|WARNING|" in log
    assert "MetricsFile has stopped, the job goes on: FileNotFoundError" in log


def test_a_write_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on, so the file must not say that it has failed."""
    monkeypatch.setattr("daskprs._report.metrics_file.EVERY_S", 0.0)
    place = tmp_path / "metrics"
    file = MetricsFile(JobFolder(place / "job"), place / "job.prom")
    file.tell(MessageLogged("info", "one"))
    file.tell(MessageLogged("info", "two"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    place.mkdir()
    file.tell(MessageLogged("info", "three"))
    assert metrics(place / "job.prom")['status{status="Running"}'] == 1


@pytest.mark.long
def test_a_resume_by_the_command_line_writes_the_same_file(tmp_path: Path) -> None:
    """From whichever folder: the call keeps the absolute path."""
    (tmp_path / "rows.csv").write_text("n\n1\n2\n")
    (tmp_path / "once.py").write_text(
        "import os\n\ndef run(rows):\n    assert os.environ.get('READY')\n    return rows\n"
    )
    begin = [sys.executable, "-m", "daskprs", "run", "once.py", "rows.csv", "--job-dir", "job"]
    begin += ["--metrics-file", "job.prom"]
    assert subprocess.run(begin, cwd=tmp_path, check=False).returncode == 42
    assert metrics(tmp_path / "job.prom")['status{status="Failed"}'] == 1
    again = [sys.executable, "-m", "daskprs", "resume", str(tmp_path / "job")]
    ready = {"READY": "1", "DASK_DASKPRS__START_METHOD": "inline", "PATH": "/usr/bin:/bin"}
    assert subprocess.run(again, cwd="/", env=ready, check=False).returncode == 0
    assert metrics(tmp_path / "job.prom")['status{status="Completed"}'] == 1


def test_parsers_of_prometheus_read_it() -> None:
    """That of OpenMetrics, and that of the older format, which a node exporter has."""
    why = "prometheus-client is not installed"
    of_open_metrics: Any = pytest.importorskip("prometheus_client.openmetrics.parser", reason=why)
    of_text: Any = pytest.importorskip("prometheus_client.parser", reason=why)
    odd = '/jobs/a "b"\\c\nd'
    values = [
        sample(odd, "items", "Rows or files", 2, state="failed"),
        sample(odd, "items", "Rows or files", 3, state="succeeded"),
        sample(odd, "end_timestamp_seconds", "The end", 1.8e9 + 0.25),
        sample(odd, "since_settled_seconds", "Unknown", float("nan")),
    ]
    for parser in (of_open_metrics, of_text):
        items, end = parser.text_string_to_metric_families(open_metrics(values))
        assert (items.name, items.type, len(items.samples)) == ("daskprs_job_items", "gauge", 2)
        assert items.samples[1].labels["job_dir"] == odd
        assert end.samples[0].value == 1.8e9 + 0.25
