"""What runs under other interpreters: its syntax, each version at hand, and its start."""

from __future__ import annotations

import ast
import faulthandler
import os
import pstats
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from daskprs._agent.child.foreign_script import ForeignScript
from daskprs._agent.foreign.main import BOOT, FOLDER, OLDEST, MessagePipes
from daskprs._agent.foreign.values import dumped, loaded
from daskprs._agent.protocol.messages import JobSpec, PluginStandIns, ProcessSpec, ScriptSpec
from daskprs._agent.script.checked_interpreter import check_interpreter
from daskprs._agent.script.checked_script import check_script
from daskprs._core.mini_batch import MiniBatch
from daskprs._options.run_options import RunOptions
from daskprs._system.interpreter import environment_of
from daskprs._system.linux import DUMP_SIGNAL
from daskprs.errors import AgentError, OptionError

MODULES = sorted(Path(FOLDER).glob("*.py"))
VERSIONS = [*((3, minor) for minor in range(8, 16)), "pypy"]
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")


def interpreter_of(version: Any) -> str | None:
    """Return an interpreter of a version: of Debian, or of pyenv, whose shims are none."""
    name = "pypy3" if version == "pypy" else "python" + ".".join(map(str, version))
    places = [Path("/usr/bin", name), Path("/usr/local/bin", name), *PYENV.glob(f"*/bin/{name}")]
    return next((str(place) for place in places if place.exists()), None)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_the_source_is_that_of_the_oldest_python(module: Path) -> None:
    """And it imports nothing of daskprs."""
    tree = ast.parse(module.read_text(), feature_version=OLDEST)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level or not str(node.module).startswith("daskprs")
    ast.parse(BOOT, feature_version=(3, 4))


def converse(pipes: MessagePipes, script: Path) -> None:
    """Make every request, and compare the replies."""

    def ask(*request: Any) -> Any:
        pipes.send(dumped(request))
        return loaded(pipes.receive())[:2]

    says = loaded(pipes.receive())[2]
    given = {"name": "script.py", "arguments": [], "level": "INFO", "secrets": []}
    given |= {"folder": str(script.parent), "module": None, "file": str(script)}
    given |= {"any_second": False, "stand_ins": []}
    places = {"log_file": str(script.with_name("log")), "output_dir": "out", "working_dir": "."}
    profile = script.with_name("profile")
    given["profile"] = {"module": "cProfile", "file": str(profile), "only_at_end": True}
    given["process"] = {**places, "name": "process000", "side_inputs": {}, "level": "INFO"}
    assert ask("load", given) == ("value", True)
    context = 0, {}, None, ("label", "identity", None), None
    word, (kind, message, text, _) = ask("run", "bad", context)
    assert (word, kind, message) == ("raised", "KeyError", "'bad'")
    assert text.startswith(f'Traceback (most recent call last):\n  File "{script}", line 5')
    assert ask("run", ["good"], context) == ("pieces", None)
    assert ask("next") == ("pieces", [["good"]])
    assert ask("next") == ("pieces", [says[:2]])
    assert ask("next") == ("end", None)
    assert ask("shutdown") == ("value", [])


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_it_runs_under_every_interpreter_at_hand(version: Any, tmp_path: Path) -> None:
    """From its greeting to the end, with an exception and a generator in between."""
    python = interpreter_of(version)
    if python is None:
        pytest.skip(f"no interpreter of {version} is here")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; __counts_inputs__ = True\ndef run(given):\n    print('printed')\n"
        "    if given == 'bad':\n        raise KeyError(given)\n"
        "    return iter([given, sys.version_info[:2]])\n"
    )
    to_child, from_child = os.pipe(), os.pipe()
    fds = to_child[0], from_child[1]
    words = [*fds, os.getpid(), int(DUMP_SIGNAL)]
    with subprocess.Popen(
        [python, "-c", BOOT, FOLDER, *map(str, words)],
        pass_fds=fds,
        env=environment_of(python, os.environ),
        stdout=subprocess.PIPE,
    ) as process:
        for fd in fds:
            os.close(fd)
        pipes = MessagePipes(from_child[0], to_child[1])
        try:
            converse(pipes, script)
        finally:
            pipes.close()  # else a failure would wait for the end of the process
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"printed\nprinted\n"
    profiled = {function for _, _, function in pstats.Stats(str(script.with_name("profile"))).stats}  # type: ignore[attr-defined]
    assert "run" in profiled


def test_a_node_without_the_interpreter_is_named(tmp_path: Path) -> None:
    """With the path that it does not have, or what the interpreter wrote."""
    log = tmp_path / "stderr.txt"
    for python, said in (
        (tmp_path / "gone", r"node \S+, python='.*/gone': .*: No such file or directory\."),
        (Path("/bin/false"), r"/bin/false': .* ends with returncode 1 when it starts\. why"),
    ):
        log.write_text("why")
        with pytest.raises(AgentError, match=said):
            start(python, log)


