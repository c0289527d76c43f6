"""Tracebacks as text: what stays of them in a message."""

from __future__ import annotations

import json
import traceback

import pytest

from daskprs._core.tracebacks import condensed, deepest_line, without_error


def printed(error: BaseException) -> str:
    """Return the traceback of an error as Python prints it."""
    return "".join(traceback.format_exception(error))


def test_of_several_library_frames_the_first_and_the_last_stay() -> None:
    """Lines of the script stay all, and each has its code."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("x")
    lines = condensed(printed(caught.value)).splitlines()
    places = [line.rpartition(", in ")[2] for line in lines if line.startswith("  File ")]
    assert places[1:] == ["loads", "raw_decode"]
    assert '    json.loads("x")' in lines
    assert lines.count("  … 1 frame of Python …") == 1
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def test_frames_come_without_the_error_and_with_its_notes() -> None:
    """The error itself stands above them."""
    with pytest.raises(ValueError, match="both lines") as caught:
        raise_it()
    frames = without_error(printed(caught.value), str(caught.value))
    assert frames.startswith('  File "')
    assert "both lines" not in frames.splitlines()
    assert frames.endswith("    raise error\nsee the manual")


def raise_it() -> None:
    """Raise an error of two lines, with a note."""
    error = ValueError("there are\nboth lines")
    error.add_note("see the manual")
    raise error


def test_the_causes_of_an_error_stay() -> None:
    """With the words that Python puts between them."""
    with pytest.raises(ValueError, match="no number") as caught:
        read("x")
    frames = without_error(printed(caught.value), str(caught.value))
    assert frames.count("Traceback (most recent call last):") == 2
    assert "JSONDecodeError: Expecting value" in frames
    assert "direct cause" in frames
    assert frames.endswith('    raise ValueError("no number") from error')


def read(text: str) -> None:
    """Fail for a reason."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError("no number") from error


def test_the_place_of_a_syntax_error_stays() -> None:
    """It is not in the frames."""
    with pytest.raises(SyntaxError) as caught:
        compile("def run(:\n", "score.py", "exec")
    frames = without_error(printed(caught.value), str(caught.value))
    assert 'File "score.py", line 1' in frames
    assert "SyntaxError" not in frames


def test_an_error_without_a_traceback_has_no_frames() -> None:
    """Nor has one whose traceback is something else."""
    assert without_error("", "bad") == deepest_line("") == ""
    assert condensed("Traceback of something\n") == "Traceback of something\n"


def test_the_errors_of_a_group_stay() -> None:
    """They are all that it says."""
    with pytest.raises(ExceptionGroup) as caught:
        raise ExceptionGroup("two", [KeyError("a"), KeyError("b")])
    frames = without_error(printed(caught.value), "two")
    assert "KeyError: 'a'" in frames
    assert "KeyError: 'b'" in frames


def test_the_deepest_line_of_the_script_is_named() -> None:
    """Not that of the library in which the error was raised."""
    with pytest.raises(ValueError, match="no number") as caught:
        read("x")
    line = deepest_line(printed(caught.value))
    assert line.startswith("test_tracebacks.py, line ")
    assert line.endswith(', in read: raise ValueError("no number") from error')
    with pytest.raises(json.JSONDecodeError) as caught_too:
        json.loads("x")
    assert deepest_line(printed(caught_too.value)).endswith(': json.loads("x")')
    cell = "Traceback (most recent call last):\n  Cell In[3], line 2, in run\n    1 / 0\n"
    assert deepest_line(cell) == "Cell In[3], line 2, in run: 1 / 0"
    compiled = '  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status\n'
    assert deepest_line(cell + compiled) == "Cell In[3], line 2, in run: 1 / 0"


def test_marks_below_a_whole_line_go() -> None:
    """They say something only where they mark a part of it."""
    frame = '  File "a.py", line 1, in run\n    f(x)(y)\n    {}\n'
    assert condensed(frame.format("^^^^^^^")) == '  File "a.py", line 1, in run\n    f(x)(y)\n'
    assert condensed(frame.format("~~~~^^^")) == frame.format("~~~~^^^")
    assert condensed(frame.format("^^^^")) == frame.format("^^^^")
