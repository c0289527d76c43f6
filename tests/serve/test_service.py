"""The service over HTTP: what a batch endpoint offers, and its errors."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import TypeAdapter

from daskprs._serve.bodies import Timeout
from tests.support.polling import poll_for
from tests.support.services import FOREIGN_TOKEN, OLD_TOKEN, TOKEN, LightService, body

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = "No valid deployments to route to"


def code(answer: httpx.Response, status: int) -> str:
    """Return the code of an error that has the documented form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "target", "details"}
    assert error["message"]
    return str(error["code"])


# ---- jobs ----


def test_an_invocation_becomes_a_job_whose_output_can_be_fetched(service: LightService) -> None:
    """As a client of a batch endpoint goes about it: POST, poll `properties.status`, fetch."""
    data = service.data("one", "say working", "write predictions.csv 1,2")
    answer = service.invoke(data)
    assert answer.status_code == 201
    name = answer.json()["name"]
    assert answer.json()["id"].rpartition("/")[2] == name
    assert answer.headers["location"] == f"/jobs/{name}"
    assert service.ended(name) == "Completed"
    listed = service.client.get(f"/jobs/{name}/outputs").json()["value"]
    assert [(one["path"], one["sizeBytes"]) for one in listed] == [
        ("done.txt", len(data)),
        ("predictions.csv", 3),
    ]
    got = service.client.get(f"/jobs/{name}/outputs/predictions.csv")
    assert got.content == b"1,2"
    assert got.headers["content-disposition"] == 'attachment; filename="predictions.csv"'
    assert service.client.get(f"/jobs/{name}/stream").text == "working\n"
    job = service.job(name)
    assert job["systemData"]["createdBy"] == "ours"
    assert not job["properties"]["canResume"]


def test_the_header_chooses_a_deployment_and_the_default_is_meant_else(
    service: LightService,
) -> None:
    """`azureml-model-deployment`, in any case, as headers are."""
    data = service.data("empty")
    chosen = {
        header: service.invoke(data, headers=headers).json()
        for header, headers in [
            ("none", {}),
            ("second", {"azureml-model-deployment": "second"}),
            ("upper", {"AzureML-Model-Deployment": "second"}),
        ]
    }
    used = {header: job["properties"]["deployment"] for header, job in chosen.items()}
    assert used == {"none": "first", "second": "second", "upper": "second"}
    for job in chosen.values():
        service.ended(job["name"])


def test_an_unknown_deployment_is_no_valid_one(service: LightService) -> None:
    """The message is the one that is documented, and names those that there are."""
    answer = service.invoke(service.data("empty"), headers={"azureml-model-deployment": "third"})
    assert code(answer, 404) == "NoValidDeployment"
    assert answer.json()["error"]["message"].startswith(MESSAGE)
    assert "first, second" in answer.json()["error"]["message"]


def test_without_a_default_the_header_is_needed(tmp_path: Path) -> None:
    """As on an endpoint whose default was not set."""
    with LightService(tmp_path, default="") as service:
        answer = service.invoke(service.data("empty"))
        assert code(answer, 404) == "NoValidDeployment"
        assert service.client.get("/").json()["defaults"] == {"deploymentName": None}


def test_keys_are_known_in_the_cases_that_are_in_use(service: LightService) -> None:
    """`InputData` and `inputData`."""
    one = {"jobInputType": "UriFile", "uri": service.data("empty")}
    answer = service.client.post("/jobs", json={"properties": {"inputData": {"it": one}}})
    assert answer.status_code == 201
    service.ended(answer.json()["name"])


