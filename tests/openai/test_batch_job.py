"""Batch files of OpenAI are answered by a server with its API, whatever that does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from daskprs._cli import main
from daskprs._core.ending import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from tests.support.api_server import CHAT, EMBEDDINGS, api_server
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from _pytest.monkeypatch import MonkeyPatch

COUNT = 150
ONE_AT_A_TIME = ("--concurrency-per-process", "1")
FEW = ("--process-count-per-node", "1", "--concurrency-per-process", "16", "--quiet")


def requests_in(folder: Path, count: int = COUNT, **odd: Any) -> Path:
    """Return a batch file; `odd` has bodies by the name of their request."""
    path = folder / "requests.jsonl"
    with path.open("w") as file:
        for number in range(count):
            name = f"r{number}"
            url, body = CHAT, {"messages": [{"role": "user", "content": f"text {number}"}]}
            if number % 3 == 2:
                url, body = EMBEDDINGS, {"input": [f"text {number}", "ü"]}
            body = odd.get(name, {"model": "small", **body})
            line = {"custom_id": name, "method": "POST", "url": url, "body": body, "extra": [1]}
            file.write(json.dumps(line) + "\n")
    return path


def called(file: Path, url: str, *more: str) -> Any:
    """Call the command, and return its result."""
    words = ["run", str(file), "--as", "openai-batch", "--endpoint", url, *FEW, *more]
    return CliRunner().invoke(main, words, prog_name="daskprs")


def values_in(path: Path) -> list[Any]:
    """Return the values of a file, one from each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_request_is_answered_in_the_form_of_the_batch_api(tmp_path: Path) -> None:
    """In order, though some answers come late, or only after 500, 429 or none at all."""
    file = requests_in(tmp_path, r5={"model": "small", "input": 7})
    faults = {"share_of_500": 0.05, "share_of_429": 0.02, "retry_after_s": 0.2}
    with api_server(delay_s=0.01, share_of_hung=0.01, **faults) as server:
        limits = ("--run-invocation-timeout", "3", "--run-max-try", "9", "--retry-delay", "0")
        done = called(file, server.url, *limits)
    assert done.exit_code == 0, done.output
    assert f"{COUNT - 1} of {COUNT} requests are answered" in done.output
    answers = values_in(tmp_path / "requests_output.jsonl")
    names = [f"r{number}" for number in range(COUNT) if number != 5]
    assert [one["custom_id"] for one in answers] == names
    assert {*answers[0]} == {"id", "custom_id", "response", "error"}
    assert answers[0]["response"]["body"]["choices"][0]["message"]["role"] == "assistant"
    assert answers[2]["response"]["body"]["data"][1]["index"] == 1
    assert all(one["response"]["status_code"] == 200 for one in answers)
    (error,) = values_in(tmp_path / "requests_errors.jsonl")
    assert (error["custom_id"], error["response"]["status_code"]) == ("r5", 400)
    assert error["response"]["body"]["error"]["message"]


def test_a_request_without_an_answer_is_an_error(tmp_path: Path) -> None:
    """Files of answers are replaced only if that is asked for."""
    file = requests_in(tmp_path, 30)
    with api_server(share_of_500=0.3) as server:
        done = called(file, server.url, "--run-max-try", "1")
        broken = server.answers[500]
    assert done.exit_code == 0, done.output
    errors = values_in(tmp_path / "requests_errors.jsonl")
    assert 0 < len(errors) <= broken  # where several fail in a row, all but one are sent again
    assert len(values_in(tmp_path / "requests_output.jsonl")) == 30 - len(errors)
    assert errors[0]["response"] is None
    assert errors[0]["error"]["code"] == "HTTPStatusError"
    assert errors[0]["error"]["message"].startswith("the server answers 500: ")
    again = called(file, "http://127.0.0.1:9", "--job-dir", str(tmp_path / "again"))
    assert again.exit_code == EXIT_USAGE
    assert "requests_output.jsonl exists. Name another file, or say --overwrite." in again.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--output", "requests.jsonl", "--overwrite"], "requests.jsonl is the file of requests."),
        (["--output", "a.jsonl", "--errors", "./a.jsonl"], "a.jsonl is the file of answers."),
        (["--output", "no/answers.jsonl"], "no is no folder. Name a file in a folder that exists."),
        (["--errors", ".", "--overwrite"], ". is a folder. Name a file"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: MonkeyPatch, words: list[str], told: str
) -> None:
    """Else the answers would be paid for first, or the requests would be replaced."""
    monkeypatch.chdir(tmp_path)
    before = requests_in(Path(), 3).read_bytes()
    done = called(Path("requets.jsonl"), "http://127.0.0.1:9")
    assert "no file 'requets.jsonl'. Did you mean 'requests.jsonl'?" in done.output
    done = called(Path("requests.jsonl"), "http://127.0.0.1:9", *words)
    assert done.exit_code == EXIT_USAGE, done.output
    assert told in done.output
    assert [one.name for one in tmp_path.iterdir()] == ["requests.jsonl"]
    assert (tmp_path / "requests.jsonl").read_bytes() == before


