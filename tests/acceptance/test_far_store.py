"""Nodes that share nothing with the driver but a store of objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.object_store import KEYS, ObjectStore, server_command
from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not

SCRIPT = """
from daskprs import EntryScript
import fsspec

def run(rows, context):
    url = f"{EntryScript().output_dir}/{context.minibatch_index}.txt"
    with fsspec.open(url, "w") as file:
        file.write(str(rows["n"].sum()))
    return [len(rows)]
"""


@pytest.mark.long
def test_a_store_of_objects_is_seen_by_all(tmp_path: Path) -> None:
    """Nodes read their part of the input from it, and the script writes files of its own there."""
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "script.py").write_text(SCRIPT)
    with (
        separate_nodes(tmp_path / "log", [tmp_path], count=2) as nodes,
        (tmp_path / "store.log").open("wb") as log,
    ):
        host = nodes.address.removeprefix("tcp://").partition(":")[0]
        nodes.hub.start(*server_command(host, 5000), log=log)
        store = ObjectStore(f"http://{host}:5000")
        assert poll_for(store.is_up, 60)
        store.put("numbers")
        for number in range(4):
            store.put(f"numbers/in/{number}.csv", b"n\n%d\n%d\n" % (number, number))
        variables = [
            word for one in store.environment.items() for word in ("-e", f"{one[0]}={one[1]}")
        ]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "daskprs", "run", "script.py", "s3://numbers/in"),
                *("--client", nodes.address, "--output-action", "summary_only", "--quiet"),
                *("--output-dir", "s3://numbers/out", "--job-dir", "job", *variables),
            ],
            env={
                **os.environ,
                **KEYS,
                **store.environment,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert {name: store.get(f"numbers/{name}") for name in store.names("numbers")[4:]} == {
            f"out/{number}.txt": str(2 * number).encode() for number in range(4)
        }