def test_overrides_are_kept_by_the_keys_of_the_deployments_file(service: LightService) -> None:
    """So that `daskprs invoke` can be given them."""
    more = {
        "miniBatchSize": 5.0,
        "errorThreshold": -1,
        "loggingLevel": "debug",
        "retrySettings": {"maxRetries": 0, "timeout": "PT45S"},
        "resources": {"instanceCount": 2},
        "outputFileName": "p.csv",
        "displayName": "nightly",
    }
    answer = service.client.post("/jobs", json=body(service.data("empty"), **more))
    properties = answer.json()["properties"]
    assert properties["overrides"] == {
        "settings.mini_batch_size": 5,
        "settings.error_threshold": -1,
        "settings.logging_level": "debug",
        "settings.output_file_name": "p.csv",
        "settings.retry_settings.max_retries": 0,
        "settings.retry_settings.timeout": 45,
        "resources.instance_count": 2,
    }
    assert properties["displayName"] == "nightly"
    service.ended(answer.json()["name"])


@pytest.mark.parametrize("header", ["repeatability_request-id", "Repeatability-Request-Id"])
def test_a_request_that_is_sent_again_is_the_same_job(service: LightService, header: str) -> None:
    """At the same time as well; another request with its id is refused."""
    data, headers = service.data("empty"), {header: f"id of {header}"}
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda _: service.invoke(data, headers=headers), range(4))]
    assert {answer.status_code for answer in answers} == {201}
    (name,) = {answer.json()["name"] for answer in answers}
    service.ended(name)
    assert service.invoke(data, headers=headers).json()["name"] == name
    other = service.client.post("/jobs", json=body(data, miniBatchSize=2), headers=headers)
    assert code(other, 409) == "RequestIdInUse"


def test_numbers_may_be_sent_as_text_and_timeouts_as_durations(service: LightService) -> None:
    """As several clients send them; what is not whole, or too much, is refused."""
    more = {
        "miniBatchSize": "5",
        "errorThreshold": "-1",
        "retrySettings": {"maxRetries": "2", "timeout": "PT1H0.5S"},
        "compute": {"isLocal": True, "instanceCount": "2"},
        "name": "of-texts",
        "tags": {"team": "fraud"},
    }
    answer = service.client.post("/jobs", json=body(service.data("empty"), **more))
    properties = answer.json()["properties"]
    assert properties["overrides"] == {
        "settings.mini_batch_size": 5,
        "settings.error_threshold": -1,
        "settings.retry_settings.max_retries": 2,
        "settings.retry_settings.timeout": 3601,
        "resources.instance_count": 2,
    }
    assert answer.json()["name"] == "of-texts"
    again = service.client.post("/jobs", json=body(service.data("empty"), name="of-texts"))
    assert code(again, 409) == "JobExists"
    for tag, found in [("team", ["of-texts"]), ("team=fraud", ["of-texts"]), ("team=x", [])]:
        listed = service.client.get("/jobs", params={"tag": tag}).json()["value"]
        assert [job["name"] for job in listed] == found
    service.ended("of-texts")
    for key, value in [
        ("miniBatchSize", "1.5"),
        ("miniBatchSize", "0"),
        ("retrySettings", {"timeout": "P4D"}),
        ("retrySettings", {"timeout": "P1M"}),
        ("name", "../x"),
    ]:
        given = body(service.data("empty"), **{**more, "name": "n", key: value})
        assert code(service.client.post("/jobs", json=given), 400) == "BadRequest"
    given = body(service.data("empty"), **{**more, "resources": {"instanceCount": 3}})
    assert code(service.client.post("/jobs", json=given), 409) == "InstanceCounts"


def test_an_asset_of_the_operator_is_data_in_each_of_its_forms(service: LightService) -> None:
    """It lies where the operator says; no other asset does."""
    service.home.joinpath("known").write_text("")
    path = "providers/Microsoft.MachineLearningServices/workspaces/w/data/{}/versions/1"
    forms = ["azureml:{}:1", "azureml://subscriptions/s/resourceGroups/g/" + path]
    forms += ["/subscriptions/s/resourceGroups/g/" + path]
    for form in forms:
        name = service.invoke(form.format("known")).json()["name"]
        assert service.ended(name) == "Completed"
        done = service.home / "jobs" / name / "output" / "done.txt"
        assert done.read_text() == str(service.home / "known")
        assert code(service.invoke(form.format("other")), 403) == "PathNotAllowed"
    for form in ("azureml:../../known", "azureml:./known", "azureml:/known", "azureml:known:2"):
        assert code(service.invoke(form), 403) == "PathNotAllowed"


