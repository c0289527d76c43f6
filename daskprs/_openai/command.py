"""The command ``run`` for a batch file of OpenAI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from daskprs._cli.exit_codes import echo_result, every_end
from daskprs._cli.options import CONTEXT, QUIET, Grouped, client, given, options
from daskprs._core.ending import EXIT_FAILED
from daskprs._job.flags import flagged
from daskprs._openai.batch_job import DEFAULTS, BatchJob

AFTER_RUN = """\b
Examples:
  daskprs run requests.jsonl --as openai-batch --endpoint http://127.0.0.1:8000
  daskprs run requests.jsonl --as openai-batch --endpoint https://api.example.com \\
    --rate-limit requests_per_minute=500 --rate-limit tokens_per_minute=200000

\b
Exit codes:
  0    each request has an answer or an error
  42   no request has an answer
  75   the job is Interrupted, by its deadline, the end of its batch job, a usage limit, a spent
       quota, or SIGTERM: call it again with --resume
  130  the job is Canceled, by Ctrl-C: call it again with --resume
  2    nothing was started: an option, the file or a folder cannot be used, or no server answers
"""
AT_ONCE = ("process_count_per_node", "concurrency_per_process")
LIMITS = ("rate_limit", "usage_limits", "deadline")
TRIES = ("run_max_try", "retry_delay", "run_invocation_timeout")
FILE = click.Path(path_type=Path)


def _beside(ending: str) -> str:
    return f"Default: FILE with {ending} in place of its suffix."


@click.command("run", cls=Grouped, context_settings=CONTEXT, epilog=AFTER_RUN)
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["openai-batch"]),
    required=True,
    help="What FILE is: a batch file of OpenAI, with a request on each line.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    required=True,
    help="The server, with or without the /v1 that the urls of the requests begin with. If it "
    "needs a key, set the variable OPENAI_API_KEY.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=FILE,
    help=f"The file of answers. {_beside('_output.jsonl')}",
)
@click.option(
    "--errors",
    metavar="FILE",
    type=FILE,
    help="The file of errors: those that the server has answered, and one for each request that "
    f"has no answer. {_beside('_errors.jsonl')}",
)
@click.option("--overwrite", is_flag=True, help="Replace the files of answers and of errors.")
@click.option("--job-dir", metavar="FOLDER", type=FILE, help=f"The job folder. {_beside('_job')}")
@click.option("--resume", is_flag=True, help="Go on: what has an answer is not asked again.")
@client(". Default: the cores of this machine.")
@QUIET
@options((*AT_ONCE, *LIMITS, *TRIES, "metrics_file", "accept_changes"), DEFAULTS)
def run_batch_file(file: Path, **values: Any) -> None:
    """Send the requests of FILE to a server with OpenAI's API, and write its answers.

    Answers and errors have the form of OpenAI's Batch API, in the order of the requests. Any server
    with this API will do, also one on this machine.
    """
    values.pop("kind")
    values["progress"] = False if values.pop("quiet") else None
    with every_end():
        job = BatchJob(file, **given(values), option=flagged)
        found = job.run()
        echo_result(job.told(found))
        sys.exit(0 if found.answers else EXIT_FAILED)
