"""Makes an environment for each peer: `python -m benchmarks.environments [peer ...]`.

One that cannot be made is not hidden: the end of what pip said becomes part of the results.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.peer_list import BY_NAME, PEERS, Peer

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGE_CHARACTERS = 300


def main(peers: Iterable[Peer]) -> None:
    """Make what is not there yet."""
    for peer in peers:
        if peer.environment is not None and not peer.ready.exists():
            print(f"an environment for {peer.name}: {', '.join(peer.requires)} ...", flush=True)
            make(peer)


def make(peer: Peer) -> None:
    """Make the environment of one peer, or write down why there is none."""
    shutil.rmtree(peer.home, ignore_errors=True)
    pip = [str(peer.python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    try:
        _run([sys.executable, "-m", "venv", str(peer.home)])
        _run([*pip, "install", *peer.requires])
    except subprocess.CalledProcessError as error:
        peer.home.mkdir(parents=True, exist_ok=True)
        peer.failure.write_text(f"not installed: {error.stderr.strip()[-MESSAGE_CHARACTERS:]}")
        print(f"  {peer.failure.read_text()}")
    else:
        peer.ready.touch()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    main([BY_NAME[name] for name in sys.argv[1:]] or PEERS)
