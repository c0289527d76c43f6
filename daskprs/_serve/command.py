"""The command ``serve``: an HTTP service in front of batch deployments."""

from __future__ import annotations

import importlib.util
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskprs._cli.exit_codes import echo_result, every_end
from daskprs._cli.options import CONTEXT, SECRETS, client, pairs, repeated
from daskprs._options.client_rules import check_client
from daskprs._serve.rate_limits import MOST_PER_S
from daskprs._system.standard_streams import to_stderr
from daskprs.azure._commands.assets import assets_of, with_assets
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._serve.allowed_paths import Roots
    from daskprs._serve.deployment import ServedDeployment
    from daskprs._serve.job_user import JobUser
    from daskprs.azure._assets import Assets

AUDIENCE = "https://ml.azure.com"
FOLDER = "daskprs-endpoint"
FORM = "NAME=FOLDER"
MOST_BODY_KB = 256
MOST_INPUT_MB = 10_000
SECRET_FILES = ("tokens", "key", "audit-log")
OF_SERVER = ("drain_s", "host", "port", "certificate", "key", "requests_per_s")
"""Options that the server has under the same names."""
MOST_CONNECTIONS = 1000
MOST_PER_ADDRESS = 500
DRAIN_S = 20
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


def _no_nan(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which a range lets through, and which would set no limit."""
    if value is not None and math.isnan(value):
        msg = "nan is not a number."
        raise click.BadParameter(msg)
    return value


def _most(flag: str, default: int, text: str, least: int = 1) -> Callable[[Any], Any]:
    """Return the option of an upper bound."""
    kind = click.IntRange(least)
    return click.option(flag, type=kind, default=default, show_default=True, help=text)


@click.command("serve", context_settings=CONTEXT, epilog=AFTER_SERVE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--default", metavar="NAME", help="The deployment for requests that name none.")
@repeated(
    "--traffic",
    form="NAME=PERCENT",
    text="NAME gets this share of the requests that name no deployment; replaces --default.",
)
@click.option(
    "--name", metavar="NAME", help="Name of the endpoint. Default: the endpoint_name of the files."
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    required=True,
    metavar=FORM,
    help="A folder with input for callers: azureml://datastores/NAME/paths/, or its path.",
)
@repeated(
    "--output-root",
    "output_roots",
    form=FORM,
    text="A folder for the output of callers. Default: none; output stays with the job.",
)
@repeated(
    "--input-host",
    "input_hosts",
    form="HOST",
    text="A host from which the service may fetch input: https://HOST/…. Default: none.",
)
@_most("--max-input-mb", MOST_INPUT_MB, "The largest size of a file that is fetched.")
@click.option(
    "--tokens",
    metavar="FILE",
    help="The valid tokens. Default: the environment variable DASKPRS_SERVE_TOKENS.",
)
@click.option(
    "--audience",
    default=AUDIENCE,
    show_default=True,
    help="The audience of this service; a token that names an audience must name this one.",
)
@click.option(
    "--folder",
    default=FOLDER,
    show_default=True,
    help="The folder of the jobs; a later service finds them there.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen on; with 0, any free port.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="The address that callers use, such as that of a proxy. Default: that of each request.",
)
@click.option("--certificate", metavar="FILE", help="The certificate for https, with --key.")
@click.option("--key", metavar="FILE", help="The private key for https, with --certificate.")
@_most("--max-jobs", 1, "Jobs that run at a time.")
@_most("--max-queued", 1000, "Jobs that wait.", least=0)
@_most("--max-body-kb", MOST_BODY_KB, "The largest size of a request's body.")
@_most("--max-connections", MOST_CONNECTIONS, "Open connections of all callers.")
@_most(
    "--max-per-address",
    MOST_PER_ADDRESS,
    "Open connections of one address. All callers behind a proxy have one address.",
)
@click.option(
    "--requests-per-s",
    type=click.FloatRange(0, MOST_PER_S, min_open=True),
    callback=_no_nan,
    metavar="N",
    help="Requests a second of a token without a limit of its own. Default: no limit.",
)
@click.option(
    "--audit-log",
    metavar="FILE",
    help="The log of who started, canceled or resumed jobs, or read files. "
    "Default: audit.jsonl in --folder.",
)
@click.option(
    "--keep-days",
    type=click.IntRange(1),
    metavar="N",
    help="Remove jobs that ended more than N days ago. Default: keep all.",
)
@click.option(
    "--keep-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Keep the last N ended jobs, and remove older ones. Default: keep all.",
)
@click.option(
    "--drain",
    "drain_s",
    type=click.IntRange(0),
    default=DRAIN_S,
    show_default=True,
    metavar="SECONDS",
    help="Time for the requests that are in progress at SIGTERM.",
)
@repeated(
    "--run-as",
    form="USER",
    text="Run jobs as this user, a name or a number. Give one user for each of --max-jobs. "
    "Default: the user of the service.",
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
        from daskprs._serve.allowed_paths import Roots
        from daskprs._serve.deployment import Deployments
        from daskprs._serve.endpoint import Endpoint
        from daskprs._serve.job_queue import JobQueue
        from daskprs._serve.listening_socket import CallerLimits
        from daskprs._serve.own_files import startup_warnings
        from daskprs._serve.retention import Retention
        from daskprs._serve.server import Service
        from daskprs._serve.tokens import Tokens
        from daskprs._serve.web_input import WebHosts

        if bool(values["certificate"]) != bool(values["key"]):
            msg = "serve: --certificate and --key are given together."
            raise OptionError(msg)
        assets = assets_of(dict(values))
        inputs = Roots(pairs("--root", values["roots"], FORM), assets=assets)
        outputs = Roots(pairs("--output-root", values["output_roots"], FORM), "--output-root")
        known = _deployments(files, values, assets)
        users = _users(values)
        _refuse_reachable(known, users, inputs, outputs, values)
        named = [one.endpoint_name for one in known if one.endpoint_name]
        deployments = Deployments(known, values["default"], _percentages(values["traffic"]))
        name = values["name"] or (named or ["endpoint"])[0]
        tokens = Tokens.given(values["tokens"], values["audience"])
        hosts = WebHosts(values["input_hosts"], values["max_input_mb"] << 20)
        address = _address(values["public_url"])
        folder = Path(values["folder"]).absolute()
        queue = JobQueue(
            folder,
            values["max_jobs"],
            values["max_queued"],
            users=users,
            retention=Retention(values["keep_days"], values["keep_jobs"]),
        )
        service = Service(
            endpoint=Endpoint(name, deployments, inputs, outputs, queue, hosts, address),
            queue=queue,
            folder=folder,
            tokens=tokens,
            most_bytes=values["max_body_kb"] << 10,
            limits=CallerLimits(values["max_connections"], values["max_per_address"]),
            audit_log=Path(values["audit_log"]).absolute() if values["audit_log"] else None,
            **{option: values[option] for option in OF_SERVER},
        )
        warnings = [*startup_warnings(users, values["key"]), deployments.warning]
        for warning in filter(None, warnings):
            to_stderr(f"daskprs: warning: {warning}")
        with suppress(KeyboardInterrupt):  # the usual end
            service.run(echo_result)


def _users(values: dict[str, Any]) -> list[JobUser]:
    """Return the users as whom jobs run: enough of them, and each once."""
    from daskprs._serve.job_user import JobUser

    users = [JobUser.named(given) for given in values["run_as"]]
    if users and len({one.uid for one in users}) < max(len(users), values["max_jobs"]):
        msg = (
            f"--run-as {' '.join(values['run_as'])}: jobs that run at a time need a user each, so "
            f"that they cannot reach each other. Give {values['max_jobs']} different ones, or a "
            "lower --max-jobs."
        )
        raise OptionError(msg)
    if len({one.gid for one in users}) < len(users):
        msg = (
            f"--run-as {' '.join(values['run_as'])}: two of them have one primary group, by which "
            "their jobs could read each other's. Give each a group of its own."
        )
        raise OptionError(msg)
    return users


def _refuse_reachable(
    known: list[ServedDeployment],
    users: list[JobUser],
    inputs: Roots,
    outputs: Roots,
    values: dict[str, Any],
) -> None:
    """Refuse files of the service that callers, or the users of jobs, could read or change."""
    from daskprs._serve.own_files import OwnFiles

    secrets = [(f"--{one}", values[one.replace("-", "_")]) for one in SECRET_FILES]
    code = [(f"the file of {one.name}", path) for one in known for path in one.files]
    if values["assets"]:
        code.append(("--assets", Path(values["assets"])))
    own = OwnFiles(
        [(option, Path(path)) for option, path in secrets if path],
        code,
        Path(values["folder"]).absolute(),
    )
    own.refuse_in(inputs, outputs)
    for user in users:
        own.refuse_to(user, inputs, outputs)


def _percentages(words: tuple[str, ...]) -> dict[str, int]:
    form = "NAME=PERCENT"
    given = pairs("--traffic", words, form)
    if not all(re.fullmatch("[0-9]{1,3}", value) for value in given.values()):
        message = f"--traffic {' '.join(words)}: write {form}, with whole numbers"
        raise click.UsageError(message)
    return {name: int(value) for name, value in given.items()}


def _address(url: str | None) -> str | None:
    """Return the public address, without a slash at its end."""
    if url is not None and not re.fullmatch(r"https?://[^\s?#@]+", url):
        message = f"--public-url {url}: write https://HOST, with a path if the proxy has one"
        raise click.UsageError(message)
    return url and url.rstrip("/")


def _deployments(
    files: tuple[str, ...], values: dict[str, Any], assets: Assets
) -> list[ServedDeployment]:
    from daskprs._serve.deployment import served_deployment

    words = _forwarded(values)
    known = [served_deployment(file, assets.for_several_files(), words) for file in files]
    used = (environment for one in known for environment in one.environments)
    for option, problem in assets.unused_environments(used):
        msg = f"{option}: {problem}"
        raise OptionError(msg)
    for file, one in zip(files, known, strict=True):
        if one.without_effect:
            keys = ", ".join(one.without_effect)
            to_stderr(f"daskprs: {file}: without effect here: {keys}.")
    return known


def _forwarded(values: dict[str, Any]) -> list[str]:
    """Return the words that each job receives, with paths that hold in any working directory."""
    from daskprs.azure._assets import split_asset

    words = []
    for option in ("asset", "datastore"):
        for word in values[option]:
            name, path = split_asset(word) or (word, "")  # refused when it is looked at
            words += [f"--{option}", f"{name}={Path.cwd() / path}"]
    if values["assets"]:
        words += ["--assets", str(Path.cwd() / values["assets"])]
    if values["client"]:
        words += ["--client", check_client(values["client"])]
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
