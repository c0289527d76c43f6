"""The command line: what it takes, what it says, and how it ends."""

from __future__ import annotations

import dataclasses
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import daskprs
from daskprs._cli import main
from daskprs._cli.exit_codes import every_end
from daskprs._cli.options import HEADINGS
from daskprs._options.run_options import RunOptions
from tests.support.cases import mostly_long

SCRIPT = """
import sys
from pathlib import Path

def run(mini_batch):
    if Path({broken!r}).exists():
        raise ValueError("it is broken")
    return [" ".join(sys.argv[-2:]) + f" {{len(mini_batch)}}"]
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a script and a table of four rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "script.py").write_text(SCRIPT.format(broken=str(tmp_path / "broken")))
    (tmp_path / "table.csv").write_text("a\n1\n2\n3\n4\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "parallel_run_step.txt").touch()
    return tmp_path


def call(*words: str) -> Result:
    """Call the command line as a shell would."""
    return CliRunner().invoke(main, words, prog_name="daskprs")


RUN = ("run", "source/script.py", "table.csv", "--process-count-per-node", "1")


def test_a_result_that_nobody_can_read_is_no_failure(work: Path) -> None:
    """Stdout is on a full disk: the output stands, and the exit code says so."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "daskprs", *RUN, "--job-dir", "job", "--quiet"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=150,
        )
    assert done.returncode == 0, done.stderr
    assert "stdout cannot be written: [Errno 28]" in done.stderr
    assert (work / "job" / "output" / "parallel_run_step.txt").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((*RUN, "--start-method", "inline"), 0),
        ((*RUN, "--start-method", "inline", "--run-max-try", "1", "--", "broken"), 42),
        (("run", "--no-such-option"), 2),
    ],
)
def test_the_exit_code_of_a_job_does_not_depend_on_its_streams(
    work: Path, words: tuple[str, ...], code: int
) -> None:
    """They are on a full disk, and the script prints, too."""
    script = work / "source" / "script.py"
    script.write_text(script.read_text().replace("def run", "print('loaded')\n\ndef run"))
    if words[-1] == "broken":
        (work / "broken").touch()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "daskprs", *words],
            stdout=full,
            stderr=full,
            check=False,
            timeout=150,
        )
    assert done.returncode == code


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",)])
def test_help_that_nobody_can_read_ends_in_a_line(words: tuple[str, ...]) -> None:
    """As a command whose product cannot be written."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "daskprs", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=150,
        )
    assert done.returncode == 74
    said = "daskprs: stdout cannot be written: [Errno 28] No space left on device.\n"
    assert done.stderr == said


@pytest.mark.parametrize("start_method", mostly_long(["fork", "inline"], suite=["inline"]))
def test_a_job_runs_without_streams(work: Path, start_method: str) -> None:
    """A caller may have closed all three."""
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "daskprs"]
    words = [*RUN, "--job-dir", "job", "--start-method", start_method]
    assert subprocess.run([*command, *words], check=False, timeout=150).returncode == 0
    assert (work / "job" / "output" / "parallel_run_step.txt").exists()


@pytest.mark.parametrize("words", [RUN, ("plan", "table.csv"), ("status", "job")])
def test_a_working_directory_that_was_removed_is_named(
    work: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Whatever relative path needs it, the next step is the same."""
    (work / "removed").mkdir()
    monkeypatch.chdir(work / "removed")
    (work / "removed").rmdir()
    done = call(*words)
    monkeypatch.chdir(work)
    assert done.exit_code == 2, done.output
    assert "the working directory of this process was removed" in done.output
    assert "Change to a folder that exists, or give absolute paths." in done.output


@pytest.mark.parametrize("size", ["--mini-batch-size", "--mini_batch_size"])
def test_a_run_writes_the_output_and_says_where(work: Path, size: str) -> None:
    """Options may have underscores; what stands behind -- is the script's, as it is."""
    done = call(*RUN, f"{size}=5", "--job_dir", "job", "--", "--mini_batch_size", "a b")
    assert done.exit_code == 0, done.output
    output = work / "job" / "output" / "parallel_run_step.txt"
    assert output.read_text() == "--mini_batch_size a b 2\n" * 2
    assert str(output) in done.stdout
    assert str(work / "job" / "logs") in done.stdout
    assert re.search(r"daskprs: 2/2 mini-batches, \d+ s, .*/(s|min)\n$", done.stderr)


def test_a_quiet_run_says_nothing_but_the_result(work: Path) -> None:
    """And puts the output where it was told to."""
    done = call(*RUN, "--quiet", "--output-dir", "out", "--append_row_file_name=rows.txt")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert (work / "out" / "rows.txt").exists()
    assert len(list((work / "daskprs-jobs").iterdir())) == 1