def test_output_that_is_there_or_on_its_way_is_refused(tmp_path: Path) -> None:
    """Before there is a job."""
    with LightService(tmp_path) as service:
        data = service.data("wait", f"wait {tmp_path / 'gate'}", "write predictions.csv 1")

        def to(uri: str, kind: str = "UriFolder") -> httpx.Response:
            given = {"score": {"JobOutputType": kind, "Uri": f"{tmp_path}/results/{uri}"}}
            return service.client.post("/jobs", json=body(data, OutputData=given))

        first = to("a").json()["name"]
        assert code(to("a"), 409) == "OutputInUse"
        assert code(to("a/predictions.csv", "UriFile"), 409) == "OutputInUse"
        beside = to("a/other.csv", "UriFile").json()["name"]
        tmp_path.joinpath("gate").touch()
        assert [service.ended(first), service.ended(beside)] == ["Completed"] * 2
        assert code(to("a"), 409) == "OutputExists"


def test_names_of_a_job_may_stand_where_the_documentation_has_them(
    service: LightService,
) -> None:
    """In `properties` of `properties`."""
    given = body(service.data("empty"), properties={"experimentName": "autumn"})
    answer = service.client.post("/jobs", json=given)
    assert answer.json()["properties"]["experimentName"] == "autumn"
    service.ended(answer.json()["name"])


def test_output_goes_where_the_operator_allows_it(service: LightService) -> None:
    """A folder, or a file that is named; elsewhere is refused."""
    place = "azureml://datastores/results/paths/mine"
    uri = f"file://{service.home}/results/mine/a%20b.csv"
    given = {"score": {"JobOutputType": "UriFile", "Uri": uri}}
    answer = service.client.post("/jobs", json=body(service.data("empty"), OutputData=given))
    job = answer.json()
    assert job["properties"]["overrides"] == {"settings.output_file_name": "a b.csv"}
    service.ended(job["name"])
    assert (service.home / "results" / "mine" / "done.txt").exists()
    above = f"file://{service.home}/results/mine/%2e%2e"
    for uri in (f"{service.home}/data/x", f"{place}/../../../x", "/etc/x", above):
        given["score"]["Uri"] = uri
        refused = service.client.post("/jobs", json=body(service.data("empty"), OutputData=given))
        assert code(refused, 403) == "PathNotAllowed"


def test_jobs_are_listed_the_newest_first_page_by_page(service: LightService) -> None:
    """`nextLink` leads to older ones until there are none."""
    names = [service.invoke(service.data("empty")).json()["name"] for _ in range(5)]
    for name in names:
        service.ended(name)
    seen, link = [], f"{service.url}/jobs?$top=2"
    while link:
        page = service.client.get(link).json()
        assert len(page["value"]) <= 2
        seen += [job["name"] for job in page["value"]]
        for job in page["value"]:  # what a job's folder has to be read for
            assert not {"error", "miniBatches", "items"} & job["properties"].keys()
        link = page["nextLink"]
        assert link is None or link.startswith(f"{service.url}/jobs?$top=2&$skip=")
    assert seen[:5] == names[::-1]
    assert len(seen) == len(set(seen))
    for host in ("evil.example/path", "a@b", "<b>"):
        link = service.client.get("/jobs?$top=1", headers={"Host": host}).json()["nextLink"]
        assert link.startswith(f"{service.url}/jobs?")


def test_a_running_job_is_followed_and_canceled(service: LightService) -> None:
    """The stream ends with the job."""
    gate = service.home / "never"
    name = service.invoke(service.data("wait", "say begun", f"wait {gate}")).json()["name"]
    with service.client.stream("GET", f"/jobs/{name}/stream") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "begun"
        assert service.status(name) == "Running"
        assert service.client.post(f"/jobs/{name}/cancel").status_code == 202
        assert list(lines) == []
    assert service.ended(name) == "Canceled"
    assert service.client.post(f"/jobs/{name}/cancel").json()["properties"]["status"] == "Canceled"


