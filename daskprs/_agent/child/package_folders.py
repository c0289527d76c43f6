"""The folders of packages on the path of a program, in an agent of its node or of another one.

A script by value names what it takes from such packages, so that the agent must find them.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.foreign.raised import links_of

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import ScriptSpec


def add_packages(script: ScriptSpec) -> None:
    """Put a script's folders of packages on `sys.path`, in the order that they have there."""
    known = {str(Path(one).resolve()) for one in sys.path}
    found = [one for one in script.packages if one.place not in known and Path(one.place).exists()]
    sys.path[:0] = [one.place for one in found if one.is_first]
    sys.path += [one.place for one in found if not one.is_first]


def hint_at_packages(error: BaseException, script: ScriptSpec) -> str:
    """Return how this node gets packages, if an import fails that may need them; else nothing."""
    lacking = [one.place for one in script.packages if not Path(one.place).exists()]
    if not lacking or not any(
        ImportError.__name__ in names.split() for names, *_ in links_of(error)
    ):
        return ""
    return (
        f"The program imports packages from {', '.join(lacking)}, which node {platform.node()} "
        "does not have. Install them there, or copy the folder there and name it in the PYTHONPATH "
        "of the workers"
    )
