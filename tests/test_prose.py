"""Plain sentences: a subject, a verb, an object, and things called by their names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATTERNS = {
    "a number or a time as in 'so many'": r"\b[Ss]o (many|long)\b",
    "'is no x', where the thing is 'not an x'": r"(?<!here )\b(is|are) no (?!longer|more)[a-z]+",
    "a person who is nobody": r"\b([Nn]obody|[Ss]omebody)\b",
    "'told' for logged, reported, received": r"\b(is|are|be|been) told\b|\b[Tt]ells? (of|that)\b",
    "an 'Of' in front of its sentence": r"(?m)(^|[.:;] |\"\"\")\s*Of (a|all|each|the|those|what)\b",
}
LEFT = {
    "a number or a time as in 'so many'": 0,
    "'is no x', where the thing is 'not an x'": 0,
    "a person who is nobody": 0,
    "'told' for logged, reported, received": 0,
    "an 'Of' in front of its sentence": 0,
}
"""Places that are still to be rewritten. This number only falls: new prose has none of them."""


def test_new_prose_is_plain() -> None:
    """Sentences that needed a second reading had one of these in them, more often than not."""
    files = [*ROOT.glob("daskprs/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    texts = [path.read_text() for path in files]
    found = {
        name: sum(len(re.findall(pattern, text)) for text in texts)
        for name, pattern in PATTERNS.items()
    }
    more = {name: (count, LEFT[name]) for name, count in found.items() if count > LEFT[name]}
    assert not more, f"found and allowed: {more}. Write the sentence anew; see CONTRIBUTING.md."
    assert found == LEFT, f"fewer than before: write {found} into LEFT"