def test_a_job_that_failed_tells_why_and_can_go_on(service: LightService) -> None:
    """And one that is done cannot."""
    name = service.invoke(service.data("bad", "say it is bad", "exit 42")).json()["name"]
    assert service.ended(name) == "Failed"
    properties = service.job(name)["properties"]
    assert (properties["error"]["code"], properties["canResume"]) == ("JobFailed", True)
    assert properties["error"]["message"] == "it is bad"
    service.data("bad", "say it is worse", "exit 2")
    assert service.client.post(f"/jobs/{name}/resume").status_code == 202
    assert service.ended(name) == "Failed"
    error = service.job(name)["properties"]["error"]
    assert (error["code"], error["message"]) == ("JobRefused", "it is worse")
    service.data("bad", "say it is good now")
    assert service.client.post(f"/jobs/{name}/resume").status_code == 202
    assert service.ended(name) == "Completed"
    assert code(service.client.post(f"/jobs/{name}/resume"), 409) == "CannotResume"
    assert (
        service.client.get(f"/jobs/{name}/stream").text
        == "it is bad\nit is worse\nit is good now\n"
    )


@pytest.mark.attack
def test_a_resume_reaches_only_what_is_still_allowed(tmp_path: Path) -> None:
    """The operator may have taken back a deployment, or a root, since."""
    with LightService(tmp_path, names="first,second") as service:
        name = service.invoke(service.data("bad", "exit 42")).json()["name"]
        assert service.ended(name) == "Failed"
    (tmp_path / "data" / "bad").rename(tmp_path / "bad")
    (tmp_path / "data" / "bad").symlink_to(tmp_path / "bad")
    with LightService(tmp_path, names="first,second") as service:
        assert code(service.client.post(f"/jobs/{name}/resume"), 403) == "PathNotAllowed"
    with LightService(tmp_path, names="second", default="second") as service:
        assert code(service.client.post(f"/jobs/{name}/resume"), 409) == "CannotResume"


def test_names_of_files_need_not_be_text(service: LightService) -> None:
    """To the system they are bytes."""
    name = service.invoke(service.data("strange", "strange")).json()["name"]
    assert service.ended(name) == "Completed"
    listed = service.client.get(f"/jobs/{name}/outputs").json()["value"]
    assert [one["path"] for one in listed] == ["done.txt", "\ufffd.txt"]
    service.home.joinpath("jobs", name, "output", "a\nb.txt").write_text("two lines")
    assert service.client.get(f"/jobs/{name}/outputs/a%0Ab.txt").text == "two lines"


def test_the_logs_of_a_pipeline_are_those_of_its_steps(service: LightService) -> None:
    """Its folder holds more: what its steps have made, code, and links."""
    name = service.invoke(service.data("empty")).json()["name"]
    assert service.ended(name) == "Completed"
    run = service.home / "jobs" / name / "job" / name
    logs = ["count/user_logs/std_log.txt", "pipeline..x/logs/a/b.txt", "words/logs/sys/c.txt"]
    for path in (*logs, "pipeline.json", "words/journal.1", "pipeline.outputs/logs/d.txt"):
        run.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        run.joinpath(path).write_text(path)
    run.joinpath("link").symlink_to("words")
    listed = service.client.get(f"/jobs/{name}/logs").json()["value"]
    assert [one["path"] for one in listed] == logs
    assert service.client.get(f"/jobs/{name}/logs/{logs[2]}").text == logs[2]
    for path in ("pipeline.json", "words/journal.1", "pipeline.outputs/logs/d.txt"):
        assert code(service.client.get(f"/jobs/{name}/logs/{path}"), 404) == "NotFound"


