"""Which files of a folder are left out: the rules of ``.amlignore`` and ``.gitignore``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

RULE_FILES = (".amlignore", ".gitignore")
"""The first one that is there counts, as Azure has it."""
ALWAYS = {".git", "__pycache__"}


class Rule(NamedTuple):
    """One line of a rule file."""

    pattern: re.Pattern[str]
    negated: bool
    only_folders: bool


class IgnoreRules:
    """Decides by the rules in the root of a folder.

    Parameters
    ----------
    root
        The folder.

    """

    def __init__(self, root: Path) -> None:
        self._rules: list[Rule] = []
        for name in RULE_FILES:
            file = root / name
            if file.is_file():
                lines = file.read_text("utf-8", "replace").splitlines()
                self._rules = [rule for line in lines if (rule := _rule(line)) is not None]
                break

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Say whether a path, relative to the root with ``/``, is left out; the last rule wins."""
        if path.rpartition("/")[2] in ALWAYS:
            return True
        ignored = False
        for rule in self._rules:
            if (is_folder or not rule.only_folders) and rule.pattern.fullmatch(path):
                ignored = not rule.negated
        return ignored


def _rule(line: str) -> Rule | None:
    """Return the rule of a line; None for an empty line or a comment."""
    if line.startswith("#"):
        return None
    text = re.sub(r"(?<!\\)\s+$", "", line)
    negated = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    body = _expression(text.removeprefix("/"))
    return Rule(re.compile(body if anchored else f"(?:.*/)?{body}"), negated, only_folders)


_TOKEN = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[!?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _expression(text: str) -> str:
    return "".join(_translated(token) for token in _TOKEN.findall(text))


def _translated(token: str) -> str:
    match token:
        case "**/":
            return "(?:.*/)?"
        case "/**":
            return "/.*"
        case "?":
            return "[^/]"
    if set(token) == {"*"}:
        return "[^/]*"
    if len(token) > 1 and token.startswith("["):
        return "[^" + token[2:] if token.startswith("[!") else token
    return re.escape(token.removeprefix("\\") if len(token) > 1 else token)
