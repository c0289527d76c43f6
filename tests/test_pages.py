"""The runner of the documentation's pages finds what is wrong with a page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import PageError, agree, blocks, rewritten, run_page

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """# Squares

```python title="own/squares.py"
def square(number):
    return number**2
```

```python
from own.squares import square

print("a square:")
square(3)
```

```text title="Output"
a square:
9
```

```console
$ ls own/*.py
own/squares.py
$ sleep 100 &
$ echo one \\
    two
one two
```

<!-- not run: there is no such program -->
```console
$ no-such-program
```
"""


def test_a_page_that_is_right_stays_as_it_is(tmp_path: Path) -> None:
    """Its file is there for Python and for commands, and what commands have begun is ended."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (tmp_path / "empty").mkdir()
    began_s = time.monotonic()
    outputs = run_page(page, tmp_path / "empty")
    assert time.monotonic() - began_s < 90
    assert [output.came for output in outputs] == [
        ["a square:", "9"],
        ["own/squares.py"],
        ["one two"],
    ]
    assert all(output.is_right for output in outputs)
    assert rewritten(PAGE, outputs) == PAGE


def test_outputs_that_did_not_come_are_found_and_written_anew(tmp_path: Path) -> None:
    """Of Python, of commands, and of errors that a page shows."""
    wrong = PAGE.replace("9\n", "8\n").replace("\none two", "\n1 2").replace("square(3)", "1 / 0")
    page = tmp_path / "page.md"
    page.write_text(wrong)
    (tmp_path / "empty").mkdir()
    outputs = run_page(page, tmp_path / "empty")
    assert [output.is_right for output in outputs] == [False, True, False]
    right = PAGE.replace("square(3)", "1 / 0").replace(
        "9\n", "ZeroDivisionError: division by zero\n"
    )
    assert rewritten(wrong, outputs) == right


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```python\n1 / 0\n```", r"page.md:1 fails: ZeroDivisionError"),
        ("```console\n$ ls nothing\n```", r"page.md:1: ls nothing has exit status 2"),
        ("```console\n$ exit 3\n```", r"the shell has ended at: exit 3"),
    ],
)
def test_a_block_that_fails_and_does_not_say_so_is_an_error(
    tmp_path: Path, block: str, message: str
) -> None:
    """A page says which block of it that is."""
    (tmp_path / "page.md").write_text(block)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PageError, match=message):
        run_page(tmp_path / "page.md", tmp_path / "empty")


def test_a_reason_stands_before_a_block_that_is_not_run() -> None:
    """It counts for this block alone."""
    assert [block.not_run for block in blocks(PAGE)][-2:] == ["", "there is no such program"]


@pytest.mark.parametrize(
    ("shown", "came", "equal"),
    [
        ("done in 3.2 s", "done in 11 s", True),
        ("done in 3.2 s", "failed in 3.2 s", False),
        ("a  b", "a b", True),
        ("rows 3", "rows 4", False),
        ("rows …", "rows 4 of 5", True),
        ("rows …", "rows 4\nand more", False),
        ("first\n…\nlast", "first\n1\n2\nlast", True),
        ("first\n…\nlast", "first\nlast", True),
        ("first\n…", "first\n1\n2", True),
        ("first\n…\nlast", "first\n1\n2", False),
        ("job-20260101-101010-ab12cd34", "job-20261123-073158-b491f396", True),
        (
            "4c946f50-fc9f-467b-9579-165f033e303f",
            "351ef49f-9457-42a4-a84a-e7ce4348b27f",
            True,
        ),
        ("2.0\nbash: line 3:  7 Killed  sleep", "2.0", True),
        ("2.0\ndaskprs: 3/3 mini-batches, 2 s", "daskprs: 1/3 mini-batches, 1 s\n2.0", True),
        ("2.0", "daskprs: preparing the input for 3 s: 3 of 7 parts\n2.0", True),
        ("(1 + 2)", "(1 + 2)", True),
    ],
)
def test_outputs_are_compared_apart_from_what_differs_from_run_to_run(
    shown: str, came: str, *, equal: bool
) -> None:
    """Times, ids and progress; an ellipsis stands for any text."""
    assert agree(shown, came) is equal


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_block_that_needs_a_gpu_runs_where_there_is_one(tmp_path: Path, *, has_gpu: bool) -> None:
    """The others that are not run need something else."""
    page = tmp_path / "page.md"
    other = PAGE.replace("there is no such program", "it needs a GPU, and its output differs")
    page.write_text(other.replace("no-such-program", "touch used"))
    (tmp_path / "empty").mkdir()
    run_page(page, tmp_path / "empty", has_gpu=has_gpu)
    assert (tmp_path / "empty" / "used").exists() == has_gpu
