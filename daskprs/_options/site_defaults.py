"""Defaults of a site: what Dask's config says under ``daskprs:``, for options not given in a call.

The root of jobs is set there, too: the folder of job folders that a call does not name.

``daskprs.yaml`` beside this package holds the defaults of the table in the form of Dask's config.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from daskprs._folders.job_folder import ROOT, default_path
from daskprs._options.rules import check_root
from daskprs._options.run_options import BESIDE_OUTPUT, OF_TEXT, TABLE, RunOptions
from daskprs._suggest import did_you_mean
from daskprs._system.interrupts import held_back
from daskprs.errors import OptionError

SECTION = "daskprs"
DEFAULTS = Path(__file__).parents[1] / "daskprs.yaml"
SITE = tuple(name for name, row in TABLE.items() if row.is_site_default)
"""The options that may have a default in Dask's config."""
JOB_ROOT = "job_root"
"""The root of jobs, not an option of a call: a call names a job folder."""


def options_of_call(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a call: as given, else by Dask's config, else by the table."""
    defaults = site_defaults()
    apart: tuple[str, ...] = ()  # a site's lines of text contradict no call
    if given.get("output") is not None:
        apart = BESIDE_OUTPUT
    elif given.get("output_format", "text") != "text":
        apart = OF_TEXT
    if given.get("on_error") == "drop":  # allows all, whatever a site says
        apart = *apart, "allowed_failed_count"
    defaults = {name: value for name, value in defaults.items() if name not in apart}
    return RunOptions(**{**defaults, **given})


def default_job_dir(name: str, job_id: str) -> Path:
    """Return the job folder of a call that names none, in the root of jobs; see `default_path`."""
    return default_path(name, job_id, job_root())


def job_root() -> Path:
    """Return the folder of job folders, by Dask's config."""
    root: Path = _section()[JOB_ROOT]
    return root


def site_defaults() -> dict[str, Any]:
    """Return the defaults by Dask's config, by option.

    Raise `OptionError` for an unknown option, and for a value out of range; it names the place of
    the value.
    """
    section = _section()
    del section[JOB_ROOT]
    return section


def _section() -> dict[str, Any]:
    """Return the options and the root of jobs by Dask's config, checked, by name."""
    with held_back():
        import dask

    section = dask.config.get(SECTION, None) or {}
    if not isinstance(section, Mapping):
        msg = (
            f"{SECTION}={section!r}: Dask's config must have a mapping of options to values there. "
            f"The value is from {_place(SECTION, section)}."
        )
        raise OptionError(msg)
    _load_defaults()
    found = {key.replace("-", "_"): _checked(key, value) for key, value in section.items()}
    return {JOB_ROOT: Path(ROOT), **found}


@cache
def _load_defaults() -> None:
    """Give Dask's config the defaults of the table, once, as Dask's own packages do."""
    import dask
    import yaml

    dask.config.update_defaults(yaml.safe_load(DEFAULTS.read_text(encoding="utf-8")))


def _checked(key: str, value: Any) -> Any:
    """Return the value of an option in its standard form, or reject it with its place."""
    name = key.replace("-", "_")
    try:
        if name == JOB_ROOT:
            return check_root(name, value)
        if name not in TABLE:
            hint = did_you_mean(name, [*SITE, JOB_ROOT])
            msg = f"{name}: daskprs has no option of this name.{hint}"
            raise OptionError(msg)
        if name not in SITE:
            msg = f"{name}={value!r}: this belongs to one call. Give it there."
            raise OptionError(msg)
        return TABLE[name].rule(name, value)
    except OptionError as error:
        key = f"{SECTION}.{key}"
        msg = f"{error} The value is that of {key} in Dask's config, from {_place(key, value)}."
        raise OptionError(msg) from error


def _place(key: str, value: Any) -> str:
    """Return where Dask's config has a value from: the place that comes last counts."""
    from dask import config

    files = config.collect_yaml(config.paths, return_paths=True)
    places: list[tuple[str, dict[str, Any]]] = [(f"the file {path}", one) for path, one in files]
    places += [
        (f"the environment variable {name}", config.collect_env({name: text}))
        for name, text in os.environ.items()
        if name.startswith("DASK_")
    ]
    having = [one for one, found in places if config.get(key, ..., config=found) == value]
    return having[-1] if having else "dask.config.set in this process"
