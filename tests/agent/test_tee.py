"""What an inline script prints goes to its caller, if that can take it, and into a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.inline.tee import Tee

if TYPE_CHECKING:
    import io


def test_a_script_may_print_where_the_stream_of_its_caller_is_closed(tmp_path: Path) -> None:
    """Python has None in the place of such a stream."""
    log = tmp_path / "log"
    tee = Tee(None, str(log), None)
    print("kept", file=tee, flush=True)
    assert not tee.isatty()
    tee.close()
    assert log.read_text() == "kept\n"


def test_a_script_does_not_fail_where_the_stream_of_its_caller_is_full(tmp_path: Path) -> None:
    """The log has the text, and the job goes on."""
    log = tmp_path / "log"
    with Path("/dev/full").open("wb", buffering=0) as full:
        tee = Tee(_Text(full), str(log), None)
        print("kept", file=tee, flush=True)
        tee.close()
    assert log.read_text() == "kept\n"


class _Text:
    """A stream of text that holds nothing back."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write at once."""
        self._file.write(text.encode())

    def flush(self) -> None:
        """Do nothing."""
