"""`daskprs serve`, with real deployments: from YAML file to predictions, over HTTP."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._job.status import state_of
from daskprs._serve.tokens import VARIABLE
from tests.support.polling import poll_for
from tests.support.services import LIVE, TOKEN, body

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCORE = """
import os, time
from pathlib import Path

def init():
    global word
    word = os.environ["WORD"]
    assert "DASKPRS_SERVE_TOKENS" not in os.environ
    assert os.environ["KEY"].startswith("planted")

def run(files):
    print("scoring", len(files))
    for file in files:
        while Path(file).read_text() == "wait" and not Path("GATE").exists():
            time.sleep(0.01)
    return [f"{word} {Path(file).name} of {len(files)}" for file in files]
"""
PR_SET_DUMPABLE = 4
DEPLOYMENT = """
name: {name}
endpoint_name: greetings
type: model
code_configuration: {{code: code, scoring_script: score.py}}
settings:
  mini_batch_size: 2
  max_concurrency_per_instance: 1
  environment_variables: {{WORD: {name}, KEY: planted-0815}}
"""


def written(home: Path) -> None:
    """Write two deployments, their script, data and a token."""
    home.joinpath("code").mkdir()
    script = SCORE.replace("GATE", str(home / "gate"))
    home.joinpath("code", "score.py").write_text(script)
    for name in ("hello", "bye"):
        home.joinpath(f"{name}.yml").write_text(DEPLOYMENT.format(name=name))
    home.joinpath("data").mkdir()
    for number in range(3):
        home.joinpath("data", f"{number}.txt").write_text("")


@contextmanager
def served(home: Path, *more: str) -> Iterator[httpx.Client]:
    """Yield a client of `daskprs serve`, and end that as a person does."""
    words = ["serve", str(home / "hello.yml"), str(home / "bye.yml"), "--default", "hello"]
    words += ["--root", f"data={home}/data", "--folder", str(home / "jobs"), "--port", "0"]
    with home.joinpath("service.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "daskprs", *words, *more],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, VARIABLE: TOKEN},
            text=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("greetings is served at http://127.0.0.1:"), line
    limits = httpx.Limits(max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = line.split()[-1].removesuffix("/jobs")
    with httpx.Client(base_url=url, headers=headers, limits=limits, timeout=60) as client:
        try:
            yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 0


def ended(client: httpx.Client, name: str) -> str:
    """Wait for the end of a job."""

    def status() -> str:
        return str(client.get(f"/jobs/{name}").json()["properties"]["status"])

    assert poll_for(lambda: status() not in LIVE, 120), client.get(f"/jobs/{name}/stream").text
    return status()


def test_deployments_are_invoked_and_their_predictions_fetched(tmp_path: Path) -> None:
    """Each by its name, with overrides; the job folder is that of any job."""
    written(tmp_path)
    log = tmp_path / "logs.jsonl"
    with served(tmp_path, "--audit-log", str(log), "--requests-per-s", "1000") as client:
        folder = "azureml://datastores/data/paths/"
        given = body(folder, "UriFolder", miniBatchSize=3, outputFileName="out.csv")
        bye = {"azureml-model-deployment": "bye"}
        names = [
            client.post("/jobs", json=body(folder, "UriFolder")).json()["name"],
            client.post("/jobs", json=given, headers=bye).json()["name"],
        ]
        assert [ended(client, name) for name in names] == ["Completed"] * 2
        first, second = names
        job = client.get(f"/jobs/{first}").json()["properties"]
        assert job["miniBatches"] == {"total": 2, "succeeded": 2, "failed": 0}
        assert job["items"] == {"total": 3, "succeeded": 3, "failed": 0}
        assert client.get(f"/jobs/{first}/outputs/predictions.csv").text.splitlines() == [
            "hello 0.txt of 2",
            "hello 1.txt of 2",
            "hello 2.txt of 1",
        ]
        predictions = client.get(f"/jobs/{second}/outputs/out.csv").text.splitlines()
        assert predictions[0] == "bye 0.txt of 3"
        logs = [one["path"] for one in client.get(f"/jobs/{first}/logs").json()["value"]]
        assert "job_result.txt" in logs
        (stdout,) = (path for path in logs if path.startswith("user/stdout/"))
        assert "scoring 2" in client.get(f"/jobs/{first}/logs/{stdout}").text
        assert "Completed" in client.get(f"/jobs/{first}/stream").text
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["action"], one["job"]) for one in actions][:3] == [
        ("start", first),
        ("start", second),
        ("read", first),
    ]
    warned = "jobs run as root" in tmp_path.joinpath("service.txt").read_text()
    assert warned == (os.geteuid() == 0)
    state = state_of(JobFolder(tmp_path / "jobs" / first / "job"))
    assert state.status == "Completed"


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("killed", "Failed", "JobDied"),
        pytest.param("canceled", "Canceled", None, marks=pytest.mark.long),
        pytest.param("terminated", "Interrupted", None, marks=pytest.mark.long),
    ],
)
def test_a_job_that_was_ended_goes_on_where_it_was(
    tmp_path: Path, how: str, status: str, code: str | None
) -> None:
    """With all that it has started; what was done is not done again.

    Values of environment variables come from the deployment's file again, and stand nowhere else.
    """
    written(tmp_path)
    tmp_path.joinpath("data", "2.txt").write_text("wait")
    with served(tmp_path) as client:
        given = body("azureml://datastores/data/paths/", "UriFolder")
        name = client.post("/jobs", json=given).json()["name"]
        process = tmp_path / "jobs" / name / "process.1"

        def done() -> int:
            counts = client.get(f"/jobs/{name}").json()["properties"]["miniBatches"]
            return int(counts["succeeded"]) if counts else 0

        assert poll_for(lambda: done() == 1, 60)
        if how == "killed":
            os.kill(int(process.read_text()), signal.SIGKILL)
        elif how == "terminated":
            os.kill(int(process.read_text()), signal.SIGTERM)
        else:
            client.post(f"/jobs/{name}/cancel")
        assert ended(client, name) == status
        job = client.get(f"/jobs/{name}").json()["properties"]
        assert job["canResume"]
        assert code == (job["error"] and job["error"]["code"])
        tmp_path.joinpath("gate").touch()
        assert client.post(f"/jobs/{name}/resume").status_code == 202
        assert ended(client, name) == "Completed"
        assert len(client.get(f"/jobs/{name}/outputs/predictions.csv").text.splitlines()) == 3
    assert state_of(JobFolder(tmp_path / "jobs" / name / "job")).runs == 2
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert not [path for path in files if b"planted-0815" in path.read_bytes()]


PIPELINE = """
type: pipeline
inputs:
  data: {type: uri_folder}
  mode: {type: string}
  count: {type: integer, default: 2, min: 1}
  more: {optional: true}
  word: plain
