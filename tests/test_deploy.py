"""What is in `deploy/` fits together, and as far as this machine can, it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from daskprs.cli import main

HOME = Path(__file__).parents[1]
DEPLOY = HOME / "deploy"
SUBMIT = {
    # What submits prints the number of the job, and what cancels is given it.
    "slurm": ("sbatch", "scancel", "Submitted batch job $!"),
    "pbs": ("qsub", "qdel", "$!.batch-server"),
}
BATCH_SYSTEM = """#!/usr/bin/env bash
set -m
cp "$1" "{log}.$$"  # what is submitted may be removed at once
bash "{log}.$$" > "{log}" 2>&1 &
echo "{told}"
"""
CANCEL = """#!/usr/bin/env bash
for job in "$@"; do kill -- "-${job%%.*}" 2> /dev/null; done
true
"""


def loaded(name: str) -> dict[str, Any]:
    """Return one of the Kubernetes files."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())
    return read


def test_the_caller_on_kubernetes_finds_its_scheduler() -> None:
    """The operator calls the service as the cluster, with ``-scheduler`` behind it."""
    cluster, job = loaded("cluster.yaml"), loaded("job.yaml")
    port = cluster["spec"]["scheduler"]["service"]["ports"][0]["port"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert f"--client=tcp://{cluster['metadata']['name']}-scheduler:{port}" in command


def test_caller_and_workers_on_kubernetes_see_the_same_volume() -> None:
    """The job folder and the input are found under the same path."""
    worker = loaded("cluster.yaml")["spec"]["worker"]["spec"]
    caller = loaded("job.yaml")["spec"]["template"]["spec"]
    for part in ("volumes", "containers"):
        assert part in worker
    assert worker["volumes"] == caller["volumes"]
    mounted = [pod["containers"][0]["volumeMounts"] for pod in (worker, caller)]
    assert mounted[0] == mounted[1]


def test_the_command_of_the_kubernetes_job_is_one() -> None:
    """Every option that it uses is there; only its input is not."""
    command = loaded("job.yaml")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[0] == "daskprs"
    with pytest.raises(SystemExit) as ended:
        main(command[1:])
    assert ended.value.code == 2


def test_the_image_installs_what_the_project_installs() -> None:
    """All that the build needs is let through by the ignore file."""
    let_through = (DEPLOY / "Dockerfile.dockerignore").read_text()
    needed = re.findall(r'"(README\.md|LICENSE)"', (HOME / "pyproject.toml").read_text())
    for name in ("daskprs", "pyproject.toml", *needed):
        assert f"!{name}\n" in let_through


@pytest.mark.parametrize("system", ["slurm", pytest.param("pbs", marks=pytest.mark.long)])
def test_the_batch_example_runs_where_a_batch_system_does(tmp_path: Path, system: str) -> None:
    """With one that starts its jobs on this machine; called again, it finds all done."""
    submit, cancel, told = SUBMIT[system]
    for name, text in {
        submit: BATCH_SYSTEM.format(log=tmp_path / "batch.log", told=told),
        cancel: CANCEL,
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    make = [sys.executable, str(HOME / "examples" / "digits" / "make_data.py"), str(tmp_path)]
    subprocess.run(make, check=True, capture_output=True)
    paths = [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": str(HOME),
    }
    for _ in range(2):
        done = subprocess.run(
            [str(DEPLOY / "hpc" / "caller.sh"), system, str(tmp_path)],
            cwd=HOME,
            env=environment,
            timeout=150,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + (tmp_path / "batch.log").read_text()
        assert "Completed" in done.stdout
    assert len((tmp_path / "output" / "parallel_run_step.txt").read_text().splitlines()) == 899
