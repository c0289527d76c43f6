"""The entry script's process, as the agent describes it, under the Python of daskprs or another."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs._agent.foreign import stand_ins
    from daskprs._agent.foreign.entry_script import EntryScript, masked_here
else:
    # Under another Python, this is the package that the agent has started there; an installed
    # daskprs, maybe of another version, knows nothing of the process.
    _HOME = "daskprs_script" if "daskprs_script" in sys.modules else "daskprs._agent.foreign"
    stand_ins = importlib.import_module(f"{_HOME}.stand_ins")
    EntryScript = importlib.import_module(f"{_HOME}.entry_script").EntryScript
    masked_here = importlib.import_module(f"{_HOME}.entry_script").masked_here

__all__ = ["EntryScript", "masked_here", "stand_ins"]
