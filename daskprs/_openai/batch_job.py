"""The job of a batch file of OpenAI: each request is a mini-batch."""

from __future__ import annotations

import os
import shlex
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun
from daskprs._job.flags import flagged
from daskprs._job.frontend import Surface, accepting
from daskprs._job.status import state_of
from daskprs._openai.batch_file import BatchFile, Sorted
from daskprs._options.run_options import TABLE, RunOptions
from daskprs._options.site_defaults import options_of_call
from daskprs.errors import Option, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs._job.result import ParallelRunResult

SCRIPT = Path(__file__).with_name("ask.py")
KEY = "OPENAI_API_KEY"
COLUMNS = {"custom_id": "str", "url": "str", "body": "object"}
A_ROW_EACH = {"input_type": "table", "mini_batch_size": "1 row"}
OF_A_ROW = {"columns": [*COLUMNS], "dtypes": COLUMNS}
DEFAULTS = {"run_invocation_timeout": 600, "retry_delay": "exponential"}
"""Options with other defaults than those of a job: a long answer takes minutes."""
PAUSES_S = (1.0, 2.0, 4.0)
"""Seconds between looks for a server, at most one for each try of a request."""
LOOK_S = 5.0
ENDS = {"append_row_file_name": "answers.txt", "overwrite": True, "on_error": "drop"}
"""A file of its own, in a folder that has no other job."""


