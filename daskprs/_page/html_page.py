"""The report as one file that loads nothing else, for light and dark, screen and print."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from daskprs._page import pictures, tables
from daskprs._page.tables import Table, figures_of, short, shown
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._page.contents import Contents, Headline
    from daskprs._page.tables import Value

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "script-src "
)
STYLE = """
:root{color-scheme:light dark;--text:#1f2328;--page:#fff;--soft:#f4f6f8;--line:#d0d7de;
--quiet:#57606a;--good:#1a7f37;--bad:#c1281f}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--page:#0d1117;--soft:#161b22;
--line:#3d444d;--quiet:#9aa4ae;--good:#4cc263;--bad:#ff7b72}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--text);
background:var(--page);max-width:1080px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:32px 0 8px}
p{margin:8px 0}.quiet{color:var(--quiet)}.verdict{font-size:17px;margin:6px 0 14px}
.good{color:var(--good)}.bad{color:var(--bad)}.path{overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:8px;margin:14px 0}
dl div{background:var(--soft);border-radius:6px;padding:8px 10px}
dt{color:var(--quiet);font-size:13px}dd{margin:0;font-size:17px;overflow-wrap:anywhere}
pre,code{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}
pre{background:var(--soft);border-radius:6px;padding:10px 12px;margin:8px 0;overflow:auto}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:14px}
th,td{border-bottom:1px solid var(--line);padding:4px 18px 4px 0;text-align:left;
vertical-align:top}td.number,th.number{text-align:right}td{overflow-wrap:anywhere;max-width:36em}td.number{white-space:nowrap}td:not(.number){min-width:8em}
td code{white-space:nowrap}summary{cursor:pointer;font-weight:600;margin:8px 0}
:focus-visible{outline:2px solid #3d7fc4;outline-offset:2px}
@media print{body{max-width:none;padding:0}pre{white-space:pre-wrap}h2{break-after:avoid}
figure,tr{break-inside:avoid}}
""".replace("\n", "")


def page_of(contents: Contents, script: tuple[str, str] = ("'none'", "")) -> str:
    """Return a report as HTML.

    The page of a running job has what it allows to run, and the script that does so.
    """
    standing = contents.standing
    allowed, element = script
    name = contents.figures.record.script or contents.folder.path.name
    title = f"{name}: {standing.status}"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}{allowed}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<main id='report'>{''.join(_parts(contents, name))}</main>{element}</body></html>\n",
        ]
    )


def _parts(contents: Contents, name: str) -> Iterator[str]:
    standing = contents.standing
    kind = {"Completed": "good", "Running": ""}.get(standing.status, "bad")
    yield f"<h1>{escape(name)} <span class='{kind}'>{escape(standing.status)}</span></h1>"
    yield f"<p class='verdict'>{escape(standing.verdict)}</p>"
    if standing.way_on:
        yield f"<p>To go on: <code class='path'>{escape(standing.way_on)}</code></p>"
    yield f"<dl>{''.join(_figures(contents))}</dl>"
    if contents.headline is not None:
        yield from _headline(contents.headline)
    yield from _messages(contents)
    figures = contents.figures
    yield from _table(tables.causes(contents))
    yield "<h2>Over time</h2>"
    yield pictures.throughput(figures, contents.standing.unit) + pictures.processes(figures)
    yield from _table(tables.processes(contents), is_open=False)
    yield from _table(tables.nodes(contents))
    yield "<h2>Mini-batches</h2>"
    yield pictures.run_times(contents)
    yield from _table(tables.slowest(contents))
    if loads := pictures.loads(figures):
        yield f"<h2>Machines</h2>{loads}"
    yield from _table(tables.call(contents))
    yield from _table(tables.runs(contents))
    made = datetime.now(UTC)
    yield (
        f"<p class='quiet path'>Made of {escape(str(contents.folder))} at {made:%Y-%m-%d %H:%M:%S} "
        "UTC.</p>"
    )


def _figures(contents: Contents) -> Iterator[str]:
    for name, text in figures_of(contents):
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"


def _headline(headline: Headline) -> Iterator[str]:
    yield f"<h2>First cause</h2><p class='path'><strong>{escape(short(headline.error))}</strong>"
    place = f", at <code>{escape(headline.line)}</code>" if headline.line else ""
    yield f" in {escape(headline.where)}{place}.</p>"
    if headline.paths:
        yield f"<p class='path'>{escape(headline.files)}</p>"
    if headline.evidence:
        yield f"<pre tabindex='0'>{escape(headline.evidence)}</pre>"
    if headline.replay:
        yield f"<p>To run it again: <code class='path'>{escape(headline.replay)}</code></p>"


def _messages(contents: Contents) -> Iterator[str]:
    record = contents.figures.record
    told = (*contents.hints, *contents.standing.advice)
    if told:
        points = "".join(f"<li>{escape(text)}</li>" for text in told)
        yield f"<h2>What the figures show</h2><ul>{points}</ul>"
    first, last = record.first, record.last
    if not first:
        return
    each = [f"<li>{escape(one.level)}: {escape(one.text)}</li>" for one in (*first, *last)]
    if record.left_out:
        each.insert(len(first), f"<li>and {counted(record.left_out, 'message')} more</li>")
    yield f"<h2>Messages</h2><ul class='path'>{''.join(each)}</ul>"


def _table(table: Table, *, is_open: bool = True) -> Iterator[str]:
    """Yield a table under its title, or as one that can be opened."""
    if not table.rows:
        return
    numbers = [
        all(not isinstance(row[at], str) for row in table.rows) for at in range(len(table.columns))
    ]
    head = "".join(
        f"<th scope='col'{_class(is_number)}>{escape(name)}</th>"
        for name, is_number in zip(table.columns, numbers, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(_cell(*one) for one in zip(row, numbers, table.columns, strict=True))}</tr>"
        for row in table.rows
    )
    title = (
        f"<summary>{escape(table.title)}</summary>"
        if not is_open
        else f"<h2>{escape(table.title)}</h2>"
    )
    more = f"<p class='quiet'>{escape(table.note)}</p>" if table.note else ""
    whole = (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(table.title)}'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )
    yield f"{title}{whole}" if is_open else f"<details>{title}{whole}</details>"


def _cell(value: Value, is_number: bool, column: str) -> str:  # noqa: FBT001 - of each column
    text = shown(value)
    inner = f"<code>{escape(text)}</code>" if text and column == "to run it again" else escape(text)
    return f"<td{_class(is_number)}>{inner}</td>"


def _class(is_number: bool) -> str:  # noqa: FBT001
    return " class='number'" if is_number else ""
