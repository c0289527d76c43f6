"""What an invocation changes in a deployment, by dotted keys: ``retry_settings.timeout=60``."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from daskprs.azure.deployments.form import DeploymentSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANCE_COUNT = "instance_count"
HOLDERS_OF_COUNT = ("resources", "settings", "compute")
SETTINGS = "settings"


def changed(content: Any, changes: Mapping[str, Any]) -> Any:
    """Return the content of a file with changes; both forms take both ways to name a setting.

    Parameters
    ----------
    content
        The content of the file, which stays unchanged.
    changes
        Values by dotted key.

    """
    if not isinstance(content, dict) or not changes:
        return content
    content = copy.deepcopy(content)
    for key, value in changes.items():
        way = key.split(".")
        if way[-1] == INSTANCE_COUNT and way[:-1] in ([], *([one] for one in HOLDERS_OF_COUNT)):
            _forget_counts(content)
            way = ["resources", INSTANCE_COUNT]
        elif way[0] == SETTINGS and len(way) > 1 and way[1] in content:
            way = way[1:]
        elif way[0] in DeploymentSettings.model_fields and way[0] not in content:
            way = [SETTINGS, *way]
        _put(content, way, value)
    return content


def _forget_counts(content: dict[str, Any]) -> None:
    content.pop(INSTANCE_COUNT, None)
    for name in HOLDERS_OF_COUNT:
        holder = content.get(name)
        if isinstance(holder, dict):
            holder.pop(INSTANCE_COUNT, None)


def _put(content: dict[str, Any], way: list[str], value: Any) -> None:
    *above, last = way
    for name in above:
        inner = content.get(name)
        if not isinstance(inner, dict):
            inner = content[name] = {}
        content = inner
    content[last] = value