def test_a_job_whose_folder_was_removed_is_none(service: LightService) -> None:
    """Operators make room so."""
    name = service.invoke(service.data("empty")).json()["name"]
    assert service.ended(name) == "Completed"
    shutil.rmtree(service.home / "jobs" / name)
    for path in ("", "/outputs", "/stream"):
        assert code(service.client.get(f"/jobs/{name}{path}"), 404) == "NotFound"
    assert name not in service.client.get("/jobs").text


def test_a_job_that_was_refused_says_so(service: LightService) -> None:
    """Nothing of it was begun."""
    name = service.invoke(service.data("refused", "say no such option", "exit 2")).json()["name"]
    assert service.ended(name) == "Failed"
    assert service.job(name)["properties"]["error"]["code"] == "JobRefused"


# ---- who may ----


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({}, "MissingToken"),
        ({"Authorization": TOKEN}, "MissingToken"),
        ({"Authorization": f"Bearer {TOKEN}x"}, "InvalidToken"),
        ({"Authorization": f"Bearer {OLD_TOKEN}"}, "ExpiredToken"),
        ({"Authorization": f"Bearer {FOREIGN_TOKEN}"}, "InvalidAudience"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/jobs"), ("POST", "/jobs"), ("GET", "/none"), ("PUT", "/docs/")],
)
def test_nothing_is_answered_without_a_token_that_counts(
    service: LightService, method: str, path: str, header: dict[str, str], expected: str
) -> None:
    """Not even whether there is something."""
    answer = httpx.request(method, service.url + path, headers=header)
    assert code(answer, 401) == expected
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_two_tokens_in_one_request_are_none(service: LightService) -> None:
    """Nobody knows which one counts."""
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")]
    assert code(httpx.get(service.url + "/jobs", headers=headers), 401) == "MissingToken"


def test_the_description_says_what_the_service_does(service: LightService) -> None:
    """Mistakes have the answer 400, and timeouts are durations of any usual form."""
    found = service.client.get("/openapi.json").json()
    assert "422" not in json.dumps(found)
    assert "ValidationError" not in json.dumps(found)
    timeout = found["components"]["schemas"]["JobRetrySettings"]["properties"]["timeout"]
    (pattern,) = [one["pattern"] for one in timeout["anyOf"] if "pattern" in one]
    for duration in ("PT30S", "PT1.5M", "P1DT2H", "PT1H30M", "PT10H", "P1DT20H59M9999.999S"):
        assert re.fullmatch(pattern, duration)
        assert TypeAdapter(Timeout).validate_python(duration) > 0
    assert not re.fullmatch(pattern, "PT0S")


def test_how_the_service_is_used_everybody_may_read(service: LightService) -> None:
    """The page fetches nothing from elsewhere."""
    page = httpx.get(service.url + "/docs")
    assert "POST /jobs/{name}/cancel" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http_", "").split("<h2>Bodies")[0]
    assert "/jobs/{name}/outputs/{path}" in httpx.get(service.url + "/openapi.json").json()["paths"]


# ---- what is malformed ----


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"properties": null}',
        b'{"properties": {"InputData": []}}',
        b'{"properties": {"unknown": 1}}',
        b'{"properties": {"miniBatchSize": true}}',
        b'{"properties": {"miniBatchSize": NaN}}',
        b'{"properties": {"miniBatchSize": 1e999}}',
        b'{"properties": {"InputData": {"a": {"JobInputType": "UriFile", "Uri": "\\ud800"}}}}',
        b'{"properties": {"displayName": "\xff"}}',
        b'{"properties": ' * 2000,
        b"[" * 60_000,
    ],
    ids=range(14),
)
def test_a_malformed_body_is_a_bad_request(service: LightService, content: bytes) -> None:
    """Whatever it is made of."""
    headers = {"Content-Type": "application/json"}
    assert code(service.client.post("/jobs", content=content, headers=headers), 400)


