"""The picture of a run on the front page: a real one, in a terminal, stopped halfway.

``python -m tests.support.picture`` makes it anew, in ``docs/images/run.svg``.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.support.terminal import Terminal
from tests.support.terminal_screen import Screen

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "run.svg"
COLUMNS = 104
COMMAND = (
    "daskprs run score.py pictures/ --mini-batch-size 10 --allowed-failed-count 1 --job-dir job"
)
SCRIPT = """
import time
from pathlib import Path

def run(mini_batch):
    for path in map(Path, mini_batch):
        if len(path.read_bytes()) < 64:
            raise ValueError(f"{path.name} is not a whole picture")
    time.sleep(0.2)
    return [Path(path).name for path in mini_batch]
"""
LIGHT, DARK, GREEN = (222, 224, 229), (24, 26, 31), (152, 215, 90)
THEME = TerminalTheme(DARK, LIGHT, [DARK, LIGHT, GREEN, *([LIGHT] * 5)])
CHARACTER = (12.2, 24.4)
"""The size that rich draws a character in."""
EDGE = 12
FORM = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 WIDTH HEIGHT">
<style>{styles}
text {{ font: 20px ui-monospace, Menlo, Consolas, monospace }}</style>
<rect fill="#181a1f" width="WIDTH" height="HEIGHT" rx="8"/>
<g transform="translate(EDGE, EDGE)">
{matrix}
</g>
</svg>
"""


def main() -> None:
    """Run the job, and draw what the terminal shows in the middle of it."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("score.py").write_text(SCRIPT)
        Path("pictures").mkdir()
        for number in range(900):
            size = 40 if number == 95 else 64
            Path(f"pictures/{number:03d}.pgm").write_bytes(bytes(size))
        words = shlex.split(COMMAND)
        with Terminal(words, COLUMNS) as terminal:
            terminal.read_until(lambda: _is_halfway(terminal.said))
            said = terminal.said.replace(f"{name}/", "")
    PICTURE.write_text(drawn(said))


def _is_halfway(said: str) -> bool:
    """Say whether the terminal shows a whole frame of the progress, from the middle of the job."""
    frame = said.rpartition("\x1b[2K")[2]
    return re.search(r" 5\d %", frame) is not None and frame.endswith("running")


def drawn(said: str) -> str:
    """Return the picture of a terminal in which the last lines are those of the progress."""
    live = said.replace("\r", "").rpartition("\x1b[2K")[2]
    screen = Screen(COLUMNS)
    screen.write(said)
    above = screen.lines[: -len(live.splitlines())]
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text(f"$ {COMMAND}", "bold"))
        for line in above:
            console.print(Text(line))
        console.print(Text.from_ansi(live))
        picture = console.export_svg(theme=THEME, code_format=FORM, unique_id="run")
    lines = 1 + len(above) + len(live.splitlines())
    width, height = COLUMNS * CHARACTER[0] + 2 * EDGE, lines * CHARACTER[1] + 2 * EDGE
    for name, value in {"WIDTH": f"{width:.0f}", "HEIGHT": f"{height:.0f}", "EDGE": EDGE}.items():
        picture = picture.replace(name, str(value))
    picture = re.sub(r'<text [^>]*>\n</text>| clip-path="[^"]*"', "", picture)
    return re.sub(r"(?<=</text>)(?=<text)", "\n", picture)


if __name__ == "__main__":
    main()