def start(
    python: Path,
    stderr: Path,
    script: Path | None = None,
    stand_ins: tuple[PluginStandIns, ...] = (),
    **variables: Path,
) -> ForeignScript:
    """Start an interpreter as agents do."""
    process: dict[str, Any] = dict.fromkeys(ProcessSpec._fields)
    process |= {"stderr": str(stderr), "entry_script_log": str(stderr.with_name("log"))}
    job: dict[str, Any] = {**dict.fromkeys(JobSpec._fields), **JobSpec._field_defaults}
    job |= {"script": ScriptSpec("script.py", str(script)), "unit": "file"}
    job |= {"environment": {name: str(value) for name, value in variables.items()}}
    job |= {"python": str(python), "arguments": (), "logging_level": "INFO"}
    job |= {"stand_ins": stand_ins}
    return ForeignScript(JobSpec(**job), ProcessSpec(**process))


def test_the_stacks_are_those_of_the_process_that_works(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the script while it runs; else of the agent, which reads and writes messages."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "def run(number):\n"
        "    begun, before = time.monotonic(), os.fstat(2).st_size\n"
        "    os.kill(os.getppid(), number)\n"
        "    while os.fstat(2).st_size == before and time.monotonic() < begun + 30:\n"
        "        time.sleep(0.01)\n"
        "    return [1]\n"
    )
    entry = start(Path(sys.executable), tmp_path / "stderr", script)
    try:
        assert entry.run(int(DUMP_SIGNAL), MiniBatch(0, (), "")) == [1]
        assert f'File "{script}", line ' in capfd.readouterr().err
        signal.raise_signal(DUMP_SIGNAL)
        assert "test_the_stacks_are_those" in capfd.readouterr().err
    finally:
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, signal.SIG_DFL)
        entry.shutdown()
        entry.wait()
        entry._pipes.close()


def check(python: Path, script: Path, unit: str = "file", **variables: str) -> None:
    """Check an interpreter as calls do."""
    options = RunOptions(python=str(python), environment_variables=variables)
    check_interpreter(options, check_script(script, None), unit, may_be_elsewhere=False)


def test_a_wrapper_has_to_become_the_interpreter(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of one that starts the interpreter below itself, the kernel kills the wrapper alone."""
    script, wrapper = tmp_path / "script.py", tmp_path / "wrapper"
    script.write_text("def run(paths):\n    return paths\n")
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    check(wrapper, script)
    wrapper.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    with pytest.raises(OptionError, match=r"below its own\. .* last line with exec"):
        check(wrapper, script)
    with pytest.raises(AgentError, match=r"ends with returncode \d+ when it starts"):
        start(wrapper, tmp_path / "none")
    assert "begin the wrapper's last line with exec" in capfd.readouterr().err


def test_the_check_sees_the_packages_that_the_script_will_see(tmp_path: Path) -> None:
    """Those of a PYTHONPATH in `environment_variables`, but not of the caller's own."""
    script, python = tmp_path / "script.py", tmp_path / "bare/bin/python"
    script.write_text("def run(rows):\n    return rows\n")
    venv.create(tmp_path / "bare", symlinks=True)
    (tmp_path / "packages/pandas").mkdir(parents=True)
    (tmp_path / "packages/pandas/__init__.py").touch()
    with pytest.raises(OptionError, match="it has no pandas"):
        check(python, script, "row")
    check(python, script, "row", PYTHONPATH=str(tmp_path / "packages"))


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 7)], ids=str)
def test_a_python_that_is_too_old_says_so(version: tuple[int, int], tmp_path: Path) -> None:
    """To who calls, and to a node that has it in another place."""
    python = interpreter_of(version)
    if python is None:
        pytest.skip(f"no interpreter of {version} is here")
    script = tmp_path / "script.py"
    script.write_text("def run(paths):\n    return paths\n")
    with pytest.raises(OptionError, match=r"it is Python \d\.\d\.\d+, and scripts need 3\.8"):
        check(Path(python), script)
    done = subprocess.run([python, "-c", BOOT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "and scripts need 3.8 or newer" in done.stderr


class Short:
    """A file that has no room for the first large read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._is_short = True

    def read(self, length: int) -> bytes:
        """Read, or have no room."""
        if self._is_short and length > 100:
            self._is_short = False
            raise MemoryError
        data: bytes = self._file.read(length)
        return data


def test_a_message_that_does_not_fit_leaves_the_next_one_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bytes are never read as a message of their own."""
    pipes = MessagePipes(*os.pipe())
    monkeypatch.setattr(pipes, "_reader", Short(pipes._reader))
    for message in (b"x" * 1_000, b"next"):
        pipes.send(message)
    with pytest.raises(MemoryError):
        pipes.receive()
    assert pipes.receive() == b"next"
    monkeypatch.undo()
    pipes.close()