def test_a_failed_job_exits_with_42_and_the_command_to_go_on_with(work: Path) -> None:
    """Which goes on when the cause is gone; the script's error comes without our traceback."""
    (work / "broken").touch()
    failed = call(*RUN, "--run-max-try", "1", "--", "x", "y z")
    assert failed.exit_code == 42
    assert "first error: ValueError: it is broken" in failed.stderr
    assert "\nThe job is Failed: " in failed.stderr
    assert "Traceback" not in failed.output
    command = re.search(r"To go on, with the same script and input: daskprs (.*)\n", failed.stderr)
    assert command is not None
    (work / "broken").unlink()
    resumed = call(*shlex.split(command[1]))
    assert resumed.exit_code == 0, resumed.output
    (job,) = (work / "daskprs-jobs").iterdir()
    assert (job / "output" / "parallel_run_step.txt").read_text() == "x y z 4\n"


def test_the_command_to_go_on_with_repeats_no_option(work: Path) -> None:
    """The job folder knows them all."""
    (work / "broken").touch()
    words = (*RUN, "--run_max_try", "1", "--job_dir", "job")
    assert call(*words).exit_code == 42
    for again in (call(*words, "--resume"), call("resume", "job")):
        assert again.exit_code == 42
        command = f": daskprs resume {work / 'job'}"
        assert command in again.stderr.splitlines()[-2]
        assert again.stderr.rstrip().endswith(f"{command} --accept-changes script")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*RUN, "--mini-batch-size", "10 tb"), r"--mini-batch-size '10 tb': must be "),
        ((*RUN, "--run-max-try", "0"), r"--run-max-try 0: must be "),
        ((*RUN, "--run-max-try", "few"), "'few' is not a valid integer"),
        ((*RUN, "--run-max-tries", "3"), "No such option.*--run-max-try"),
        ((*RUN, "--output_action", "append"), "'append' is not one of 'append_row'"),
        ((*RUN, "-e", "NAME"), "'NAME': write NAME=VALUE"),
        ((*RUN, "--dtype", "=int"), "'=int': write NAME=VALUE"),
        ((*RUN, "--resume"), "--resume: name the folder .* by --job-dir"),
        (
            (*RUN, "--output-dir", "there"),
            "parallel_run_step.txt exists. Replace it by --overwrite,",
        ),
        (("run", "source/script.py", "table.csv", "source"), "Say --input-type files to get paths"),
        (("run", "source/script.py", "none/*.csv"), "none/"),
        (("run", "source/none.py", "table.csv"), "none.py"),
        (("submit", "source/script.py", "table.csv"), "^daskprs: a detached job is .* --client"),
        (
            ("run", "source/script", "table.csv"),
            "entry script .source/script. does not exist. Did you mean .source/script.py.",
        ),
        (("run", "sorce/script.py", "table.csv"), "Did you mean 'source'?"),
        (
            ("run", "source.scipt", "table.csv"),
            "nor installed. Did you mean '.*source/script.py'?",
        ),
        (
            ("run", "source", "table.csv"),
            "'source' is a folder. Name a file in it: source/script.py.",
        ),
        (("run", "table.csv", "source/script.py"), "Is it the other way round?"),
        (("run", "source/script.py", "tabel.csv"), "Did you mean 'table.csv'?"),
        (("run", "source/script.py", "far/away.csv"), "There is no 'far' in "),
        (("run", "table.csv", "table.csv"), "table.csv"),
        (("run", "source/script.py"), "Missing argument"),
        (("plan", "none.csv"), "none.csv"),
        (("plan", "table.csv", "--dtype", "=int"), "'=int': write NAME=VALUE"),
        (("plan", "table.csv", "--dtype", "a=int65"), "not a type of pandas"),
        (("plan", "table.csv", "--dtype", "b=int"), "no column 'b'"),
        (("plan", "table.csv", "--partition-keys", "b"), "b"),
        (("walk",), "No such command"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(
    work: Path, words: tuple[str, ...], said: str
) -> None:
    """Before anything was started."""
    refused = call(*words)
    assert refused.exit_code == 2, refused.output
    assert re.search(said, refused.stderr, re.DOTALL)
    assert "Traceback" not in refused.output
    assert refused.stdout == ""
    assert not (work / "daskprs-jobs").exists()


@pytest.mark.usefixtures("work")
def test_a_folder_that_cannot_be_made_is_no_traceback() -> None:
    """But what the system says."""
    failed = call(*RUN, "--job-dir", "table.csv/job")
    assert failed.exit_code in (2, 42)
    assert "table.csv" in failed.stderr
    assert "Traceback" not in failed.output


@pytest.mark.usefixtures("work")
def test_a_plan_shows_the_mini_batches_and_runs_nothing() -> None:
    """With the options of reading alone."""
    shown = call("plan", "table.csv", "--mini_batch_size", "5")
    assert shown.exit_code == 0
    assert "2 mini-batches" in shown.stdout
    assert "table.csv, bytes 5-10" in shown.stdout
    assert call("plan", "table.csv", "--run-max-try", "1").exit_code == 2


@pytest.mark.usefixtures("work")
def test_keys_columns_and_several_inputs_are_lists(tmp_path: Path) -> None:
    """Names between commas, and paths one after the other."""
    for name in ("x", "y"):
        (tmp_path / f"{name}.csv").write_text("a,b,c\n1,2,3\n1,3,3\n")
    shown = call("plan", "x.csv", "y.csv", "--partition_keys", "a, b", "--columns=a,b")
    assert shown.exit_code == 0, shown.output
    assert "2 mini-batches" in shown.stdout


@pytest.mark.usefixtures("work")
def test_a_plan_takes_the_types_of_columns(tmp_path: Path) -> None:
    """As a run does: keys of text keep their zeros."""
    (tmp_path / "ids.csv").write_text("id,name\n007,Bond\n042,Dent\n")
    shown = call("plan", "ids.csv", "--partition-keys", "id", "--dtype", "id=string")
    assert shown.exit_code == 0, shown.output
    assert "id=007" in shown.stdout


def test_environment_variables_and_types_are_pairs(work: Path) -> None:
    """As often as they are given."""
    (work / "source" / "script.py").write_text(
        "import os\ndef run(m):\n    return [f\"{os.environ['A']}{os.environ['B']}{m['a'][0]}\"]\n"
    )
    done = call(*RUN, "-e", "A=1=2", "-e", "B=", "--dtype", "a=string", "--output-dir", ".")
    assert done.exit_code == 0, done.output
    assert (work / "parallel_run_step.txt").read_text() == "1=21\n"


def test_it_is_a_command_of_dask_too(work: Path) -> None:
    """With what stands behind --, as alone."""

    @click.group()
    def dask() -> None:
        """Stand in for Dask's own command line."""

    dask.add_command(main, "prs")
    words = ("prs", *RUN, "--mini_batch_size", "1 KB", "--job-dir", "job", "--", "x", "--y")
    done = CliRunner().invoke(dask, words)
    assert done.exit_code == 0, done.output
    assert (work / "job" / "output" / "parallel_run_step.txt").read_text() == "x --y 4\n"


@pytest.mark.usefixtures("work")
def test_signals_are_as_before() -> None:
    """A program that calls the command line keeps its own."""
    before = signal.getsignal(signal.SIGTERM)
    call("plan", "table.csv")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGHUP, 130), (signal.SIGINT, 130)]
)
def test_a_signal_has_its_exit_code_before_the_job_begins(number: int, code: int) -> None:
    """A batch system that ends a command early wants it to be called again."""
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:  # under nohup, a command goes on
        signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught, every_end():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
    assert caught.value.code == code


