"""Batch files of OpenAI: what is refused before the start, and where each answer goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._openai.batch_file import BatchFile
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/embeddings",
    "body": {"model": "small", "input": "text"},
}


def file_of(folder: Path, *requests: Any) -> Path:
    """Return a file with these lines."""
    lines = (one if isinstance(one, str) else json.dumps(one) for one in requests)
    path = folder / "requests.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def values_in(path: Path) -> list[Any]:
    """Return the values of a file, one from each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("{", "line 3: not JSON"),
        ("[1]", "line 3: not a JSON object"),
        ({**REQUEST, "custom_id": 7}, "line 3: custom_id has to be a text, and is 7."),
        ({"custom_id": "b"}, "line 3: method has to be a text, and is missing."),
        ({**REQUEST, "custom_id": "b", "body": "x"}, "body has to be an object, and is 'x'."),
        ({**REQUEST, "custom_id": "b", "method": "GET"}, "method is 'GET'. Only POST"),
        ({**REQUEST, "custom_id": "b", "url": "http://x/v1"}, "Write a path, as /v1/embeddings."),
        ({**REQUEST, "custom_id": "b", "body": {"stream": True}}, "asks for a stream"),
        ({**REQUEST, "custom_id": "b", "body": {"top_p": float("nan")}}, "NaN or Infinity"),
        (REQUEST, "line 3: line 1 has the custom_id 'a', too."),
    ],
)
def test_a_line_that_is_no_request_is_refused(tmp_path: Path, second: Any, told: str) -> None:
    """The message names the line; blank lines are none."""
    with pytest.raises(UsageError, match=r".*") as caught:
        BatchFile(file_of(tmp_path, REQUEST, "", second))
    assert told in str(caught.value)


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    """A blank line is no request."""
    with pytest.raises(UsageError, match="has no requests"):
        BatchFile(file_of(tmp_path, ""))


def test_each_request_has_an_answer_or_an_error(tmp_path: Path) -> None:
    """Errors are those that the server has answered, and those of requests without an answer."""
    ids = ["a", "b", "c", "ü"]
    file = BatchFile(file_of(tmp_path, *({**REQUEST, "custom_id": one} for one in ids)))
    answers = [
        {"custom_id": one, "response": {"status_code": status}}
        for one, status in (("a", 200), ("b", 404), ("ü", 201))
    ]
    made = tmp_path / "answers.txt"
    made.write_text("".join(f"{json.dumps(one)}\n" for one in answers))
    output, errors = tmp_path / "output.jsonl", tmp_path / "errors.jsonl"
    assert file.write(made, {2: "TimeoutError: run() exceeded 5 s"}, output, errors) == (2, 2)
    assert values_in(output) == [answers[0], answers[2]]
    assert values_in(errors) == [
        answers[1],
        {
            "id": "batch_req_c",
            "custom_id": "c",
            "response": None,
            "error": {"code": "TimeoutError", "message": "run() exceeded 5 s"},
        },
    ]