def test_nothing_starts_where_nothing_answers(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A sentence says so, with the command to call again; files of a done job need no server."""
    monkeypatch.setattr("daskprs._openai.batch_job.PAUSES_S", (0.01, 0.01))
    file = requests_in(tmp_path, 3)
    done = called(file, "http://127.0.0.1:9", "--usage-limit", "total_tokens=900")
    assert done.exit_code == EXIT_USAGE, done.output
    told, _, way = done.output.partition(" Then: ")
    assert told.startswith("daskprs: nothing answers at http://127.0.0.1:9 ([Errno 111] Connec")
    assert told.endswith("Check --endpoint, and whether the server is up.")
    assert f" --job-dir {tmp_path}/requests_job " in way
    assert way.endswith(" --usage-limit total_tokens=900\n")
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    with api_server() as server:
        assert called(file, server.url).exit_code == 0
    assert called(file, server.url, "--resume").exit_code == 0


def test_a_job_goes_on_at_another_address(tmp_path: Path) -> None:
    """The requests are the same; and a file of requests that is not is named, with a way out."""
    file = requests_in(tmp_path, 40)
    with api_server() as server:
        ended = called(file, server.url, "--usage-limit", "total_tokens=60", *ONE_AT_A_TIME)
        assert ended.exit_code == EXIT_INTERRUPTED, ended.output
        (way,) = {line for line in ended.output.splitlines() if "a higher limit: " in line}
        assert way.endswith(" --usage-limit total_tokens=120 --resume")
        done = called(file, server.url.replace("127.0.0.1", "localhost"), "--resume")
        assert done.exit_code == 0, done.output
        assert server.answers[200] == 40
        with file.open("a") as grown:
            grown.write(file.read_text().splitlines()[0].replace('"r0"', '"r40"') + "\n")
        refused = called(file, server.url, "--resume")
        assert refused.exit_code == EXIT_USAGE
        assert "by --accept-changes input" in refused.output
    refused = called(file, server.url, "--overwrite", "--accept-changes", "input")
    assert "--accept-changes input: only with --resume" in refused.output


def test_a_job_without_any_answer_has_failed(tmp_path: Path) -> None:
    """The first error says why, and there are no files that look like answers.

    The command that goes on keeps the limits, which the job folder does not know.
    """
    file = requests_in(tmp_path, 3)
    limits = ("--rate-limit", "in_flight=2", "--usage-limit", "total_tokens=900")
    with api_server(share_of_500=1) as server:
        done = called(file, server.url, "--run-max-try", "1", *limits)
    (way,) = {line for line in done.output.splitlines() if "same script and input: " in line}
    assert way.endswith(" --resume")
    assert f" --job-dir {tmp_path / 'requests_job'} " in way
    assert " --run-max-try 1 " in way
    assert " --rate-limit in_flight=2 " in way
    assert " --usage-limit total_tokens=900 " in way
    assert done.exit_code == EXIT_FAILED, done.output
    assert "HTTPStatusError: the server answers 500: " in done.output
    assert "mended script" not in done.output
    assert "not one of 3 rows succeeded" in done.output
    assert not list(tmp_path.glob("requests_*.jsonl"))


def test_a_killed_job_asks_again_only_what_had_not_come_back(tmp_path: Path) -> None:
    """At most what was in flight, or came in the last second."""
    file = requests_in(tmp_path, 300)
    with api_server(delay_s=0.1) as server:
        words = ["run", str(file), "--as", "openai-batch", "--endpoint", server.url, *FEW]
        command = [sys.executable, "-m", "daskprs", *words]
        with subprocess.Popen(command, start_new_session=True) as process:
            try:
                assert poll_for(lambda: server.answers[200] >= 150, 60)
            finally:
                os.kill(process.pid, signal.SIGKILL)
        assert not (tmp_path / "requests_output.jsonl").exists()
        done = called(file, server.url, "--resume")
        assert done.exit_code == 0, done.output
        a_second = 16 / 0.1
        assert 300 <= server.answers[200] <= 300 + 16 + a_second
    answers = values_in(tmp_path / "requests_output.jsonl")
    assert [one["custom_id"] for one in answers] == [f"r{number}" for number in range(300)]


def test_the_folder_of_a_job_that_is_done_has_its_answers(tmp_path: Path) -> None:
    """A resume writes them again, and asks nothing; a new job needs another folder."""
    file = requests_in(tmp_path, 5)
    with api_server() as server:
        assert called(file, server.url).exit_code == 0
        answers = (tmp_path / "requests_output.jsonl").read_bytes()
        (tmp_path / "requests_output.jsonl").unlink()  # as if the driver had died between the two
        refused = called(file, server.url, "--overwrite")
        assert refused.exit_code == EXIT_USAGE
        assert "holds a job already. Go on with it by --resume, or use another" in refused.output
        assert called(file, server.url, "--resume").exit_code == 0
        assert (tmp_path / "requests_output.jsonl").read_bytes() == answers
        assert server.answers[200] == 5
        assert (
            called(file, server.url, "--overwrite", "--job-dir", str(tmp_path / "b")).exit_code == 0
        )
        assert server.answers[200] == 10


def test_a_batch_file_of_another_name_is_known_by_the_option(tmp_path: Path) -> None:
    """Words of a script behind `--` are none of this."""
    file = requests_in(tmp_path, 3).rename(tmp_path / "requests.txt")
    called_twice = [called(file, "http://127.0.0.1:1"), called(tmp_path / "none.txt", "x")]
    assert [one.exit_code for one in called_twice] == [EXIT_USAGE] * 2
    assert "127.0.0.1:1" in called_twice[0].output
    words = ["run", str(tmp_path / "none.py"), str(file), "--", "--as", "x"]
    assert "none.py" in CliRunner().invoke(main, words).output


def test_the_help_has_the_defaults_of_a_batch_file() -> None:
    """A long answer takes more than the minute that a job allows."""
    told = " ".join(CliRunner().invoke(main, ["run", "a.jsonl", "--help"]).output.split())
    assert "'5m' or '2 hours'. Default: 600." in told.replace('"', "'")
    assert "A resume tries at once. Default: 'exponential'." in told