def test_every_mistake_of_a_request_is_told_in_one_go(service: LightService) -> None:
    """Each with the way to it."""
    given: dict[str, Any] = {"JobInputType": "Folder", "Uri": 3}
    answer = service.client.post(
        "/jobs", json={"properties": {"InputData": {"a": given}, "miniBatchsize": 0, "x": 1}}
    )
    assert code(answer, 400) == "BadRequest"
    targets = [one["target"].split(".")[-1] for one in answer.json()["error"]["details"]]
    assert sorted(targets) == ["JobInputType", "Uri", "miniBatchSize", "x"]
    assert "properties.x: Unknown key" in answer.json()["error"]["message"]


def test_a_body_that_is_not_said_to_be_json_is_told_by_the_header(service: LightService) -> None:
    """As a client sends it that is given the data alone."""
    answer = service.client.post("/jobs", content=b'{"properties": {}}')
    assert code(answer, 400) == "BadRequest"
    assert "the header Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/none",
        "/jobs/batchjob-00000000-0000-0000-0000-000000000000",
        "/jobs/none/outputs",
        "/jobs/none/stream",
        "/jobs?$skip=none",
        "/none",
        "/jobs/",
    ],
)
def test_what_is_not_there_is_not_found(service: LightService, path: str) -> None:
    """Jobs, and paths of the service."""
    assert code(service.client.get(path), 404) == "NotFound"


@pytest.mark.parametrize("path", ["/jobs/%2e%2e", "/jobs/a%2fb", "/jobs/a%00"])
def test_a_jobs_name_is_no_path(service: LightService, path: str) -> None:
    """Whatever it looks like."""
    request = service.client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert code(service.client.send(request), 404 if "2f" in path else 400)


# ---- what lies elsewhere ----


@pytest.mark.parametrize("given", [{}, {"score": "azureml://datastores/results/paths/swapped"}])
def test_a_link_in_the_place_of_a_jobs_output_is_not_followed(
    service: LightService, given: dict[str, str], tmp_path: Path
) -> None:
    """Whoever has put it there."""
    outputs = {key: {"JobOutputType": "UriFolder", "Uri": uri} for key, uri in given.items()}
    answer = service.client.post("/jobs", json=body(service.data("empty"), OutputData=outputs))
    name = answer.json()["name"]
    assert service.ended(name) == "Completed"
    own = service.home / "jobs" / name / "output"
    output = service.home / "results" / "swapped" if given else own
    assert service.client.get(f"/jobs/{name}/outputs/done.txt").status_code == 200
    output.rename(tmp_path / "elsewhere")
    output.symlink_to(tmp_path / "elsewhere")
    assert code(service.client.get(f"/jobs/{name}/outputs/done.txt"), 404) == "NotFound"
    assert service.client.get(f"/jobs/{name}/outputs").json()["value"] == []
    output.unlink()


@pytest.mark.parametrize(
    "path",
    [
        "../request.json",
        "%2e%2e/request.json",
        "..%2frequest.json",
        "..%252frequest.json",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "link",
        "folder/passwd",
        "pipe",
        "a%00b",
        "%ff",
        "a" * 300,
        ".",
        "",
    ],
)
def test_no_file_outside_a_jobs_output_is_sent(service: LightService, path: str) -> None:
    """Neither by dots, nor by links that the job has made."""
    lines = ["link link /etc/passwd", "link folder /etc", "link pipe /dev/zero"]
    name = service.invoke(service.data("links", *lines)).json()["name"]
    service.ended(name)
    for what in ("outputs", "logs"):
        request = service.client.build_request("GET", f"/jobs/{name}/{what}/")
        request.url = request.url.copy_with(raw_path=f"/jobs/{name}/{what}/{path}".encode())
        answer = service.client.send(request)
        if path == ".":
            assert answer.status_code in {200, 404}
        else:
            assert code(answer, 404) == "NotFound"
    listed = service.client.get(f"/jobs/{name}/outputs").json()["value"]
    assert [one["path"] for one in listed] == ["done.txt"]


