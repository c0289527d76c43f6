"""The stand-ins of plugins, as they travel with a job."""

from __future__ import annotations

import importlib.util
import pkgutil

from daskprs import _plugins
from daskprs._agent.protocol.messages import PluginStandIns

HERE = "here"
"""The module for the Python of daskprs, which needs no source to travel."""


def plugin_stand_ins(*, elsewhere: bool) -> tuple[PluginStandIns, ...]:
    """Return the stand-ins of all plugins, with their source for an interpreter `elsewhere`."""
    return tuple(
        PluginStandIns(package, modules, _sources(package) if elsewhere else {})
        for package, modules in _plugins.own_names("stand_ins").items()
    )


def _sources(package: str) -> dict[str, str]:
    """Return the source of a package and its modules, by name."""
    places = _plugins.loaded(package).__path__
    names = [one.name for one in pkgutil.iter_modules(places) if one.name != HERE]
    return {"": _source(package), **{name: _source(f"{package}.{name}") for name in names}}


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    source = None if spec is None or spec.loader is None else spec.loader.get_source(module)  # type: ignore[attr-defined]
    if source is None:
        msg = f"{module} is installed without its source, which another interpreter needs"
        raise ImportError(msg)
    return str(source)