class BatchJob:
    """A batch file, the server that answers it, and the files of its answers.

    Parameters
    ----------
    file
        The batch file.
    endpoint
        The address of the server, with or without the ``/v1`` of the requests.
    output, errors, job_dir
        The files of answers and of errors, and the job folder. Default: beside `file`.
    overwrite, resume, client, progress
        As for any job.
    option
        Returns an option as a message names it.
    **more
        Other options of the job.

    Raises
    ------
    UsageError
        When there is no such file, when a line of it is no request, when a file of answers exists
        or cannot be written, or without httpx.

    """

    def __init__(
        self,
        file: Path,
        endpoint: str,
        *,
        output: Path | None = None,
        errors: Path | None = None,
        job_dir: Path | None = None,
        overwrite: bool = False,
        resume: bool = False,
        client: str | None = None,
        progress: bool | None = None,
        option: Callable[[Option], str] = str,
        **more: Any,
    ) -> None:
        self._file = file
        # Clients of the API are given its address with this, and a request has it in its url.
        self._endpoint = endpoint.rstrip("/").removesuffix("/v1")
        self._output = output or file.with_name(f"{file.stem}_output.jsonl")
        self._errors = errors or file.with_name(f"{file.stem}_errors.jsonl")
        self._job_dir = job_dir or file.with_name(f"{file.stem}_job")
        self._client = client
        self._option = option
        self._spent: dict[str, float] = {}
        accepted = {*more.pop("accept_changes", ())}
        if resume:
            # Another address asks for the same: a request names its model. All other options that
            # could give other rows are the same for each batch file.
            accepted.add("options")
        self._named = {**more, **({"overwrite": True} if overwrite else {})}
        """Options that a resume has to name again."""
        self._given = {
            **DEFAULTS,
            **more,
            "resume": resume,
            "progress": progress,
            "accept_changes": sorted(accepted),
        }
        # A driver that dies between the two files leaves one, and both are those of its job.
        self._check(overwrite=overwrite or (resume and self._job_dir.is_dir()))
        self._requests = BatchFile(file)

    def run(self) -> Sorted:
        """Ask for all answers, and write the files; return how many there are.

        Raise `UsageError` when no server answers.
        """
        from daskprs._job.prestart import prestart

        options = {**self._given, **A_ROW_EACH, **OF_A_ROW, **ENDS}
        options["arguments"] = ["--endpoint", self._endpoint]
        if KEY in os.environ:
            options["secrets"] = [KEY]
        early = RunOptions(**options)
        self._refuse_silence(options["resume"])
        with prestart(early, self._client, partial(options_of_call, options)) as final:
            from daskprs._job.job import Job
            from daskprs._job.request import check_call

            places: dict[str, Any] = {"client": self._client, "job_dir": str(self._job_dir)}
            call = check_call(str(self._file), str(SCRIPT), final, **places, text=True)
            result = Job(call, Surface(self._option, self._command_to_resume)).run()
        return self._written(result)

    def told(self, found: Sorted) -> str:
        """Return what has come of it, for people."""
        count = found.answers + found.errors
        lines = [
            f"{found.answers:,} of {count:,} requests are answered: {self._output}",
            f"{found.errors:,} {'has' if found.errors == 1 else 'have'} an error: {self._errors}",
        ]
        if self._spent:
            lines.append(", ".join(f"{count:,} {name}" for name, count in self._spent.items()))
        return "\n".join(lines)

    def _check(self, *, overwrite: bool) -> None:
        if find_spec("httpx") is None:
            msg = "--as openai-batch needs the package httpx: pip install 'daskprs[openai]'"
            raise UsageError(msg)
        if not self._endpoint.startswith(("http://", "https://")):
            msg = f"--endpoint {self._endpoint!r}: write a URL, as http://127.0.0.1:8000"
            raise UsageError(msg)
        taken = {self._file.resolve(): "the file of requests"}
        for path, what in ((self._output, "answers"), (self._errors, "errors")):
            before = taken.setdefault(path.resolve(), f"the file of {what}")
            if before != f"the file of {what}":
                msg = f"{path} is {before}. Name another file for {what}."
                raise UsageError(msg)
            if path.exists() and not overwrite:
                msg = f"{path} exists. Name another file, or say --overwrite."
                raise UsageError(msg)
            if path.is_dir() or not path.parent.is_dir():
                is_folder = (
                    f"{path} is a folder" if path.is_dir() else f"{path.parent} is no folder"
                )
                msg = f"{is_folder}. Name a file in a folder that exists."
                raise UsageError(msg)

    def _written(self, result: ParallelRunResult) -> Sorted:
        failed = result.failed
        reasons = (
            {} if failed is None else dict(zip(failed["mini_batch"], failed["error"], strict=True))
        )
        self._spent = result.usage.spent
        answers = None if result.output_file is None else Path(result.output_file)
        return self._requests.write(answers, reasons, self._output, self._errors)

    def _refuse_silence(self, resume: bool) -> None:  # noqa: FBT001 - the option
        """Refuse an address at which nothing answers, if requests are to be sent from here.

        A server that is being started has as much time as the tries of a request give it.
        """
        import httpx

        folder = JobFolder(self._job_dir)
        is_done = resume and has_begun(folder) and not state_of(folder).may_go_on
        if is_done or self._client is not None:
            return
        tries = int(self._given.get("run_max_try", TABLE["run_max_try"].default))
        for pause_s in (*PAUSES_S[: tries - 1], None):
            try:
                httpx.get(self._endpoint, timeout=LOOK_S)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = error
            except (httpx.HTTPError, httpx.InvalidURL):
                return  # what that means for a request is told by its error
            else:
                return
            if pause_s is not None:
                time.sleep(pause_s)
        command = self._command(["--resume"] if resume else [])
        msg = (
            f"nothing answers at {self._endpoint} ({why}). Check "
            f"{Option('endpoint')}, and whether the server is up. Then: {command}"
        )
        raise UsageError(msg)

    def _command_to_resume(self, _: object, accept: str = "", **again: Any) -> str:
        """Return the command that goes on; the script is none of the user's, and never mended."""
        if accept == "script":
            return ""
        return self._command([*accepting(accept), "--resume"], again)

    def _command(self, more: list[str], again: Mapping[str, Any] = MappingProxyType({})) -> str:
        places = {
            "endpoint": self._endpoint,
            "output": self._output,
            "errors": self._errors,
            "job-dir": self._job_dir,
            **({} if self._client is None else {"client": self._client}),
        }
        words = [word for name, value in places.items() for word in (f"--{name}", str(value))]
        command = shlex.join(["daskprs", "run", str(self._file), "--as", "openai-batch", *words])
        # A job that went on without its limits would be refused, or cost more than it may.
        named = {**self._named, **again}
        options = [flagged(Option(name, one)) for name, one in named.items() if one is not None]
        return " ".join([command, *options, *more])