@pytest.mark.parametrize(
    "uri",
    [
        "/etc/passwd",
        "{home}/tokens.yml",
        "{home}/data/../tokens.yml",
        "azureml://datastores/data/paths/../tokens.yml",
        "file://{home}/data/%2e%2e/tokens.yml",
        "{home}/data/escape",
    ],
)
def test_no_input_outside_the_roots_is_read(service: LightService, uri: str) -> None:
    """It is refused before there is a job."""
    escape = service.home / "data" / "escape"
    if not escape.is_symlink():
        escape.symlink_to(service.home / "tokens.yml")
    before = service.client.get("/jobs").json()["value"]
    answer = service.invoke(uri.replace("{home}", str(service.home)))
    assert code(answer, 403) == "PathNotAllowed"
    assert service.client.get("/jobs").json()["value"] == before
    escape.unlink()


@pytest.mark.parametrize("uri", ["{home}/data/*", "data/one", "s3://b/k", "ftp://x/y", ""])
def test_places_of_another_form_are_malformed(service: LightService, uri: str) -> None:
    """Globs, relative paths and other stores are none."""
    answer = service.invoke(uri.replace("{home}", str(service.home)))
    assert code(answer, 400) == "BadRequest"
    assert "azureml://datastores/<name>/paths/" in answer.json()["error"]["message"]


# ---- the queue ----


def test_no_more_jobs_run_than_may_and_no_more_wait(tmp_path: Path) -> None:
    """What is too much is refused, and what waits can be canceled."""
    with LightService(tmp_path, running=1, queued=2) as service:
        gate = tmp_path / "gate"
        data = service.data("wait", f"wait {gate}")
        first = service.invoke(data).json()["name"]
        assert poll_for(lambda: service.status(first) == "Running")
        second, third = (service.invoke(data).json()["name"] for _ in range(2))
        refused = service.invoke(data)
        assert code(refused, 429) == "TooManyJobs"
        assert int(refused.headers["retry-after"]) > 0
        assert service.status(second) == service.status(third) == "Queued"
        service.client.post(f"/jobs/{second}/cancel")
        assert service.status(second) == "Canceled"
        gate.touch()
        assert [service.ended(name) for name in (first, second, third)] == [
            "Completed",
            "Canceled",
            "Completed",
        ]


def test_a_compressed_body_is_not_unpacked(service: LightService) -> None:
    """A few bytes cannot become many."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    bomb = gzip.compress(b" " * 10_000_000)
    assert service.client.post("/jobs", content=bomb, headers=headers).status_code in {400, 413}


@pytest.mark.attack
@pytest.mark.parametrize(
    "properties",
    [
        {"InputData": {f"1-{n}": n for n in range(2000)}},
        {"OutputData": {f"out{n}": {} for n in range(2000)}},
        {"tags": {f"tag{n}": n for n in range(2000)}},
        {f"key{n}": n for n in range(2000)},
        {"InputData": {"it": {f"key{n}": n for n in range(2000)}}},
    ],
)
def test_thousands_of_mistakes_cost_one_message(
    service: LightService, properties: dict[str, Any]
) -> None:
    """Checking and reporting each of them took seconds, in which every other caller waited."""
    answer = service.client.post("/jobs", json={"properties": properties})
    assert code(answer, 400) == "BadRequest"
    assert len(answer.json()["error"]["details"]) <= 100
    assert "2000 entries; at most 100 are taken" in answer.json()["error"]["message"]


@pytest.mark.attack
def test_a_path_that_is_too_long_is_not_found(service: LightService) -> None:
    """The system refuses to look for it; that is not an error of the service."""
    for path in ("/" + "a" * 300, "/a" * 2000):
        answer = service.client.post("/jobs", json=body(f"{service.home}/data{path}"))
        assert 400 <= answer.status_code < 500, answer.text
    assert code(service.client.get("/jobs/none/outputs/" + "a" * 300), 404) == "NotFound"
