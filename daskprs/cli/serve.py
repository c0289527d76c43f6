"""The command ``serve``: an HTTP service in front of batch deployments."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskprs.cli.assets import assets_of, with_assets
from daskprs.cli.exit_codes import every_end
from daskprs.cli.options import CONTEXT, SECRETS, client, pairs
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from daskprs.serve.allowed_paths import Roots
    from daskprs.serve.deployment import ServedDeployment

AUDIENCE = "https://ml.azure.com"
FOLDER = "daskprs-endpoint"
FORM = "NAME=FOLDER"
MOST_BODY_KB = 256
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


@click.command("serve", context_settings=CONTEXT, epilog=AFTER_SERVE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--default", metavar="NAME", help="The deployment of requests that name none.")
@click.option(
    "--name", metavar="NAME", help="Name of the endpoint. Default: the endpoint_name of the files."
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    required=True,
    metavar=FORM,
    help="A folder that input may lie in: azureml://datastores/NAME/paths/, or its path.",
)
@click.option(
    "--output-root",
    "output_roots",
    multiple=True,
    metavar=FORM,
    help="A folder that callers may have output written to. Default: none, it stays with the job.",
)
@click.option(
    "--tokens",
    metavar="FILE",
    help="The valid tokens. Default: the environment variable DASKPRS_SERVE_TOKENS.",
)
@click.option("--audience", default=AUDIENCE, show_default=True, help="What tokens are for.")
@click.option(
    "--folder", default=FOLDER, show_default=True, help="Where jobs live; also after a restart."
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--certificate", metavar="FILE", help="For https, with --key.")
@click.option("--key", metavar="FILE", help="For https, with --certificate.")
@click.option(
    "--max-jobs", type=click.IntRange(1), default=1, show_default=True, help="Jobs at a time."
)
@click.option(
    "--max-queued", type=click.IntRange(0), default=1000, show_default=True, help="Jobs that wait."
)
@click.option(
    "--max-body-kb",
    type=click.IntRange(1),
    default=MOST_BODY_KB,
    show_default=True,
    help="Size of a request.",
)
@with_assets
@client(" for the jobs. Default: the cores of this machine.")
@SECRETS
def serve(files: tuple[str, ...], **values: Any) -> None:
    """Serve the batch deployments that the YAML files FILE... describe, over HTTP.

    Jobs are processes of their own: they go on when the service ends, and it knows them again.
    """
    with every_end():
        _refuse_without_packages()
        from daskprs.serve.allowed_paths import Roots
        from daskprs.serve.deployment import Deployments
        from daskprs.serve.server import Service
        from daskprs.serve.tokens import Tokens

        if bool(values["certificate"]) != bool(values["key"]):
            msg = "serve: --certificate and --key are given together."
            raise OptionError(msg)
        inputs = Roots(pairs("--root", values["roots"], FORM))
        outputs = Roots(pairs("--output-root", values["output_roots"], FORM), "--output-root")
        _refuse_own_files_in(inputs, outputs, values)
        known = _deployments(files, values)
        named = [one.endpoint_name for one in known if one.endpoint_name]
        service = Service(
            name=values["name"] or (named or ["endpoint"])[0],
            deployments=Deployments(known, values["default"]),
            tokens=Tokens.given(values["tokens"], values["audience"]),
            inputs=inputs,
            outputs=outputs,
            folder=Path(values["folder"]).absolute(),
            max_jobs=values["max_jobs"],
            max_queued=values["max_queued"],
            most_bytes=values["max_body_kb"] << 10,
            host=values["host"],
            port=values["port"],
            certificate=values["certificate"],
            key=values["key"],
        )
        with suppress(KeyboardInterrupt):  # the usual end
            service.run(click.echo)


def _refuse_own_files_in(inputs: Roots, outputs: Roots, values: dict[str, Any]) -> None:
    """Refuse roots by which callers could read the tokens, or write into the jobs."""
    tokens, folder = values["tokens"], Path(values["folder"]).resolve()
    place = Path(tokens or "").resolve()
    for option, roots in (("--root", inputs), ("--output-root", outputs)):
        if tokens and roots.holds(place):
            msg = f"--tokens {tokens}: callers could have it read: it lies in a {option}."
            raise OptionError(msg)
    if outputs.holds(folder) or outputs.lies_in(folder):
        msg = (
            f"--folder {values['folder']}: callers could write into other jobs: it lies in an "
            "--output-root, or has one in it."
        )
        raise OptionError(msg)


def _deployments(files: tuple[str, ...], values: dict[str, Any]) -> list[ServedDeployment]:
    from daskprs.serve.deployment import ServedDeployment

    words = _forwarded(values)
    assets = assets_of(values)
    known = [ServedDeployment(file, assets.for_several_files(), words) for file in files]
    for name, problem in assets.unused_environments(one.environment for one in known):
        msg = f"--environment {name}: {problem}"
        raise OptionError(msg)
    for file, one in zip(files, known, strict=True):
        if one.without_effect:
            keys = ", ".join(one.without_effect)
            click.echo(f"daskprs: {file}: without effect here: {keys}.", err=True)
    return known


def _forwarded(values: dict[str, Any]) -> list[str]:
    """Return the words that each job receives, with paths that hold in any working directory."""
    from daskprs.azure.assets import split_asset

    words = []
    for option in ("asset", "datastore"):
        for word in values[option]:
            name, path = split_asset(word) or (word, "")  # refused when it is looked at
            words += [f"--{option}", f"{name}={Path.cwd() / path}"]
    if values["assets"]:
        words += ["--assets", str(Path.cwd() / values["assets"])]
    if values["client"]:
        words += ["--client", values["client"]]
    for name in values["secrets"]:
        words += ["--secret", name]
    return words


def _refuse_without_packages() -> None:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        msg = (
            f"serve: {' and '.join(missing)} cannot be imported. Install the extra: "
            'pip install "daskprs[serve]"'
        )
        raise OptionError(msg)
