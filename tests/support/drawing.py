"""A drawing in SVG: boxes, texts and arrows on a card, for light and for dark readers."""

from __future__ import annotations

from html import escape

STYLE = """\
.card{fill:#fff;stroke:#d0d7de}
.text{fill:#1f2328}
.quiet{fill:#59636e}
.plain{fill:#f6f8fa;stroke:#b7bfc8}
.blue{fill:#ddf4ff;stroke:#54aeff}
.green{fill:#dafbe1;stroke:#4ac26b}
.amber{fill:#fff8c5;stroke:#d4a72c}
.red{fill:#ffebe9;stroke:#ff8182}
.line{fill:none;stroke:#59636e;stroke-width:1.5}
.head{fill:#59636e}
text{font:14px system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif}
.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.small{font-size:12px}
.bold{font-weight:600}
.good{fill:#1a7f37}
@media (prefers-color-scheme:dark){
.card{fill:#0d1117;stroke:#3d444d}
.text{fill:#f0f6fc}
.quiet{fill:#9198a1}
.plain{fill:#161b22;stroke:#59636e}
.blue{fill:#0c2d6b;stroke:#388bfd}
.green{fill:#0f3d1e;stroke:#2ea043}
.amber{fill:#43310a;stroke:#bb8009}
.red{fill:#5a1a1a;stroke:#da3633}
.line{stroke:#9198a1}
.head{fill:#9198a1}
.good{fill:#3fb950}
}"""
LINE_PX = 18
"""From one line of a text to the next."""


class Drawing:
    """A card of a fixed size, on which everything has its place in pixels.

    Parameters
    ----------
    width, height
        Of the card.
    title
        What the drawing shows, for those who cannot see it.

    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._parts: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, kind: str = "plain") -> None:
        """Draw a box."""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )

    def text(self, x: int, y: int, words: str, kind: str = "text", *, middle: bool = False) -> None:
        """Write lines of text; `y` is the baseline of the first one."""
        anchor = ' text-anchor="middle"' if middle else ""
        for number, line in enumerate(words.split("\n")):
            shown = escape(line, quote=False).replace(" ", "\N{NO-BREAK SPACE}")
            place = f'x="{x}" y="{y + number * LINE_PX}"'
            self._parts.append(f'<text class="{kind}" {place}{anchor}>{shown}</text>')

    def labelled(self, x: int, y: int, width: int, height: int, words: str, kind: str) -> None:
        """Draw a box with lines of text in its middle."""
        self.box(x, y, width, height, kind)
        lines = words.count("\n") + 1
        first = y + (height - lines * LINE_PX) // 2 + LINE_PX - 4
        self.text(x + width // 2, first, words, middle=True)

    def arrow(self, *points: tuple[int, int], both: bool = False) -> None:
        """Draw a line along some points, with a head at its end, or at both ends."""
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        start = ' marker-start="url(#head)"' if both else ""
        self._parts.append(f'<path class="line" d="{path}"{start} marker-end="url(#head)"/>')

    def svg(self) -> str:
        """Return the drawing."""
        size = f'viewBox="0 0 {self._width} {self._height}" width="{self._width}"'
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse">'
            '<path class="head" d="M0 0L8 4L0 8z"/></marker>'
        )
        card = (
            f'<rect class="card" x="0.5" y="0.5" width="{self._width - 1}" '
            f'height="{self._height - 1}" rx="8"/>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>\n{STYLE}\n</style>",
                f"<defs>{head}</defs>",
                card,
                *self._parts,
                "</svg>\n",
            ]
        )
