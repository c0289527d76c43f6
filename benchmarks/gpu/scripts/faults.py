"""Entry script: one row breaks the context, or ends the process; or many rows need much memory.

`BENCH_FAULT` says which, and `BENCH_BAD` the row, or the number of rows that fit.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nets import DEVICE, package

if TYPE_CHECKING:
    import pandas as pd

FAULT, BAD = os.environ["BENCH_FAULT"], int(os.environ["BENCH_BAD"])
HELD_GB = int(os.environ["BENCH_HELD_GB"])
is_broken = False
known: Any = None
held: Any = None


def init() -> None:
    """Hold what the fault needs."""
    global known, held  # noqa: PLW0603 - scripts keep their model so
    if DEVICE == "cuda":
        torch = package("torch")
        known = torch.arange(10, device="cuda")
        if FAULT == "kill":
            held = torch.zeros(HELD_GB * 10**9, dtype=torch.uint8, device="cuda")


def run(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last digit of each number."""
    global is_broken  # noqa: PLW0603 - as a context that is lost
    numbers = rows["n"].to_numpy()
    has_bad = bool((numbers == BAD).any())
    if FAULT == "kill" and has_bad and _is_first():
        os.kill(os.getpid(), signal.SIGKILL)
    if DEVICE != "cuda":
        is_broken |= FAULT == "assert" and has_bad
        if is_broken:
            msg = "a stand-in for a device-side assert"
            raise RuntimeError(msg)
        if FAULT == "oom" and len(numbers) > BAD:
            raise MemoryError
        return rows.assign(digit=numbers % 10)
    torch = package("torch")
    if FAULT == "oom" and len(numbers) > BAD:
        torch.zeros(1 << 45, dtype=torch.uint8, device="cuda")
    asked = torch.as_tensor(numbers % 10, device="cuda")
    if FAULT == "assert" and has_bad:
        asked += 10**6
    return rows.assign(digit=known[asked].cpu().numpy())


def _is_first() -> bool:
    try:
        Path(os.environ["BENCH_FOLDER"], "killed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
