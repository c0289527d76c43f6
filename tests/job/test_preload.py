"""Packages that are imported once for all agents: which may be, and what becomes of the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import dask.dataframe as dd
import pandas as pd
import pytest

import daskprs
from daskprs._agent.protocol.messages import ProcessSpec
from daskprs._agent.script.checked_preload import check_preload
from daskprs._agent.supervision.zygote import Zygote
from daskprs._options.run_options import RunOptions
from daskprs.errors import AgentError, OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGES = {
    "standin_plain": "import os\npid = os.getpid()\n",
    "standin_thread": """
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    """,
    "standin_pool": """
        import os, threading
        over = threading.Event()
        thread = threading.Thread(target=over.wait, daemon=True)
        thread.start()
        os.register_at_fork(before=lambda: over.set() or thread.join())
    """,
    "standin_device": "import os\ndevice = os.open('/dev/ptmx', os.O_RDWR)\n",
    "standin_file": "file = open(__file__)\n",
    "standin_socket": "import socket\nbound = socket.socket()\n",
    "standin_process": """
        import os, signal
        os.environ["STANDIN"] = "changed"
        child = os.fork()
        while child == 0:
            signal.pause()
    """,
    "standin_broken": "raise RuntimeError('no licence')\n",
    "standin_late": "import threading\nthreading.Event().wait()\n",
    "standin_stubborn": """
        import threading
        try:
            threading.Event().wait()
        except Exception:
            pass
    """,
}
SCRIPT = """
    import os, sys

    before = sorted(name for name in sys.modules if name.startswith("standin_"))
    import standin_plain

    def run(rows):
        once = standin_plain.pid == os.getppid()
        return rows.assign(before=",".join(before), once=once, set=os.environ.get("STANDIN", ""))
"""
ROWS = pd.DataFrame({"n": range(2)})


def as_it_is(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows."""
    return rows


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install packages into a folder that agents find, too."""
    import textwrap

    folder = tmp_path / "packages"
    about = folder / "standins-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: standins\nVersion: 1.0\n")
    for name, text in PACKAGES.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "script.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in PACKAGES:
        assert name not in sys.modules


@pytest.mark.cold
@pytest.mark.usefixtures("packages")
def test_packages_are_imported_once_but_those_that_no_fork_can_use(tmp_path: Path) -> None:
    """These are named, and nothing of their import is left in the process that forks."""
    result = daskprs.parallel_run(
        ROWS,
        tmp_path / "code" / "script.py",
        job_dir=tmp_path / "job",
        mini_batch_size="1 row",
        process_count_per_node=2,
        preload=["standin_process", "standin_plain"],
    )
    rows = result.to_pandas()
    assert {*rows["before"]} == {"standin_plain"}
    assert rows["once"].all()
    assert {*rows["set"]} == {""}
    log = (result.logs_dir / "sys" / "master_role.txt").read_text()
    told = "preload: each process imports standin_process (it starts a process), since no fork"
    assert log.count(told) == 1


IMPORTS = """
import os, signal, sys
from daskprs._agent.supervision import preload
from daskprs._agent.supervision.preload import KeptOutError, PreloadError, import_once
from daskprs._system.linux import children

for name in sys.argv[1:]:
    preload.IMPORT_TIMEOUT_S = 2.0 if name in ("standin_late", "standin_stubborn") else 60.0
    try:
        import_once([name])
        print(name)
    except (KeptOutError, PreloadError) as error:
        print(*error.args, sep=": ")
for pid in children(os.getpid()):
    os.kill(pid, signal.SIGKILL)
