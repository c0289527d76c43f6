"""Each tutorial is also a notebook: the same text, code and outputs, in cells that run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import daskprs
from tests.support import notebooks

TUTORIALS = sorted(notebooks.PAGES.glob("*.md"))
EACH = pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
ANEW = "run: python -m tests.support.notebooks"
KEYS = {
    "markdown": {"cell_type", "id", "metadata", "source"},
    "code": {"cell_type", "id", "metadata", "source", "outputs", "execution_count"},
}
WHY = "the group extras is not installed"
RUN = """
import sys, nbclient, nbformat
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
nbclient.NotebookClient(book, timeout=120).execute()
"""
PAGE = """# Squares

Who this is for.

Another paragraph, with [a link](../how-to/results.md#files) and [one](https://example.org/x.md).

```python title="own/square.py"
def square(number):
    return number**2
```

```python
from own.square import square

square(3)
```

```text title="Output"
9
```

```diff
- read only
```

```console
$ ls own/*.py
own/square.py
```

```console
$ nohup sleep 1 \\
    > log 2>&1 &
$ echo "$HOME"
/home/anna
```

<!-- not run: there is no such program -->
```console
$ no-such-program
```
"""


@EACH
def test_a_notebook_is_that_of_its_page(page: Path) -> None:
    """It changes with the page, and the page offers it."""
    assert notebooks.link_to(page) in page.read_text(), ANEW
    assert notebooks.file_of(page).read_text() == notebooks.written(page), ANEW


def test_there_is_no_notebook_without_a_page() -> None:
    """A page that was renamed leaves none."""
    there = {path.stem for path in notebooks.NOTEBOOKS.glob("*.ipynb")}
    assert there == {page.stem for page in TUTORIALS}


@EACH
def test_a_notebook_has_the_form_that_programs_expect(page: Path) -> None:
    """The keys and types that nbformat 4.5 asks for."""
    book = json.loads(notebooks.file_of(page).read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in book["cells"]:
        assert set(cell) == KEYS[cell["cell_type"]]
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"])
        assert "".join(cell["source"]).strip()
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        for output in cell.get("outputs", []):
            assert (output["output_type"], output["name"]) == ("stream", "stdout")
            assert set(output) == {"output_type", "name", "text"}


@EACH
def test_links_of_a_notebook_lead_somewhere(page: Path) -> None:
    """From the folder of the notebooks; to its page, too."""
    targets = [
        target.partition("#")[0]
        for cell in notebooks.notebook(page)["cells"]
        if cell["cell_type"] == "markdown"
        for target in notebooks.LINK.findall("".join(cell["source"]))
    ]
    assert f"../docs/tutorials/{page.name}" in targets
    assert [one for one in targets if not (notebooks.NOTEBOOKS / one).exists()] == []


def test_blocks_become_cells(tmp_path: Path) -> None:
    """Files are written, code and commands run, and the rest is there to be read."""
    page = tmp_path / "squares.md"
    page.write_text(PAGE)
    page.write_text(notebooks.linked(page))
    assert notebooks.linked(page) == page.read_text()
    cells = notebooks.notebook(page)["cells"]
    code = [_text(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [
        "!mkdir -p own",
        "%%writefile own/square.py\ndef square(number):\n    return number**2",
        "from own.square import square\n\nsquare(3)",
        "!ls own/*.py",
        '%%bash\nnohup sleep 1 \\\n    > log 2>&1 &\necho "$HOME"',
    ]
    outputs = [_text(one["text"]) for cell in cells for one in cell.get("outputs", [])]
    assert outputs == ["Writing own/square.py\n", "9\n", "own/square.py\n", "/home/anna\n"]
    prose = [_text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert "how-to/results.md#files)" in prose[0]
    assert "(https://example.org/x.md)" in prose[0]
    assert prose[1] == "```diff\n- read only\n```"
    assert prose[2] == "```console\n$ no-such-program\n```"


def test_the_site_offers_the_notebooks(tmp_path: Path) -> None:
    """A built page, its Markdown and the notebook find each other, wherever the site lies."""
    page = TUTORIALS[0]
    (tmp_path / "tutorials").mkdir()
    built = tmp_path / "tutorials" / f"{page.stem}.html"
    built.write_text(f'<a href="../../examples/{page.stem}.ipynb">')
    notebooks.add_to_site(tmp_path)
    (target,) = re.findall('href="(.*)"', built.read_text())
    copied = built.parent / target
    assert f"](../tutorials/{page.name})" in copied.read_text()
    assert copied.resolve().is_relative_to(tmp_path)


@EACH
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel, where each cell of commands has a shell of its own."""
    for package in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(package, reason=WHY)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "profile"))
    monkeypatch.setenv("PYTHONPATH", str(Path(daskprs.__file__).parents[1]), prepend=":")
    (tmp_path / "empty").mkdir()
    # In a process of its own: the client of the kernel leaves sockets open.
    words = [sys.executable, "-c", RUN, notebooks.file_of(page)]
    done = subprocess.run(
        words, cwd=tmp_path / "empty", capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr


def _text(lines: list[str]) -> str:
    return "".join(lines)
