"""Pages of the documentation, run as a reader would run them, and their outputs.

``python -m tests.support.pages PAGE …`` runs pages, each in an empty folder, and writes what came
into their output blocks. How a page is written stands in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE = re.compile(r"^(`{3,})(\w*)(?: title=\"([^\"]*)\")?\s*$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
NEEDS_GPU = "it needs a GPU"
"""The reason why a block is not run that runs where there is one …"""
DIFFERS = f"{NEEDS_GPU}, and its output differs"
"""… and this one's output is not compared: it has measured something."""
OUTPUT = "Output"
"""The title of the block that shows what the Python block before it prints."""
ANYTHING = "…"
"""Stands for any text in an output; alone on a line, for any lines."""
PLAIN = re.compile(r"daskprs(?:[ \t]|\\\n|[\w./=:,@%+-])*")
"""A command of daskprs that the shell need not read."""
END = "end-of-command"
"""What the shell prints after each command, with its exit status."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int
    """The number of the line with the opening fence, from 1."""
    not_run: str
    """The reason why the block is not run; else empty."""

    @property
    def is_output(self) -> bool:
        """Whether this is the output of the block before it."""
        return self.title == OUTPUT

    @property
    def is_file(self) -> bool:
        """Whether a reader saves this block as a file."""
        return bool(self.title) and not self.is_output


class Shown(NamedTuple):
    """An output: the one that the page shows, and the one that came."""

    where: str
    """The page, and the line of the block."""
    first: int
    """The index of the output's first line in the page."""
    shown: list[str]
    came: list[str]

    @property
    def is_right(self) -> bool:
        """Whether they are equal, apart from what differs from run to run."""
        return agree("\n".join(self.shown), "\n".join(self.came))


class PageError(Exception):
    """A block of a page cannot be run."""


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        if opening := FENCE.match(lines[at]):
            end = lines.index(opening[1], at + 1)
            before = next((line for line in reversed(lines[:at]) if line), "")
            reason = NOT_RUN.match(before)
            text = "".join(f"{line}\n" for line in lines[at + 1 : end])
            found.append(
                Block(opening[2], opening[3] or "", text, at + 1, reason[1] if reason else "")
            )
            at = end
        at += 1
    return found


def run_page(
    page: Path, folder: Path, *, commands: bool = True, has_gpu: bool = False
) -> list[Shown]:
    """Run the blocks of a page one after the other in a folder; return its outputs.

    Parameters
    ----------
    page
        The Markdown file.
    folder
        An empty folder. Blocks with a title are written into it.
    commands
        Whether console blocks are run, too.
    has_gpu
        Whether blocks that need a GPU are run, too.

    Raises
    ------
    PageError
        When a block without an output fails.

    """
    found = blocks(page.read_text())
    outputs: list[Shown] = []
    with ExitStack() as stack:
        reader = stack.enter_context(_reader(folder))
        shell = stack.enter_context(_shell(folder)) if commands else None
        for number, block in enumerate(found):
            where = f"{page}:{block.line}"
            output = found[number + 1] if number + 1 < len(found) else None
            if block.is_output or (
                block.not_run and not (has_gpu and block.not_run in (NEEDS_GPU, DIFFERS))
            ):
                continue
            if block.is_file:
                _save(block, folder)
            elif block.language == "python":
                shows = output if output is not None and output.is_output else None
                if block.not_run == DIFFERS:
                    shows = None
                came = _evaluate(block, reader, where, fails=shows is not None)
                if shows is not None:
                    shown = shows.text.splitlines()
                    came = hidden(came, folder)
                    outputs.append(Shown(where, shows.line, shown, came.splitlines()))
            elif block.language == "console" and shell is not None:
                outputs += _command_outputs(block, shell, folder, where)
    return outputs


def rewritten(page: str, outputs: list[Shown]) -> str:
    """Return a page with the outputs that came in place of those that differ."""
    lines = page.splitlines()
    for output in reversed(outputs):
        if not output.is_right:
            lines[output.first : output.first + len(output.shown)] = output.came
    return "\n".join(lines) + "\n"


# ---- blocks of each kind ----


def _save(block: Block, folder: Path) -> None:
    file = folder / block.title
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text)
    if block.text.startswith("#!"):
        file.chmod(0o755)


@contextmanager
def _reader(folder: Path) -> Iterator[ModuleType]:
    """Give a fresh ``__main__`` in the folder, as a new notebook has one."""
    main = ModuleType("__main__")
    kept, before = sys.modules["__main__"], Path.cwd()
    modules = set(sys.modules)
    os.chdir(folder)
    sys.modules["__main__"] = main
    sys.path.insert(0, str(folder))
    try:
        yield main
    finally:
        sys.path.remove(str(folder))
        sys.modules["__main__"] = kept
        os.chdir(before)
        for name in set(sys.modules) - modules:  # modules of the page, which another may have, too
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]


def _evaluate(block: Block, reader: ModuleType, where: str, *, fails: bool) -> str:
    """Run a block of Python as a cell of a notebook, and return what it prints.

    The value of a last expression is printed. With `fails`, the message of an error is output.
    """
    name = f"<{where}>"
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    tree = ast.parse(block.text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            exec(compile(tree, name, "exec"), vars(reader))  # noqa: S102
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), vars(reader))  # noqa: S307
                if value is not None:
                    print(repr(value))
        except Exception as error:
            if not fails:
                msg = f"{where} fails: {error!r}\n{printed.getvalue()}"
                raise PageError(msg) from error
            printed.write("".join(traceback.format_exception_only(error)))
    return printed.getvalue()


