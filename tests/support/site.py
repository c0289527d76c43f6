"""The site, built: pages of HTML, notebooks, and for programs Markdown and an ``llms.txt``.

``python -m tests.support.site`` builds it into ``site/``, and fails with each warning.
``python -m tests.support.site --publish FOLDER`` also puts it into ``FOLDER/VERSION``, beside the
versions that are there.
"""

from __future__ import annotations

import argparse
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

import daskprs
from tests.support import notebooks
from tests.support.pages import FENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parents[2]
FETCHED = re.compile(r'<script src="https://[^"]*"[^>]*></script>')
"""What the generator has a page fetch for the search of a page that was opened from a file."""
OWN = "javascripts/search-from-a-file.js"
"""What does the same, and is part of the site."""
FIRST = "index.html"
MEMBERS = re.compile(r" +members: \[(.*)\]$")


class Page(NamedTuple):
    """A page of the site, as the navigation names it."""

    section: str
    title: str
    path: str
    """Its Markdown file, below ``docs/``."""


def navigation() -> list[Page]:
    """Return the pages in the order of the navigation."""
    config = yaml.load((HOME / "mkdocs.yml").read_text(), yaml.BaseLoader)  # noqa: S506 - makes texts alone

    def pages(entries: list[Any], section: str) -> Iterator[Page]:
        for entry in entries:
            ((title, below),) = entry.items()
            if isinstance(below, list):
                yield from pages(below, f"{section}: {title}" if section else title)
            else:
                yield Page(section, title, below)

    return list(pages(config["nav"], ""))


def build() -> Path:
    """Build the site, and return its folder.

    Raises
    ------
    SystemExit
        When the generator warns of something, such as a link that leads nowhere.

    """
    site = HOME / "site"
    words = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(
        words, cwd=HOME, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout.partition("Traceback (most recent call last)")[0])
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        page.write_text(FETCHED.sub(f'<script src="{up}{OWN}"></script>', page.read_text()))
    _write_texts(site)
    notebooks.add_to_site(site)
    return site


# ---- for programs ----


def twin(path: str) -> str:
    """Return the Markdown of a page, with the docstrings in place of what stands for them."""
    lines: list[str] = []
    fence = is_option = False
    named = ""
    for line in (HOME / "docs" / path).read_text().splitlines():
        fence ^= bool(FENCE.match(line))
        is_option = is_option and (line.startswith(" ") or not line)
        if line.startswith("::: ") and not fence:
            named = line[4:]
            lines += [f"## {named}", "", *_documented(named)]
            is_option = True
        elif is_option and (members := MEMBERS.match(line)):
            for member in filter(None, members[1].split(", ")):
                lines += [f"### {named}.{member}", "", *_documented(f"{named}.{member}")]
        elif not is_option:
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _documented(dotted: str) -> list[str]:
    """Return the signature and the docstring of a public name."""
    value: Any = pkgutil.resolve_name(dotted)
    signature = [f"    {inspect.signature(value)}", ""] if inspect.isroutine(value) else []
    return [*signature, *(inspect.getdoc(value) or "").splitlines(), ""]


def summary(text: str) -> str:
    """Return the first paragraph of a page, without links."""
    paragraphs = (part for part in text.split("\n\n") if not part.startswith(("#", "<", "!", "[")))
    first = " ".join(next(paragraphs, "").split())
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first)


def _write_texts(site: Path) -> None:
    """Write each page as Markdown beside its HTML, a list of them, and all of them in one file."""
    texts = {page: twin(page.path) for page in navigation()}
    listed, section = [f"# daskprs\n\n> {summary(texts[next(iter(texts))])}"], ""
    for page, text in texts.items():
        (site / page.path).write_text(text)
        if page.section != section:
            section = page.section
            listed.append(f"\n## {section}\n")
        listed.append(f"- [{page.title}]({page.path}): {summary(text)}")
    (site / "llms.txt").write_text("\n".join(listed) + "\n")
    whole = "\n\n".join(f"<!-- {page.path} -->\n\n{text}" for page, text in texts.items())
    (site / "llms-full.txt").write_text(whole)


# ---- versions ----


def publish(site: Path, folder: Path) -> None:
    """Put the site beside those of earlier versions, and have the newest one open by itself."""
    version = daskprs.__version__
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    listed = folder / "versions.json"
    there = json.loads(listed.read_text()) if listed.exists() else []
    versions = [version, *(one for one in there if one != version)]
    listed.write_text(json.dumps(versions) + "\n")
    older = "".join(f'<li><a href="{one}/{FIRST}">{one}</a></li>' for one in versions)
    folder.joinpath("versions.html").write_text(
        f"<!doctype html><title>Versions of daskprs</title><h1>Versions</h1><ul>{older}</ul>\n"
    )
    folder.joinpath(FIRST).write_text(
        "<!doctype html><title>daskprs</title>"
        f'<meta http-equiv="refresh" content="0; url={version}/{FIRST}">\n'
    )


def main() -> None:
    """Build the site, and publish it if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="the site of all versions")
    asked = parser.parse_args()
    site = build()
    if asked.publish is not None:
        asked.publish.mkdir(parents=True, exist_ok=True)
        publish(site, asked.publish)


if __name__ == "__main__":
    main()
