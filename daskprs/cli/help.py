"""The help of a command: its options under headings, examples, exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from daskprs.options.option import GROUPS
from daskprs.options.run_options import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_BEFORE = {
    "Script": ("script",),
    "Processes": ("client", "here"),
    "Output": ("output_dir",),
    "The job": ("job_dir",),
}
OWN_AFTER = {"The job": ("extend", "quiet")}
"""Options that only the command line has, before and after those of `RunOptions`."""
HEADINGS = {
    group: (
        *OWN_BEFORE.get(group, ()),
        *(name for name, row in TABLE.items() if row.group == group),
        *OWN_AFTER.get(group, ()),
    )
    for group in GROUPS
}
"""Options in the order in which they are shown; the headings are those of the documentation."""
EXTEND = "Go on where the input has grown: only what is new by content is run."
AFTER_RUN = """\b
Examples:
  daskprs run score.py pictures/ --mini-batch-size 25 --output-dir scored
  daskprs run clean.py 'visits/*.csv' --partition-keys customer -- --model m.pickle

\b
Exit codes:
  0    the job is Completed
  42   the job is Failed: the reason is shown, and in logs/job_result.txt
  130  the job is Canceled, by Ctrl-C or SIGTERM
  2    nothing was started: an option, the script, the input or a folder cannot be used
"""
AFTER_SUBMIT = """\b
Examples:
  daskprs submit score.py /shared/images --scheduler tcp://10.0.0.1:8786 --job-dir /shared/scored
  daskprs status /shared/scored
  daskprs attach /shared/scored
  daskprs cancel /shared/scored
  daskprs result /shared/scored
"""
AFTER_INVOKE = """\b
Examples:
  daskprs invoke deployment.yml --input pictures/
  daskprs invoke deployment.yml --input 'data/*.csv' --mini-batch-size 20 --output-path scored
  daskprs invoke deployment.yml --input data/ --asset heart-classifier=models/heart
  daskprs invoke pipeline-deployment.yml --input unlabeled=data/ --input mode=append

\b
Exit codes:
  those of daskprs run
"""
AFTER_RESUME = """\b
Examples:
  daskprs resume daskprs-jobs/score-20270115-080000-1a2b3c4d
  daskprs resume scored-job --run-invocation-timeout 600 --scheduler tcp://10.0.0.1:8786
  daskprs resume scored-job --extend

\b
Exit codes:
  those of daskprs run
"""
AFTER_RETRY = """\b
Examples:
  daskprs retry-failed scored-job --script mended/score.py

\b
Exit codes:
  those of daskprs run
"""
AFTER_STATUS = """\b
Exit codes:
  0    it is shown
  2    no job has begun in the folder
"""
AFTER_RESULT = """\b
Exit codes:
       those of the job, and
  2    the job has no result: it is running, or its driver died
"""
AFTER_SERVE = """\b
Examples:
  python -c 'import secrets; print(secrets.token_urlsafe(32))' > token && chmod 600 token
  daskprs serve deployment.yml --tokens token --root data=/srv/data
  daskprs serve a.yml b.yml --default a --tokens tokens.yml --root data=/srv/data --max-jobs 2

\b
Exit codes:
  0    it was ended, by Ctrl-C or SIGTERM
  2    nothing was served: an option, a file, a folder or the address cannot be used
"""
AFTER_PLAN = """\b
Examples:
  daskprs plan visits.csv --mini-batch-size '500 KB'
  daskprs plan pictures/ --partition-format '{year}/{camera}/{n}.jpg' --partition-keys camera

\b
Exit codes:
  0    the plan is shown
  2    an option or the input cannot be used
"""


class Grouped(click.Command):
    """A command whose help shows its options under the headings of the table of options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that the command has, heading by heading."""
        for heading, shown in self.grouped(ctx):
            with formatter.section(heading):
                formatter.write_dl(shown)

    def grouped(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield each heading with what is written under it."""
        records = {option.name: option.get_help_record(ctx) for option in self.get_params(ctx)}
        for heading, names in HEADINGS.items():
            shown = [record for name in names if (record := records.get(name)) is not None]
            if shown:
                yield heading, shown
