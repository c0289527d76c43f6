"""What is in `deploy/` fits together, and as far as this machine can, it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed.security import Security
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from daskprs._cli import main
from daskprs._core.ending import EXIT_FAILED
from tests.support.polling import poll_for

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
    assert f"--client=tls://{cluster['metadata']['name']}-scheduler:{port}" in command


def test_caller_and_workers_on_kubernetes_see_the_same_volume() -> None:
    """The job folder and the input are found under the same path."""
    worker = loaded("cluster.yaml")["spec"]["worker"]["spec"]
    caller = loaded("job.yaml")["spec"]["template"]["spec"]
    for part in ("volumes", "containers"):
        assert part in worker
    assert worker["volumes"] == caller["volumes"]
    mounted = [pod["containers"][0]["volumeMounts"] for pod in (worker, caller)]
    assert mounted[0] == mounted[1]


def test_all_pods_on_kubernetes_speak_tls_and_are_let_in() -> None:
    """They mount what Dask's settings name, and have the labels that the policies ask for."""
    settings, *policies = yaml.safe_load_all((DEPLOY / "kubernetes" / "security.yaml").read_text())
    cluster, job = loaded("cluster.yaml"), loaded("job.yaml")
    caller = job["spec"]["template"]
    pods = [cluster["spec"][part]["spec"] for part in ("worker", "scheduler")] + [caller["spec"]]
    (config,) = map(yaml.safe_load, settings["data"].values())
    tls = config["distributed"]["comm"]["tls"]
    named = {tls.pop("ca-file")} | {path for one in tls.values() for path in one.values()}
    for pod in pods:
        (container,) = pod["containers"]
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert {Path(path).parent for path in named} == {Path(mounted["certificates"])}
        assert mounted["dask"] == "/etc/dask"  # where Dask looks by itself
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert volumes["dask"]["configMap"]["name"] == settings["metadata"]["name"]
        assert not pod["automountServiceAccountToken"]
    scheduler, *_ = policies
    ours = {"dask.org/cluster-name": cluster["metadata"]["name"]}, caller["metadata"]["labels"]
    let_in = [one["podSelector"]["matchLabels"] for one in scheduler["spec"]["ingress"][0]["from"]]
    assert let_in == list(ours)
    port = cluster["spec"]["scheduler"]["service"]["ports"][0]["port"]
    assert scheduler["spec"]["ingress"][0]["ports"][0]["port"] == port
    assert (
        f"tls://{ours[0]['dask.org/cluster-name']}-scheduler:{port}"
        in (cluster["spec"]["worker"]["spec"]["containers"][0]["args"])
    )


@pytest.mark.long
def test_the_settings_of_kubernetes_make_a_cluster_that_only_they_reach(tmp_path: Path) -> None:
    """With the arguments of its pods, and a certificate; without one, the reason is named."""
    settings, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "security.yaml").read_text())
    spec = loaded("cluster.yaml")["spec"]
    temporary = Security.temporary()
    (tmp_path / "config").mkdir()
    for name, text in settings["data"].items():
        (tmp_path / "config" / name).write_text(text.replace("/certificates", str(tmp_path)))
    (tmp_path / "ca.crt").write_text(temporary.tls_ca_file)
    (tmp_path / "tls.crt").write_text(temporary.tls_client_cert)
    (tmp_path / "tls.key").write_text(temporary.tls_client_key)
    (tmp_path / "double.py").write_text("def run(rows):\n    return rows * 2\n")
    (tmp_path / "numbers.csv").write_text("n\n1\n2\n")
    operator = {"DASK_WORKER_NAME": "one", "DASK_SCHEDULER_ADDRESS": "tcp://127.0.0.1:9"}
    ours = os.environ | operator | {"DASK_CONFIG": str(tmp_path / "config")}
    programs = []

    def started(part: str, scheduler: str) -> None:
        _, *words = spec[part]["spec"]["containers"][0]["args"]
        words = [re.sub(r"\$\((\w+)\)", lambda name: operator[name[1]], one) for one in words]
        words = [re.sub("tls://.*", scheduler, one) for one in words]
        if part == "scheduler":
            words += ["--port", "0", "--no-dashboard", "--scheduler-file", str(tmp_path / "at")]
        command = [str(Path(sys.executable).with_name("dask")), *words]
        programs.append(subprocess.Popen(command, env=ours, cwd=tmp_path))

    def called(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        words = ["-m", "daskprs", "run", "double.py", "numbers.csv", f"--client={address}"]
        return subprocess.run(
            [sys.executable, *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        started("scheduler", "")
        assert poll_for(lambda: (tmp_path / "at").exists() and (tmp_path / "at").stat().st_size)
        address = yaml.safe_load((tmp_path / "at").read_text())["address"]
        started("worker", address)
        done = called(ours)
        assert done.returncode == 0, done.stderr
        stranger = called(dict(os.environ))
        assert stranger.returncode == 2
        assert "distributed.comm.tls.ca-file" in stranger.stderr
    finally:
        for one in reversed(programs):
            one.terminate()
            one.wait()


def test_kubernetes_gives_up_a_job_that_has_failed_alone() -> None:
    """A caller that is refused may only be early: the scheduler comes up beside it."""
    rules = loaded("job.yaml")["spec"]["podFailurePolicy"]["rules"]
    assert [rule["onExitCodes"]["values"] for rule in rules] == [[EXIT_FAILED]]


def test_the_image_names_its_user_as_kubernetes_can_judge_it() -> None:
    """By a number: with a name, a pod with ``runAsNonRoot`` does not start."""
    users = re.findall("^USER (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert [int(user) > 0 for user in users] == [True]


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
    for name in ("daskprs", "pyproject.toml", "locks/image.txt", *needed):
        assert f"!{name}\n" in let_through


def test_the_base_of_the_image_is_named_by_its_digest() -> None:
    """A tag may be another image tomorrow."""
    bases = re.findall("^FROM (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base) for base in bases)


@pytest.mark.parametrize(("lock", "groups"), [("development", ["dev"]), ("image", ["build"])])
def test_a_lock_has_all_that_the_project_asks_for(lock: str, groups: list[str]) -> None:
    """In a version that it allows, with its hashes; another one means `make lock` is due."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text())
    asked = [Requirement(one) for one in project["project"]["dependencies"]]
    while groups:
        for one in project["dependency-groups"][groups.pop()]:
            if isinstance(one, dict):
                groups = [*groups, one["include-group"]]
            else:
                asked.append(Requirement(one))
    text = (HOME / "locks" / f"{lock}.txt").read_text().replace("\\\n", " ")
    pins = [line.split("--hash=sha256:") for line in text.splitlines() if re.match(r"\w", line)]
    assert all(len(hashes) > 0 for _, *hashes in pins)
    locked: dict[str, list[str]] = {}
    for pin, *_ in pins:
        one = Requirement(pin)
        locked.setdefault(canonicalize_name(one.name), []).append(str(one.specifier)[2:])
    for one in asked:
        versions = locked[canonicalize_name(one.name)]
        assert all(one.specifier.contains(version) for version in versions), f"{one}: make lock"


@pytest.mark.long
@pytest.mark.parametrize("system", ["slurm", "pbs"])
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
