"""A batch file of OpenAI: a request on each line, and an answer or an error for each of them.

The forms are those of the documentation of its Batch API: ``custom_id``, ``method``, ``url`` and
``body`` of a request; ``id``, ``custom_id``, ``response`` and ``error`` of an answer.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._inputs.text.json_lines import parsed
from daskprs._suggest import nearest
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import open_regular
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

TYPES = {"custom_id": str, "method": str, "url": str, "body": dict}
NAMES = {str: "a text", dict: "an object"}
SUCCESS = range(200, 300)
"""The status codes of answers that are no errors."""
NO_NUMBERS = (b"NaN", b"Infinity")
"""What Python reads as numbers, and JSON has no words for; a text may have these letters, too."""
SHOWN = 100


class Sorted(NamedTuple):
    """How many requests have an answer, and how many an error."""

    answers: int
    errors: int


class BatchFile:
    """The requests of a file.

    Raise `UsageError`, which names the line, when a line is no request, or two have the same
    ``custom_id``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            msg = f"there is no file {str(path)!r}.{nearest(path)}"
            raise UsageError(msg)
        first: dict[str, int] = {}
        for number, line in self._lines():
            custom_id = self._checked(number, line)["custom_id"]
            if custom_id in first:
                msg = (
                    f"{path}, line {number}: line {first[custom_id]} has the custom_id "
                    f"{custom_id!r}, too. Give each request its own."
                )
                raise UsageError(msg)
            first[custom_id] = number
        if not first:
            msg = f"{path} has no requests."
            raise UsageError(msg)
        self._custom_ids = tuple(first)

    def write(
        self, answers: Path | None, failed: Mapping[int, str], output: Path, errors: Path
    ) -> Sorted:
        """Write the files of answers and of errors, both in the order of the requests.

        Parameters
        ----------
        answers
            A file with a line for each request that the server has answered, in order.
        failed
            Why each of the others has no answer, by its number, from 0.
        output, errors
            The files to write. An error that the server has answered is in `errors`, too.

        """
        counts = [0, 0]
        with ExitStack() as stack:
            files = [stack.enter_context(whole_file(path)) for path in (output, errors)]
            lines: Iterable[bytes] = ()
            if answers is not None:
                lines = stack.enter_context(open_regular(answers))
            left = iter(lines)
            for number, custom_id in enumerate(self._custom_ids):
                why = failed.get(number)
                line = next(left) if why is None else line_of_error(custom_id, why)
                is_error = why is not None or not _has_succeeded(line)
                files[is_error].write(line)
                counts[is_error] += 1
        return Sorted(*counts)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with open_regular(self._path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line

    def _checked(self, number: int, line: bytes) -> dict[str, Any]:
        """Return a request as it is sent; a stream, and a method without a body, have no answer."""
        request = parsed(line, "utf-8")
        if isinstance(request, str):
            raise self._refused(number, f"{request} {line[:SHOWN]!r}.")
        for name, kind in TYPES.items():
            if not isinstance(request.get(name), kind):
                found = repr(request[name])[:SHOWN] if name in request else "missing"
                raise self._refused(number, f"{name} has to be {NAMES[kind]}, and is {found}.")
        if request["method"] != "POST":
            raise self._refused(number, f"method is {request['method']!r}. Only POST can be sent.")
        if not request["url"].startswith("/"):
            raise self._refused(
                number, f"url is {request['url']!r}. Write a path, as /v1/embeddings."
            )
        if request["body"].get("stream"):
            raise self._refused(number, "the body asks for a stream. Leave out its key stream.")
        if any(one in line for one in NO_NUMBERS):
            try:
                json.dumps(request["body"], allow_nan=False)
            except ValueError:
                raise self._refused(
                    number, "the body has NaN or Infinity, unknown to JSON."
                ) from None
        return request

    def _refused(self, number: int, why: str) -> UsageError:
        return UsageError(f"{self._path}, line {number}: {why}")


def line_of_error(custom_id: str, why: str) -> bytes:
    """Return the line of a request that has no answer."""
    kind, _, message = why.partition(": ")
    error = {"code": kind, "message": message or why}
    line = {
        "id": f"batch_req_{custom_id}",
        "custom_id": custom_id,
        "response": None,
        "error": error,
    }
    return json.dumps(line).encode() + b"\n"


def _has_succeeded(line: bytes) -> bool:
    return json.loads(line)["response"]["status_code"] in SUCCESS
