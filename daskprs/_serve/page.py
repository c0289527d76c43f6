"""The description of the service as a plain page that loads no other resource."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#8881;padding:.1em .3em}
pre{padding:1em;overflow:auto}table{border-collapse:collapse;width:100%}
td{border-top:1px solid #8884;padding:.3em .6em;vertical-align:top}summary{cursor:pointer}"""

AUTHORIZATION = """<p>This page, <a href='openapi.json'>its source</a>, <code>/health</code> and
<code>/ready</code> need no token. All else does:
<code>Authorization: Bearer &lt;token&gt;</code></p>"""


def page_of(description: Mapping[str, Any]) -> HTMLResponse:
    """Return the page of an OpenAPI description."""
    info = description["info"]
    body = "\n".join(
        [
            f"<h1>{_text(info['title'])}</h1><p>{_text(info['description'])}</p>",
            AUTHORIZATION,
            *_operations(description["paths"]),
            "<h2>Bodies</h2>",
            *_schemas(description["components"]["schemas"]),
        ]
    )
    title = _text(info["title"])
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<title>{title}</title><style>{STYLE}</style><body>{body}</body></html>"
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {_text(path)}</code></h2>"
            yield f"<p>{_text(operation.get('description', ''))}</p><table>"
            for one in operation.get("parameters", ()):
                meaning = one.get("description") or json.dumps(one["schema"])
                yield _row(f"{one['in']} {one['name']}", meaning)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield _row("body", _named(content["schema"]))
            for status, answer in operation["responses"].items():
                kinds = ", ".join(
                    _named(one["schema"]) for one in answer.get("content", {}).values()
                )
                yield _row(status, f"{answer['description']} {kinds}")
            yield "</table>"


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        text = html.escape(json.dumps(schema, indent=2))
        yield f"<details><summary>{_text(name)}</summary><pre>{text}</pre></details>"


def _named(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", schema.get("type", ""))).rpartition("/")[2]


def _row(name: str, meaning: str) -> str:
    return f"<tr><td><code>{_text(name)}</code></td><td>{_text(meaning)}</td></tr>"


def _text(text: str) -> str:
    return html.escape(str(text))
