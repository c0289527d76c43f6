"""Play cells of the table, one after the other: ``cells.py FOLDER CELL …``.

A cell is ``agent killed | run | append_row | frame | 1``; ``agent killed`` alone is its whole row.
Prints a line for each, and exits with 1 when one is wrong.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from caller import FAR_STAGES
from cell import CUT_OFF, Cell, Wrong, play, table

from tests.support.cut_cluster import CutCluster
from tests.support.hand_cluster import HandCluster

DISK = "32m"
GROUPS = (("--resources", "GPU=1"), ("--host", "127.0.0.2"))
"""The options of two workers: each is a node, and one of them has a GPU."""
SEEN_BY_NODES = "/var/tmp"  # noqa: S108 - a folder of its own is made there
"""The folder of temporary files is not."""


def main(base: Path, told: list[str]) -> int:
    """Play them all, those of each kind on one cluster, which is mended after each."""
    cells = [
        cell for one in told for cell in ([Cell.of(one)] if "|" in one else table(one, seed=1))
    ]
    by_hand = [cell for cell in cells if cell.strike != CUT_OFF and cell.data != FAR_STAGES]
    in_groups = [cell for cell in cells if cell.data == FAR_STAGES]
    cut_off = [cell for cell in cells if cell.strike == CUT_OFF]
    wrong = 0
    if by_hand:
        with HandCluster(base / "cluster") as cluster:
            wrong += play_all(by_hand, cluster, base)
    if in_groups:
        with HandCluster(base / "groups", options=GROUPS) as cluster:
            wrong += play_all(in_groups, cluster, base / "far")
    if cut_off:
        with (
            CutCluster(base / "nodes") as cluster_of_nodes,
            TemporaryDirectory(prefix="daskprs-chaos-", dir=SEEN_BY_NODES) as seen,
        ):
            wrong += play_all(cut_off, cluster_of_nodes, Path(seen))
    print(f"{len(cells)} cells, {wrong} wrong")
    return min(wrong, 1)


def play_all(cells: list[Cell], cluster: HandCluster | CutCluster, base: Path) -> int:
    """Play cells, and return how many were wrong."""
    wrong = 0
    for number, cell in enumerate(cells):
        folder = base / str(number)
        begun = time.monotonic()
        cluster.mend()
        try:
            play(cell, cluster, folder, disk_for(cell, folder))
        except Wrong as error:
            wrong += 1
            print(f"WRONG  {cell}\n{error}", flush=True)
        else:
            print(f"right  {cell}  ({time.monotonic() - begun:.1f} s)", flush=True)
            unmount(cell, folder)
            shutil.rmtree(folder)
    return wrong


def disk_for(cell: Cell, folder: Path) -> Path:
    """Return where the job folder is to be: for a full disk, on one that can be filled."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    if cell.strike == "disk full":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)]
        subprocess.run(mount, check=True)
    return disk


def unmount(cell: Cell, folder: Path) -> None:
    """Take the disk away again."""
    if cell.strike == "disk full":
        subprocess.run(["umount", str(folder / "disk")], check=True)  # noqa: S607


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
