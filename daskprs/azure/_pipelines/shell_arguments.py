"""Commands of served pipelines: the values in them reach programs as arguments, never as shell.

Each ``${{inputs.x}}`` becomes the expansion of a variable in double quotes. The shell does not read
the result of such an expansion again: it neither splits it, nor expands patterns or commands in it.
That holds for the commands that `served_command` understands: simple ones, one after another, of
programs that take arguments as they are. It refuses every other command that has values in it.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from daskprs.azure._expressions import MARK, ExpressionError, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs.azure._expressions import Reference, Resolve

INTERPRETERS = {"python", "python3", "Rscript"}
"""Programs that run a script, whose arguments follow it."""
PLAIN_OPTIONS = {"-u", "-B", "-O", "--vanilla"}
PROGRAMS = {"cat", "cp", "echo", "ls", "mkdir", "mv", "touch"}
"""Programs that run nothing that their arguments say."""
_PLAIN = re.compile(r"[\w./:,@%+=~!*?\[\]^-]")
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*")
_REDIRECTION = re.compile(r"&>>?|[0-9]?>>|[0-9]?>(?:&[0-9](?=[\s;&|<>]|\Z))?(?!\|)|<(?![<(&])")
_OPERATOR = re.compile(r"&&|\|\||;(?!;)|\|(?!&)|\n")
_SCRIPT = re.compile(r"[\w./-]+\.(?:py|R|r)")
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_OWN_PROGRAM = re.compile(r"[\w.-]+(?:/[\w.-]+)+")
_SHELL = re.compile(r"(?:^|/)(?:\w*sh|env|python[\d.]*|perl|awk|xargs)$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
OF_AZURE = re.compile(r"AZURE_?ML_(?:IN|OUT)PUT_|DASKPRS_VALUE_")
VARIABLE = "DASKPRS_VALUE_{}"


class _Word(NamedTuple):
    """A word of a simple command."""

    text: str
    """The written word, with `MARK` in place of each value."""
    is_quoted: bool
    values: tuple[Reference, ...]
    is_target: bool
    """Whether output or input is redirected to it."""


def served_command(
    text: str, resolve: Resolve, is_path: Callable[[Reference], bool]
) -> tuple[str, dict[str, str]]:
    """Return a command without values, and the variables that hold them.

    An `ExpressionError` says which part of the command might be read as shell.
    """
    whole, values = marked(text, resolve)
    if OF_AZURE.search(text):
        msg = (
            "a served command names its inputs and outputs by ${{inputs.<name>}} and "
            "${{outputs.<name>}}, not by variables of Azure"
        )
        raise ExpressionError(msg)
    if not values:
        return whole, {}
    scanner = _Scanner(whole, [one for one, _ in values])
    line = scanner.line()
    for words in scanner.commands:
        _check(words, is_path)
    return line, {VARIABLE.format(at): value for at, (_, value) in enumerate(values)}


class _Scanner:
    """Reads a command from left to right, and collects its simple commands."""

    def __init__(self, text: str, values: list[Reference]) -> None:
        self._text = text
        self._values = values
        self._at = 0
        self.commands: list[list[_Word]] = [[]]
        self._word = ""
        self._found: list[Reference] = []
        self._is_quoted = self._is_target = False

    def line(self) -> str:
        """Return the command with the expansion of a variable for each value."""
        return "".join(self._pieces())

    def _pieces(self) -> Iterator[str]:
        text = self._text
        while self._at < len(text):
            begin, one = self._at, text[self._at]
            if one == MARK:
                yield f'"{self._value()}"'
            elif one == "'":
                yield from self._single()
            elif one == '"':
                yield from self._double()
            elif one == "\\" and self._at + 1 < len(text) and text[self._at + 1] != MARK:
                self._word += text[begin + 1] if text[begin + 1] != "\n" else ""
                self._is_quoted |= text[begin + 1] != "\n"
                self._at += 2
                yield text[begin : self._at]
            else:
                self._plain()
                yield text[begin : self._at]
        self._end_word()

    def _plain(self) -> None:
        """Read one piece outside of quotes."""
        text, at = self._text, self._at
        if text[at] in " \t":
            self._end_word()
            self._at += 1
        elif found := _REDIRECTION.match(text, at):
            if not found[0][0].isdigit() or not self._word:
                self._end_word()
                self._is_target = "&" not in found[0][1:]
                self._at = found.end()
            else:
                self._take(text[at], at + 1)
        elif found := _OPERATOR.match(text, at):
            self._end_word()
            self._end_command(found[0])
            self._at = found.end()
        elif (found := _PLAIN.match(text, at)) or (found := _VARIABLE.match(text, at)):
            self._take(found[0], found.end())
        else:
            raise self._refused(text[at : at + 2])

    def _take(self, text: str, end: int) -> None:
        self._word += text
        self._at = end

    def _single(self) -> Iterator[str]:
        """Read single quotes; a value in them is between two pairs of them."""
        text = self._text
        end = text.find("'", self._at + 1)
        if end < 0:
            raise self._refused("'")
        self._is_quoted = True
        self._at += 1
        yield "'"
        while self._at < end:
            begin = self._at
            if text[begin] == MARK:
                yield f"'\"{self._value()}\"'"
            else:
                self._take(text[begin], begin + 1)
                yield text[begin]
        self._at = end + 1
        yield "'"

    def _double(self) -> Iterator[str]:
        """Read double quotes, in which a value is expanded as it stands."""
        text = self._text
        self._is_quoted = True
        self._at += 1
        yield '"'
        while self._at < len(text) and text[self._at] != '"':
            begin, one = self._at, text[self._at]
            if one == MARK:
                yield self._value()
                continue
            is_escaped = one == "\\" and text[begin + 1 : begin + 2] == MARK
            if one == "`" or is_escaped or (one == "$" and not _VARIABLE.match(text, begin)):
                raise self._refused(text[begin : begin + 2])
            width = 2 if one == "\\" else 1
            self._take(text[begin : begin + width], begin + width)
            yield text[begin : self._at]
        if self._at >= len(text):
            raise self._refused('"')
        self._at += 1
        yield '"'

    def _value(self) -> str:
        """Read a value, and return the expansion of its variable."""
        end = self._text.index(MARK, self._at + 1)
        number = int(self._text[self._at + 1 : end])
        self._found.append(self._values[number])
        self._word += MARK
        self._at = end + 1
        return f"${{{VARIABLE.format(number)}}}"

    def _end_word(self) -> None:
        if self._word or self._is_quoted:
            word = _Word(self._word, self._is_quoted, tuple(self._found), self._is_target)
            self.commands[-1].append(word)
            self._word, self._found, self._is_quoted, self._is_target = "", [], False, False

    def _end_command(self, operator: str) -> None:
        """Refuse to send what a command with values writes to another program."""
        if operator == "|" and any(word.values for word in self.commands[-1]):
            raise self._refused("|")
        self._is_target = False
        self.commands.append([])

    def _refused(self, text: str) -> ExpressionError:
        return ExpressionError(
            f"{text!r}: a served command with values in it consists of plain words, quotes, "
            "redirections, && and ;, so that no value is ever read as shell. Move the rest into a "
            "script"
        )


def _check(words: list[_Word], is_path: Callable[[Reference], bool]) -> None:
    """Refuse a simple command that may read a value as anything but an argument."""
    values = [one for word in words for one in word.values]
    if not values:
        return
    for word in words:
        if word.is_target and not all(is_path(one) for one in word.values):
            msg = f"{word.values[0]}: output is not redirected to the value of a caller"
            raise ExpressionError(msg)
    plain = [word for word in words if not word.is_target]
    while plain and _ASSIGNMENT.match(plain[0].text) and not plain[0].values:
        plain = plain[1:]
    if not plain or not _takes_arguments(plain):
        known = ", ".join(sorted(INTERPRETERS | PROGRAMS))
        msg = (
            f"{values[0]}: a served command gives values to a script, as `python script.py "
            f"--flag {values[0]}`, to a program of its code, as `./program`, or to one of {known}"
        )
        raise ExpressionError(msg)


def _takes_arguments(words: list[_Word]) -> bool:
    """Say whether the first word is a program that takes all values of a command as arguments."""
    program, *rest = words
    if program.is_quoted or program.text not in INTERPRETERS:
        is_own = _OWN_PROGRAM.fullmatch(program.text) and not _SHELL.search(program.text)
        return not program.is_quoted and bool(program.text in PROGRAMS or is_own)
    while rest and rest[0].text in PLAIN_OPTIONS and not rest[0].is_quoted:
        rest = rest[1:]
    if rest and rest[0].text == "-m" and program.text != "Rscript":
        module = rest[1].text if len(rest) > 1 else ""
        is_ours = module.partition(".")[0] not in sys.stdlib_module_names  # such as timeit
        return is_ours and bool(_MODULE.fullmatch(module))
    return bool(rest) and bool(_SCRIPT.fullmatch(rest[0].text))