"""


def test_what_no_fork_can_use_is_seen_after_each_import(packages: Path) -> None:
    """Threads that end before a fork, as those of OpenBLAS, are no reason; no import hangs."""
    is_open = os.access("/dev/ptmx", os.R_OK | os.W_OK)
    names = [name for name in PACKAGES if is_open or name != "standin_device"]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *names], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    device = os.path.realpath("/dev/ptmx")
    kept = f": it keeps {packages / 'standin_file.py'} open"
    if packages.is_relative_to("/dev/shm"):  # noqa: S108 - a file there may be shared memory
        kept = ""
    told = [
        "standin_plain",
        "standin_thread: it starts a thread",
        "standin_pool",
        f"standin_device: it opens {device}",
        f"standin_file{kept}",
        "standin_socket: it keeps a socket open",
        "standin_process: it starts a process",
        "standin_broken cannot be imported: RuntimeError: no licence",
        "standin_late: its import takes longer than 2 s",
        "standin_stubborn: its import takes longer than 2 s",
    ]
    assert done.stdout.splitlines() == [one for one in told if is_open or device not in one]


@pytest.mark.usefixtures("packages")
def test_a_package_that_cannot_be_imported_fails_the_job_in_words(tmp_path: Path) -> None:
    """As one does that only some workers have."""
    with pytest.raises(daskprs.ParallelRunFailed) as raised:
        daskprs.parallel_run(
            ROWS,
            tmp_path / "code" / "script.py",
            job_dir=tmp_path / "job",
            preload=["standin_broken"],
        )
    why = "preload: standin_broken cannot be imported: RuntimeError: no licence. Install it on"
    assert why in str(raised.value)


@pytest.mark.cold
def test_a_package_whose_import_crashes_is_shown_in_stderr(
    packages: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As native code does that was built for another processor; the error names the option."""
    (packages / "standin_crash.py").write_text("import ctypes\nctypes.string_at(0)\n")
    zygote = Zygote(os.environ, "fork", ("standin_crash",))
    logs = str(tmp_path / "log")
    try:
        with pytest.raises(AgentError, match=r"code -11.*; preload=\['standin_crash'\], env"):
            zygote.start_agent(
                ProcessSpec("process000", 0, str(tmp_path / "cwd"), logs, logs, logs, None, {})
            )
    finally:
        zygote.close()
    assert f'"{packages / "standin_crash.py"}", line 2' in capfd.readouterr().err


@pytest.mark.cold
@pytest.mark.usefixtures("packages")
def test_a_zygote_that_imports_is_closed_at_once() -> None:
    """Ctrl-C does not wait for a package."""
    zygote = Zygote(os.environ, "fork", ("standin_late",))
    began = time.monotonic()
    zygote.close()
    assert time.monotonic() - began < 4


def test_only_installed_packages_are_imported_once(packages: Path, tmp_path: Path) -> None:
    """No code of the user runs in the process that agents are forked from."""
    check_preload(["standin_plain", "xml.etree", "pandas", "sys"], tmp_path / "code")
    (tmp_path / "code" / "pandas.py").touch()
    (tmp_path / "code" / "helpers").mkdir()
    (tmp_path / "code" / "helpers" / "__init__.py").touch()
    for name, place in (("pandas", "pandas.py"), ("helpers.of_rows", "helpers/__init__.py")):
        with pytest.raises(OptionError, match=f"is {tmp_path / 'code' / place}, and no installed"):
            check_preload([name], tmp_path / "code", elsewhere=True)
    (packages / "standins-1.0.dist-info" / "METADATA").unlink()
    with pytest.raises(OptionError, match=r"standin_plain\.py, and no installed package"):
        check_preload(["standin_plain"])


def test_a_package_that_is_absent_is_refused_with_the_nearest_name() -> None:
    """But workers of a cluster may have packages that are absent here."""
    with pytest.raises(OptionError, match=r"no package 'panda' is .* Did you mean pandas\?"):
        check_preload(["panda"])
    check_preload(["panda"], elsewhere=True)


@pytest.mark.usefixtures("packages")
def test_the_call_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """By the rule of the option, and by what is found."""
    with pytest.raises(UsageError, match="no package 'standin_plane' is installed here"):
        daskprs.parallel_run(ROWS, tmp_path / "code" / "script.py", preload="standin_plane")
    with pytest.raises(UsageError, match=r"script\.py, and no installed package"):
        daskprs.parallel_run(ROWS, tmp_path / "code" / "script.py", preload=["script"])
    for committed in (True, False):
        with pytest.raises(UsageError, match=r"script\.py, and no installed package"):
            daskprs.map_batches(
                dd.from_pandas(ROWS, npartitions=1),
                tmp_path / "code" / "script.py",
                schema={"n": "int64"},
                committed=committed,
                preload=["script"],
            )


@pytest.mark.parametrize(
    ("options", "once"),
    [({}, ("json",)), ({"start_method": "spawn"}, ()), ({"python": sys.executable}, ())],
)
def test_only_forks_share_an_import(options: dict[str, str], once: tuple[str, ...]) -> None:
    """A fresh interpreter does all imports itself."""
    assert RunOptions(preload=["json"], **options).imported_once == once  # type: ignore[arg-type]


@pytest.mark.parametrize("start_method", ["spawn", "inline"])
def test_an_option_without_effect_is_named(
    start_method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job runs as it would without it."""
    daskprs.parallel_run(
        ROWS, as_it_is, preload=["json"], start_method=start_method, job_dir=tmp_path
    )
    told = capsys.readouterr().err
    assert ("preload has no effect here" in told) or ("Without effect: preload" in told)