outputs:
  score: {type: uri_folder}
jobs:
  one:
    type: command
    code: code
    command: >-
      python keep.py --data "${{inputs.data}}" --mode ${{inputs.mode}}
      --count '${{inputs.count}}' --out ${{outputs.score}}
    inputs:
      data: ${{parent.inputs.data}}
      mode: ${{parent.inputs.mode}}
      count: ${{parent.inputs.count}}
    outputs: {score: "${{parent.outputs.score}}"}
"""
KEEP = """
import sys
from pathlib import Path

place = Path(sys.argv[-1])
place.mkdir(parents=True, exist_ok=True)
place.joinpath("words.txt").write_text("|".join(sys.argv[1:-1]))
if not Path("GATE").exists():
    sys.exit("no gate")
"""


@pytest.mark.long
def test_a_pipeline_is_served_and_its_values_are_arguments(tmp_path: Path) -> None:
    """What does not fit is refused before there is a job; a job that failed goes on."""
    written(tmp_path)
    tmp_path.joinpath("code", "keep.py").write_text(KEEP.replace("GATE", str(tmp_path / "gate")))
    tmp_path.joinpath("pipeline.yml").write_text(PIPELINE)
    deployment = tmp_path / "pipes.yml"
    deployment.write_text("name: pipes\ntype: pipeline\njob_definition: pipeline.yml\n")
    value = f'a"; touch {tmp_path}/planted; $(touch {tmp_path}/planted) *'
    data = {"JobInputType": "UriFolder", "Uri": "azureml://datastores/data/paths/"}
    whole: dict[str, object] = {
        "data": data,
        "mode": {"JobInputType": "Literal", "Value": value},
        "count": {"JobInputType": "Literal", "Value": 3},
    }
    with served(tmp_path, str(deployment)) as client:

        def invoke(**more: object) -> httpx.Response:
            headers = {"azureml-model-deployment": "pipes"}
            given = {key: one for key, one in {**whole, **more}.items() if one is not None}
            return client.post("/jobs", json={"properties": {"InputData": given}}, headers=headers)

        for more, told in [
            ({"mode": {"JobInputType": "Literal", "Value": "--x"}}, "for an option"),
            ({"mode": None}, "'mode': it is missing"),
            ({"mode": data}, "send it as a Literal"),
            ({"data": {"JobInputType": "Literal", "Value": "/etc"}}, "it is a place of data"),
            ({"more": {"JobInputType": "Literal", "Value": "/etc"}}, "it is a place of data"),
            ({"word": data}, "send it as a Literal"),
            ({"count": {"JobInputType": "Literal", "Value": 0}}, "at least 1"),
            ({"count": {"JobInputType": "Literal", "Value": "$(ls)"}}, "of type integer"),
            ({"other": data}, "it has no input 'other'"),
            ({"counts": data}, "did you mean 'count'?"),
        ]:
            answer = invoke(**more)
            assert answer.status_code == 400
            assert told in answer.json()["error"]["message"]
            assert "?." not in answer.json()["error"]["message"]
        name = invoke().json()["name"]
        assert ended(client, name) == "Failed"
        tmp_path.joinpath("gate").touch()
        assert client.post(f"/jobs/{name}/resume").status_code == 202
        assert ended(client, name) == "Completed"
        words = client.get(f"/jobs/{name}/outputs/score/words.txt").text
        assert words == f"--data|{tmp_path}/data|--mode|{value}|--count|3|--out"
        logs = client.get(f"/jobs/{name}/logs").json()["value"]
        assert "one/user_logs/std_log.txt" in [one["path"] for one in logs]
    assert not tmp_path.joinpath("planted").exists()


def refused(home: Path, *words: str, token: str = TOKEN) -> str:
    """Return what a command line is refused with."""
    args = ["serve", "--folder", str(home / "jobs"), "--port", "0", *words]
    done = CliRunner().invoke(main, args, env={VARIABLE: token})
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as this process was before
    assert done.exit_code == 2, done.output
    return done.output


def test_what_cannot_be_served_is_refused_before_anything_is(tmp_path: Path) -> None:
    """Files, folders, tokens, addresses."""
    written(tmp_path)
    hello, bye, root = str(tmp_path / "hello.yml"), str(tmp_path / "bye.yml"), f"data={tmp_path}"
    assert "no tokens are given" in refused(tmp_path, hello, "--root", root, token="")
    assert "--root a=/none" in refused(tmp_path, hello, "--root", "a=/none")
    assert "write NAME=FOLDER" in refused(tmp_path, hello, "--root", str(tmp_path))
    tmp_path.joinpath("pipe.yml").write_text("type: pipeline\njobs: {}\n")
    assert "daskprs run pipe.yml" in refused(tmp_path, str(tmp_path / "pipe.yml"), "--root", root)
    assert "hello, bye" in refused(tmp_path, hello, bye, "--root", root, "--default", "third")
    assert "nan is not" in refused(tmp_path, hello, "--root", root, "--requests-per-s", "nan")
    assert "different names" in refused(tmp_path, hello, hello, "--root", root)
    assert "cannot be served" in refused(tmp_path, hello, "--root", root, "--host", "203.0.113.1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert "Give another --port" in refused(tmp_path, hello, "--root", root, "--port", port)
    assert "--key" in refused(tmp_path, hello, "--root", root, "--certificate", "c.pem")
    tmp_path.joinpath("bad.yml").write_text("name: a\nsetings: {}\n")
    tmp_path.joinpath("token").touch(mode=0o600)
    tokens = ["--tokens", str(tmp_path / "token")]
    assert "callers could have it read" in refused(tmp_path, hello, "--root", root, *tokens)
    data, out = f"data={tmp_path}/data", ["--output-root", f"out={tmp_path}"]
    assert "it lies in a --output-root" in refused(tmp_path, hello, "--root", data, *out, *tokens)
    assert "into other jobs" in refused(tmp_path, hello, "--root", data, *out)
    inside = tmp_path / "jobs" / "out"
    inside.mkdir(parents=True)
    out = ["--output-root", f"out={inside}"]
    assert "into other jobs" in refused(tmp_path, hello, "--root", data, *out)
    junk = str(tmp_path / "token")
    files = ["--certificate", junk, "--key", junk]
    assert "not usable" in refused(tmp_path, hello, "--root", f"data={tmp_path}/data", *files)
    data = f"data={tmp_path}/data"
    audit = ["--audit-log", str(tmp_path / "data" / "log")]
    assert "callers could have it read" in refused(tmp_path, hello, "--root", data, *audit)
    for log in ("none/log", "code"):
        audit = ["--audit-log", str(tmp_path / log)]
        assert "--audit-log" in refused(tmp_path, hello, "--root", data, *audit)
    code = ["--output-root", f"out={tmp_path}/code"]
    assert "the file of hello" in refused(tmp_path, hello, "--root", data, *code)
    assert "no such user" in refused(tmp_path, hello, "--root", data, "--run-as", "no-such-user")
    other = refused(tmp_path, hello, "--root", data, "--run-as", "61299", "--max-jobs", "2")
    assert ("a user each" if os.geteuid() == 0 else "only root") in other
    assert "bad.yml:2:1" in refused(tmp_path, str(tmp_path / "bad.yml"), "--root", root)
