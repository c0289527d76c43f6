"""A terminal of a few lines of Python: what a person would see of what a program wrote."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\x1b\[(?P<numbers>[?\d;]*)(?P<command>[A-Za-z])|(?P<other>.)", re.DOTALL)


class Screen:
    """Keeps the lines of a terminal of a given width, scrolled out ones included."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.cursor_shown = True
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0

    @property
    def lines(self) -> list[str]:
        """The lines, without blanks at their ends."""
        return ["".join(line).rstrip() for line in self._lines]

    def write(self, text: str) -> None:
        """Show text, and do what its control sequences say."""
        for piece in _PIECE.finditer(text):
            if piece["other"] is not None:
                self._character(piece["other"])
            else:
                self._control(piece["numbers"], piece["command"])

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._to_row(self._row + 1)
        else:
            if self._column == self.columns:
                self._to_row(self._row + 1)
                self._column = 0
            line = self._lines[self._row]
            line.extend(" " * (self._column + 1 - len(line)))
            line[self._column] = character
            self._column += 1

    def _control(self, numbers: str, command: str) -> None:
        match command, numbers:
            case "K", "2":
                self._lines[self._row] = []
            case "A", _:
                self._to_row(self._row - int(numbers or 1))
            case (("h" | "l"), "?25"):
                self.cursor_shown = command == "h"
            case "m", _:
                pass
            case _:
                message = f"the screen does not know ESC [ {numbers} {command}"
                raise ValueError(message)

    def _to_row(self, row: int) -> None:
        self._row = max(0, row)
        while len(self._lines) <= self._row:
            self._lines.append([])
