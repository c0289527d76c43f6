"""``daskprs.yaml`` and its schema: the options that Dask's config may set, from the table.

``python -m tests.support.config_files`` writes both anew, and the names in the documentation.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import yaml

from daskprs._cli.options import DESCRIPTIONS
from daskprs._folders.job_folder import ROOT
from daskprs._options.run_options import GROUPS, TABLE, OptionRow
from daskprs._options.site_defaults import DEFAULTS, JOB_ROOT, SECTION, SITE
from daskprs._options.time_rules import LONGEST_S
from tests.support.filled_page import filled

SCHEMA = DEFAULTS.with_name("daskprs-schema.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dask.md"
JSON_TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Mapping: "object",
    Sequence: "array",
    NoneType: "null",
}
ROOT_TEXT = "The folder of the job folders that no call names; ~ and $VARIABLES are resolved.\n"
LEAST = (-1, 0, 1)
MOST = (100, LONGEST_S)


def key_of(name: str) -> str:
    """Return the key of an option in Dask's config."""
    return name.replace("_", "-")


def groups() -> list[tuple[str, list[str]]]:
    """Return the options that the config may set, by group."""
    found = [(group, [name for name in SITE if TABLE[name].group == group]) for group in GROUPS]
    return [(group, names) for group, names in found if names]


def defaults() -> str:
    """Return the text of ``daskprs.yaml``: each default, in words where it is null."""
    lines = [f"{SECTION}:"]
    for group, names in groups():
        lines.append(f"  # {group}")
        for name in names:
            value, words = TABLE[name].default, DESCRIPTIONS[name][1].replace("`", "")
            shown = yaml.safe_dump({key_of(name): value}).strip()
            lines.append(f"  {shown}" + (f"  # {words}" if words and value is None else ""))
    lines.append(
        f"  {key_of(JOB_ROOT)}: {ROOT}  # the folder of the job folders that no call names"
    )
    return "\n".join(lines) + "\n"


def schema() -> str:
    """Return the text of the JSON schema of ``daskprs.yaml``."""
    options = {key_of(name): _schema_of(name) for name in SITE}
    options[key_of(JOB_ROOT)] = {"type": "string", "description": ROOT_TEXT}
    inside = {"type": "object", "additionalProperties": False, "properties": options}
    whole = {"type": "object", "properties": {SECTION: inside}}
    return yaml.dump(whole, Dumper=_Dumper, sort_keys=False, width=100)


def _schema_of(name: str) -> dict[str, Any]:
    row, text = TABLE[name], DESCRIPTIONS[name][0]
    literals = [one for kind in row.types if get_origin(kind) is Literal for one in get_args(kind)]
    types = [JSON_TYPES.get(get_origin(kind) or kind, "string") for kind in row.types]
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    if literals:
        found["enum"] = literals
    elif "integer" in types or "number" in types:
        found |= _bounds(name, row)
    elif "array" in types:
        found["items"] = {"type": "string"}
    elif "object" in types:
        found["additionalProperties"] = {"type": "string"}
    return found | {"description": textwrap.fill(text, 90) + "\n"}


def _bounds(name: str, row: OptionRow) -> dict[str, Any]:
    """Return the limits of a number, by asking the rule of the option."""
    least = next(number for number in LEAST if _takes(name, number))
    above_0 = float in row.types and least == 1
    found: dict[str, Any] = {"exclusiveMinimum": 0} if above_0 else {"minimum": least}
    for most in MOST:
        if _takes(name, most) and not _takes(name, most + 1):
            found["maximum"] = most
    return found


def _takes(name: str, value: float) -> bool:
    try:
        TABLE[name].rule(name, value)
    except ValueError:
        return False
    return True


class _Dumper(yaml.SafeDumper):
    """Writes long text as a block."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def page(text: str) -> str:
    """Return a page with the names of the options as they ought to be."""
    lines = [
        f"- {group}: " + ", ".join(f"`{key_of(name)}`" for name in names)
        for group, names in groups()
    ]
    return filled(text, {"options of the config": "\n".join(lines)})


if __name__ == "__main__":
    DEFAULTS.write_text(defaults())
    SCHEMA.write_text(schema())
    PAGE.write_text(page(PAGE.read_text()))
