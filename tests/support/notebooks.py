"""Tutorials as notebooks: each page of ``docs/tutorials`` is also ``examples/NAME.ipynb``.

``python -m tests.support.notebooks`` writes them anew. The outputs are those of the page, which a
test runs, so that a notebook changes with its page alone.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.pages import NOT_RUN, Block, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parents[2]
PAGES = HOME / "docs" / "tutorials"
NOTEBOOKS = HOME / "examples"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s]+)")
"""The target of a link to a file."""
INTRODUCTION = """\
This notebook is made from [a page of the documentation]({}). Start Jupyter in an empty \
folder, from an environment in which daskprs is installed. The cells write their \
files into this folder."""
FAILED = re.compile(r"^[\w.]*(Error|Failed|Exception)\b.*: ", re.MULTILINE)
EXPANDED = re.compile(r"[$&{\\!]")
"""What IPython changes in a command that stands behind a `!`, or refuses there."""


def notebook(page: Path) -> dict[str, Any]:
    """Return the notebook of a page, in the form of nbformat 4.5."""
    cells = [*_cells(page)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def written(page: Path) -> str:
    """Return the text of the notebook's file."""
    return json.dumps(notebook(page), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def file_of(page: Path) -> Path:
    """Return where the notebook of a page lies."""
    return NOTEBOOKS / f"{page.stem}.ipynb"


def link_to(page: Path) -> str:
    """Return the line with which a page offers its notebook, or says how to do without."""
    return (
        f"[Download this page as a notebook]({_relative(file_of(page), page.parent)}), or work in "
        "an empty folder: save each block that has a file name above it, and run the other blocks "
        "in order."
    )


def linked(page: Path) -> str:
    """Return the page with its link, behind the first paragraph if there is none yet."""
    text = page.read_text()
    if link_to(page) in text:
        return text
    heading, first, rest = text.split("\n\n", 2)
    return f"{heading}\n\n{first}\n\n{link_to(page)}\n\n{rest}"


def add_to_site(site: Path) -> None:
    """Copy the notebooks into the built site, and have its pages and theirs link to each other."""
    (site / "examples").mkdir(exist_ok=True)
    for page in sorted(PAGES.glob("*.md")):
        text = file_of(page).read_text().replace("](../docs/", "](../")
        (site / "examples" / file_of(page).name).write_text(text)
        for built in site.glob(f"tutorials/{page.stem}.*"):
            built.write_text(built.read_text().replace("../../examples/", "../examples/"))


# ---- cells ----


def _cells(page: Path) -> Iterator[dict[str, Any]]:
    lines = page.read_text().splitlines()
    prose: list[str] = []
    at = 0
    found = blocks(page.read_text())
    for number, block in enumerate(found):
        first, after = block.line - 1, block.line + len(block.text.splitlines()) + 1
        prose += lines[at:first]
        at = after
        if block.is_output:
            continue
        output = found[number + 1].text if [*found, block][number + 1].is_output else ""
        cells = [] if block.not_run else [*_cells_of(block, output)]
        if not cells:
            prose += lines[first:after]
            continue
        yield from _markdown(prose, page)
        yield from cells
        prose = []
    yield from _markdown([*prose, *lines[at:]], page)


def _markdown(lines: list[str], page: Path) -> Iterator[dict[str, Any]]:

    def target(link: re.Match[str]) -> str:
        return _relative(page.parent / link[1], NOTEBOOKS)

    text = "\n".join(line for line in lines if not NOT_RUN.match(line)).strip("\n")
    text = text.replace(link_to(page), INTRODUCTION.format(page.name))
    text = re.sub(r"\n{3,}", "\n\n", text)
    if text:
        yield {
            "cell_type": "markdown",
            "metadata": {},
            "source": _lines(
                LINK.sub(lambda one: _relative(page.parent / one[1], NOTEBOOKS), text)
            ),
        }


def _cells_of(block: Block, output: str) -> Iterator[dict[str, Any]]:
    """Give the code cells of a block; none if the block is there to be read."""
    if block.is_file:
        if folder := os.path.dirname(block.title):  # noqa: PTH120 - of the reader, not of this disk
            yield _code(f"!mkdir -p {folder}\n", "")
        yield _code(f"%%writefile {block.title}\n{block.text}", f"Writing {block.title}\n")
    elif block.language == "python":
        yield _code(block.text, output)
    elif block.language == "console":
        commands, outputs = _commands(block)
        alone = len(commands) == 1 and not EXPANDED.search(commands[0])
        source = f"!{commands[0]}" if alone else "\n".join(["%%bash", *commands])
        yield _code(source, outputs)


def _commands(block: Block) -> tuple[list[str], str]:
    """Return the commands of a console block, and all that they print."""
    commands: list[str] = []
    printed: list[str] = []
    goes_on = False
    for line in block.text.splitlines():
        if goes_on:
            commands[-1] += f"\n{line}"
        elif line.startswith("$ "):
            commands.append(line.removeprefix("$ "))
        else:
            printed.append(line)
            continue
        goes_on = line.endswith("\\")
    return commands, "".join(f"{line}\n" for line in printed)


def _code(source: str, output: str) -> dict[str, Any]:
    stream = {"name": "stdout", "output_type": "stream", "text": _lines(output)}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": ["raises-exception"]} if FAILED.search(output) else {},
        "outputs": [stream] if output else [],
        "source": _lines(source.rstrip("\n")),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def main() -> None:
    """Write the notebooks of all tutorials, and into each tutorial the link to its notebook."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(linked(page))
        file_of(page).write_text(written(page))


if __name__ == "__main__":
    main()
