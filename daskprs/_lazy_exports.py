"""Public names that are imported on first access, so that importing a package is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_exports(
    package: str,
    names_by_module: Mapping[str, str],
    namespace: dict[str, Any],
    otherwise: Callable[[str], Any] = lambda _: None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    `names_by_module` has its public names, with spaces between them, by their modules, which are
    relative to the package; imported names are added to `namespace`. For any other name,
    `otherwise` refuses it, or returns its value; None: there is none.
    """
    homes = {name: home for home, names in names_by_module.items() for name in names.split()}

    def find(name: str) -> Any:
        home = homes.get(name)
        value = getattr(importlib.import_module(home, package), name) if home else otherwise(name)
        if home is None and value is None:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        namespace[name] = value
        return value

    def names() -> list[str]:
        dunders = (name for name in namespace if name.startswith("__"))
        return sorted({*homes, *namespace.get("__all__", ()), *dunders})

    return find, names
