"""A call of `parallel_run` in a process of its own, under limits of the system.

``python limited_call.py FOLDER PROCESSES STORY``: `STORY` is a script below. Prints how the call
ended, and exits with 0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 40
USER = 61_234
"""No process of this machine belongs to this user: the limit on processes counts ours alone."""
PATIENCE_S = 240
STORIES = {
    "returns": """
def run(paths):
    return paths
""",
}


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder that the other user can write, as its parents show it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def why_not() -> str:
    """Return why this machine cannot limit processes; empty where it can."""
    for program in ("prlimit", "setpriv"):
        if shutil.which(program) is None:
            return f"limits on processes need {program}"
    if os.getuid() != 0:
        return "limits on processes of another user need root"
    return ""


def call(folder: Path, processes: int, story: str, **limits: int) -> str:
    """Return what a call under limits printed.

    Parameters
    ----------
    folder
        For the job and its input.
    processes
        Agent processes.
    story
        Which script.
    **limits
        Options of prlimit: nproc for the other user, nofile for us.

    """
    words = (str(folder), str(processes), story)
    return run_limited(Path(__file__), *words, TMPDIR=str(folder), HOME=str(folder), **limits)


def run_limited(script: Path, *words: str, **limits: int | str) -> str:
    """Return what a Python script printed under limits; names in capitals are its environment."""
    variables = {name: str(value) for name, value in limits.items() if name.isupper()}
    as_user = []
    if "nproc" in limits:
        # The other user may read the interpreter, wherever that is, and everything else.
        kept = "+dac_override,+dac_read_search"
        as_user = ["setpriv", f"--reuid={USER}", "--clear-groups"]
        as_user += [f"--inh-caps={kept}", f"--ambient-caps={kept}"]
    given = [f"--{name}={value}" for name, value in limits.items() if name not in variables]
    done = subprocess.run(
        [*as_user, "prlimit", *given, sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main(folder: Path, processes: int, story: str) -> None:
    """Call `parallel_run`, and print how that ended."""
    import daskprs

    script = folder / "story.py"
    script.write_text(STORIES[story])
    inputs = folder / "inputs"
    inputs.mkdir()
    for number in range(ROWS):
        (inputs / f"{number:03d}.bin").touch()
    try:
        result = daskprs.parallel_run(
            str(inputs),
            script,
            mini_batch_size=1,
            process_count_per_node=processes,
            job_dir=folder / "job",
            progress=False,
        )
    except daskprs.DaskprsError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        names = [Path(path).name for path in result.to_pandas()["result"]]
        assert names == sorted(path.name for path in inputs.iterdir())
        print(result.status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