@pytest.mark.parametrize("command", ["run", "plan", "resume", "retry-failed"])
def test_the_help_has_every_option_under_a_heading(command: str) -> None:
    """Behind the examples and exit codes."""
    shown = call(command, "--help").stdout
    for option in main.commands[command].params:
        if isinstance(option, click.Option):
            assert re.search(rf"^  (-\w, )?{option.opts[0]}\b", shown, re.MULTILINE), option.name
    headings = re.findall(r"^ *(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings[2] in ("Script", "Input")
    assert headings[:2] == ["Examples", "Exit codes"]
    assert "Options" not in headings


def test_the_help_of_a_command_begins_with_examples() -> None:
    """Its options, which are many, come behind; the list of commands has whole sentences."""
    shown = call("run", "--help").stdout
    assert shown.index("Examples:") < shown.index("--source-directory")
    listed = " ".join(call("--help").stdout.split())
    for name, command in main.commands.items():
        sentence = " ".join((command.help or "").partition("\n\n")[0].split())
        assert f"{name} {sentence}" in listed


def test_dir_has_public_names_alone() -> None:
    """What a notebook completes."""
    assert [name for name in dir(daskprs) if not name.startswith("__")] == daskprs.__all__


def test_the_headings_of_the_help_are_those_of_the_documentation() -> None:
    """With the same options under each; some are written in another way on the command line."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "options.md"
    sections = dict(
        re.findall(
            r"^## ([^\n{]+?)(?: {[^\n]*)?\n(.+?)(?=^## |\Z)",
            page.read_text(),
            re.MULTILINE | re.DOTALL,
        )
    )
    table = {
        name: set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) for name, text in sections.items()
    }
    places = {"script", "client", "here", "job_dir", "output_dir"}
    elsewhere = {"arguments", "progress", "quiet", "extend", "as_json", "deployment", *places}
    assert {name: set(names) - elsewhere for name, names in HEADINGS.items()} == {
        name: names - elsewhere for name, names in table.items()
    }


def test_the_help_shows_every_default() -> None:
    """As `RunOptions` has it, so that it cannot be another."""
    run = main.commands["run"]
    helps = {one.name: one.help or "" for one in run.params if isinstance(one, click.Option)}
    shown = {"run_max_try": "Default: 3.", "output_action": "Default: 'append_row'."}
    for name, default in shown.items():
        assert helps[name].endswith(default)
    for field in dataclasses.fields(RunOptions):
        if field.name in helps and field.default not in (None, True, False):
            assert re.search(r"[Dd]efault", helps[field.name]), field.name
