"""A job whose input takes long to list or to prepare says how far it is."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

import daskprs
from daskprs._core.events import MessageLogged
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._inputs.files.listing import current_listing
from daskprs._job import request
from daskprs._job.status import state_of
from daskprs._report.job_view import JobWatch
from daskprs._report.progress_file import ProgressFile
from daskprs.errors import JobFolderError
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a-token-of-the-store"  # noqa: S105 - of no store


def test_a_long_listing_is_shown_and_logged_with_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job has no folder yet; secrets in a URL are masked."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    open_at_once = request.open_source
    shown: list[str] = []

    def open_slowly(data: Any, reading: Any) -> Any:
        listing = current_listing()
        listing.begin(f"s3://{SECRET}@bucket")
        deque(listing.count(range(12_000)), maxlen=0)

        def is_shown() -> bool:
            shown.append(capsys.readouterr().err)
            return ": listing s3://***@bucket: 12,000 so far\n" in "".join(shown)

        assert poll_for(is_shown, 60), "".join(shown)
        assert not (tmp_path / "job").exists()
        return open_at_once(data, reading)

    monkeypatch.setattr("daskprs._report.listeners.FIRST_AFTER_S", 0.01)
    monkeypatch.setattr(request, "open_source", open_slowly)
    result = daskprs.parallel_run(
        tmp_path / "in",
        lambda files: files,
        job_dir=tmp_path / "job",
        environment_variables={"STORE_TOKEN": SECRET},
        secrets=["STORE_TOKEN"],
    )
    assert "".join(shown).startswith("daskprs: looking at the input for 0 s")
    log = (result.logs_dir / "sys" / "master_role.txt").read_text()
    assert "input: 1 file, listed and looked at in " in log


def test_the_status_says_how_far_the_input_is_prepared(tmp_path: Path) -> None:
    """The last notice of its driver stands in the job folder."""
    folder = JobFolder(tmp_path / "job")
    folder.create()
    said = "preparing the input for 1 min: 3 of 7 parts"
    with locked(folder):
        listener = ProgressFile(folder, JobWatch())
        with pytest.raises(JobFolderError, match=r"is being prepared by [^(]+\.$"):
            state_of(folder)
        listener.tell(MessageLogged("notice", said))
        with pytest.raises(JobFolderError, match=rf"is being prepared by .* \({said}\)\.$"):
            state_of(folder)
        listener.close()
    assert not folder.progress_now.exists()