@contextmanager
def _shell(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a shell in the folder, with the commands of this environment; end what it has begun."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        ["bash", "--norc"],  # noqa: S607
        cwd=folder,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            yield shell
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def _command_outputs(
    block: Block, shell: subprocess.Popen[str], folder: Path, where: str
) -> list[Shown]:
    """Run the commands of a console block; return the output of each that shows one."""
    outputs: list[Shown] = []
    lines = block.text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        after = start + 1
        while lines[after - 1].endswith("\\") and after < end:
            after += 1
        command = "\n".join([lines[start].removeprefix("$ "), *lines[start + 1 : after]])
        shown = lines[after:end]
        while shown and not shown[-1].strip():
            shown.pop()
        came, status = _answer(shell, command)
        if status and not shown:
            msg = f"{where}: {command} has exit status {status}:\n{came}"
            raise PageError(msg)
        if shown:
            came = hidden(came, folder)
            outputs.append(Shown(where, block.line + after, shown, came.splitlines()))
    return outputs


def _answer(shell: subprocess.Popen[str], command: str) -> tuple[str, int]:
    """Return what a command prints, and its exit status.

    A shell would start a command of daskprs from nothing. It is started here with what the shell
    has, so that tests may fork it.
    """
    if not PLAIN.fullmatch(command):
        return _answer_of_shell(shell, command)
    told, _ = _answer_of_shell(shell, "pwd; env -0 | tr '\\0' '\\1'")
    folder, _, variables = told.partition("\n")
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env=dict(one.split("=", 1) for one in variables.strip("\1\n").split("\1")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


def _answer_of_shell(shell: subprocess.Popen[str], command: str) -> tuple[str, int]:
    assert shell.stdin is not None
    assert shell.stdout is not None
    # The command's own input is empty: the shell's is the commands that follow.
    shell.stdin.write(f"eval {shlex.quote(command)} < /dev/null\nprintf '\\n{END} %s\\n' $?\n")
    shell.stdin.flush()
    printed: list[str] = []
    for line in shell.stdout:
        if line.startswith(f"{END} "):
            return "".join(printed)[:-1], int(line.split()[1])
        printed.append(line)
    msg = f"the shell has ended at: {command}"
    raise PageError(msg)


# ---- outputs ----

PROGRESS = re.compile(
    r"^(\[\S+\] )?daskprs: (\d+/\d+ mini-batches|(preparing|looking at) the input for ).*\n?",
    re.MULTILINE,
)
"""The lines of progress; how many there are rests on the speed of the machine."""
REAPED = re.compile(r"^bash: line \d+: +\d+ (Killed|Terminated) .*\n?", re.MULTILINE)
"""The notice of the shell that a process in the background has ended, whenever it sees that."""
CHANGES = [
    (
        re.compile(r"^[ \t]*[~^]+[ \t]*\n", re.MULTILINE),
        "",
    ),  # other marks in each version of Python
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6,}\b"), "<id>"),
    (re.compile(r"\b\d{8}\b(?=\.txt)"), "<date>"),
    (re.compile(r"(?<=(?:127\.0\.0\.1|localhost):)\d+"), "<port>"),
    (re.compile(r"\bprocess\d{3}\b"), "<process>"),
    (re.compile(r"\b(pid|PID) \d+"), "<pid>"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\b\d+(\.\d+)? min( \d+(\.\d+)? s)?\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|h)\b"), "<time>"),
    (re.compile(r"\b[\d,]+(\.\d+)?/(s|min|h)\b"), "<rate>"),
    (re.compile(r"[━─╸╺]+"), "─"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
]
"""What differs from run to run, and what stands for it while outputs are compared."""


def hidden(text: str, folder: Path) -> str:
    """Return an output without the path of the folder, and without spaces at the end of lines."""
    text = text.replace(str(folder.resolve()), ANYTHING).replace(str(folder), ANYTHING)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def agree(shown: str, came: str) -> bool:
    """Say whether an output is the one that came, apart from what differs from run to run."""
    pattern = re.escape(_settled(shown)).replace(re.escape(ANYTHING), ANYTHING)
    pattern = re.sub(rf"(?m)^{ANYTHING}(\\?\n|$)", r"(?:.*\\n)*?", pattern)
    return bool(re.fullmatch(pattern.replace(ANYTHING, "[^\n]*?"), _settled(came)))


def _settled(text: str) -> str:
    """Return a text in which whatever differs from run to run is equal."""
    text = REAPED.sub("", PROGRESS.sub("", text))
    for pattern, equal in CHANGES:
        text = pattern.sub(equal, text)
    return text.strip("\n") + "\n"


def main(pages: list[str]) -> int:
    """Run pages, and write what came into them; return how many could not be run."""
    failed = 0
    for page in map(Path, pages):
        with tempfile.TemporaryDirectory() as folder:
            try:
                outputs = run_page(page.resolve(), Path(folder))
            except PageError as error:
                failed += 1
                print(error)
                continue
        wrong = [output for output in outputs if not output.is_right]
        page.write_text(rewritten(page.read_text(), outputs))
        print(f"{page}: {len(outputs)} outputs, {len(wrong)} written anew")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
