"""The command ``validate``: the mistakes in Azure's files, without running them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.as_json import JSON, show_json
from daskprs._cli.exit_codes import echo, every_end
from daskprs._cli.options import CONTEXT, pairs, repeated
from daskprs._core.ending import EXIT_USAGE
from daskprs.azure._commands.assets import assets_of, with_assets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.azure._validation import Verdict

AFTER_VALIDATE = """\b
Examples:
  daskprs validate pipeline.yml deployment.yml
  daskprs validate pipeline.yml --asset my-model=models/mine --input data=/data/today

\b
Exit codes:
  0    nothing is wrong; there may be warnings
  2    there are mistakes: each is shown with its file, line and column
"""


@click.command("validate", context_settings=CONTEXT, epilog=AFTER_VALIDATE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@repeated(
    "--input",
    "inputs",
    form="NAME=VALUE",
    text="An input that a pipeline receives when it runs.",
)
@with_assets
@JSON
def validate(
    files: tuple[str, ...], inputs: tuple[str, ...], *, as_json: bool, **values: Any
) -> None:
    """Show every mistake in FILE...

    Files may be pipelines, components, batch deployments, MLTables and configs of SDK v1.
    """
    given = pairs("--input", inputs)
    with every_end():
        from daskprs.azure._validation import validate as verdict_on

        assets = assets_of(values)
        if len(files) > 1:
            assets = assets.for_several_files()
        verdicts = {file: verdict_on(file, assets, given) for file in files}
        if as_json:
            show_json([_verdict_values(file, one) for file, one in verdicts.items()])
        else:
            for file, verdict in verdicts.items():
                for line in (*verdict.wrong, *verdict.warnings):
                    echo(line)
                if not verdict.is_checked:
                    continue
                if not verdict.wrong:
                    echo(f"{file}: nothing is wrong with this {verdict.kind}.")
        if any(verdict.wrong for verdict in verdicts.values()):
            sys.exit(EXIT_USAGE)


def _verdict_values(file: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "file": file,
        "kind": verdict.kind or None,
        "mistakes": _located(verdict.wrong),
        "warnings": _located(verdict.warnings),
    }


def _located(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return each line with its place, if it has one, as values of their own."""
    from daskprs.azure._yaml_files.mistakes import place_in

    found = []
    for text in lines:
        place, told = place_in(text)
        where = {} if place is None else place._asdict()
        found.append({"file": None, "line": None, "column": None, **where, "message": told})
    return found
