"""The local places of the paths, assets and datastores in Azure's files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from daskprs.errors import UsageError
from daskprs.suggest import nearest, nearest_of
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Form, filled, works
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

RELATIVE = re.compile(r"azureml:\.\.?(/|$)")
"""A path as `dump` of the azure-ai-ml package writes it."""
SHORT = re.compile(r"azureml:(?P<name>[^/:@][^:@]*)([:@](?P<version>.+))?")
IN_DATASTORE = re.compile(r"azureml://(.*/)?datastores/(?P<store>[^/]+)(/paths/(?P<path>.*))?")
LONG = re.compile(
    r"azureml:/(/.*)?/(?P<name>[^/]+)/(versions/(?P<version>[^/]+)|labels/(?P<label>[^/]+))/?"
)
IN_REGISTRY = re.compile(r"azureml://registries/[^/]+/[^/]+/(?P<name>[^/]+)/?")
"""A reference to an asset in a registry, whatever its version."""


class Unresolved(UsageError):  # noqa: N818 - it says what happened
    """A reference whose local path is unknown."""


class AssetFile(Form):
    """The mapping file."""

    assets: dict[str, str] = works(
        default_factory=dict, note="paths by name, `name:version` or whole reference"
    )
    datastores: dict[str, str] = works(default_factory=dict, note="local roots of datastores")


@dataclass(frozen=True)
class Assets:
    """The known local paths of assets and datastores."""

    paths: Mapping[str, str] = field(default_factory=dict)
    """Paths of assets by name, ``name:version`` or whole reference."""
    datastores: Mapping[str, str] = field(default_factory=dict)
    """Local roots of datastores, by name."""

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Assets:
        """Read a mapping file, whose paths are relative to the file; refuse all its mistakes."""
        document = Document.read(path)
        form, mistakes = filled(AssetFile, document.content or {}, document)
        refuse(mistakes)
        form = form or AssetFile()
        base = Path(path).absolute().parent
        return cls(_below(base, form.assets), _below(base, form.datastores))

    def and_also(self, paths: Mapping[str, str], datastores: Mapping[str, str]) -> Assets:
        """Return these assets with others that override them, relative to the working directory."""
        here = Path.cwd()
        return Assets(
            {**self.paths, **_below(here, paths)}, {**self.datastores, **_below(here, datastores)}
        )

    def place(
        self, reference: str, base: Path, store_root: Callable[[str], Path] | None = None
    ) -> Path:
        """Return the local path that a reference means; the path need not exist.

        Relative paths start from `base`. `store_root` returns the root of a datastore without a
        known root. Without it such a reference is unresolved, as is a web address.
        """
        if "\0" in reference:
            msg = f"{reference!r} is not a path: it has a null character in it."
            raise UsageError(msg)
        if reference in self.paths:
            return Path(self.paths[reference])
        if RELATIVE.match(reference):
            reference = reference.removeprefix("azureml:")
        if found := IN_DATASTORE.fullmatch(reference):
            return self._in_datastore(reference, found, store_root)
        for form in (SHORT, LONG, IN_REGISTRY):
            if found := form.fullmatch(reference):
                return self._asset(reference, found)
        if reference.startswith("azureml:"):
            msg = f"{reference!r} is not a reference such as azureml:name:1 or azureml:name@latest"
            raise Unresolved(msg)
        if reference.startswith("file:"):
            path = reference.removeprefix("file:")
            return base / (unquote(urlsplit(reference).path) if path.startswith("//") else path)
        if "://" in reference:
            msg = (
                f"{reference} is not on this machine. Download it, and give its place by --asset "
                f"{reference}=PATH, or in a mapping file by --assets."
            )
            raise Unresolved(msg)
        return base / Path(reference).expanduser()

    def located(self, url: str) -> str | None:
        """Return the local path of a URL in a file; None where neither it nor a folder is known."""
        for known in sorted(self.paths, key=len, reverse=True):
            root = known.rstrip("/")
            if "://" in known and (url == known or url.startswith(f"{root}/")):
                return self.paths[known].rstrip("/") + url[len(root) :].rstrip("/")
        found = IN_DATASTORE.fullmatch(url)
        is_known = found is not None and found["store"] in self.datastores
        return str(self.place(url, Path())) if is_known else None

    def file(self, reference: str, base: Path) -> Path:
        """Return the local path of an existing file, or refuse the reference."""
        path = self.place(reference, base)
        try:
            is_there = path.is_file()
        except OSError as error:  # a name that is too long, say
            raise UsageError(str(error)) from error
        if not is_there:
            msg = f"the file {str(path)!r} does not exist.{nearest(path)}"
            raise UsageError(msg)
        return path

    def _in_datastore(
        self, reference: str, found: re.Match[str], store_root: Callable[[str], Path] | None
    ) -> Path:
        store, below = found["store"], PurePosixPath(unquote(found["path"] or "."))
        if store in self.datastores:
            root = Path(self.datastores[store])
        elif store_root is not None:
            root = store_root(store)
        else:
            near = _near(store, self.datastores)
            msg = (
                f"{reference}: the datastore {store!r} has no local root.{near} Give it by "
                f"--datastore {store}=FOLDER, or the place of this path alone by "
                f"--asset {reference}=PATH; or either in a mapping file by --assets."
            )
            raise Unresolved(msg)
        if below.is_absolute() or ".." in below.parts:
            msg = f"{reference}: the path climbs out of the datastore {store!r}."
            raise UsageError(msg)
        return root / below

    def _asset(self, reference: str, found: re.Match[str]) -> Path:
        groups = found.groupdict()
        name = groups["name"]
        version = groups.get("version") or groups.get("label")
        keys = (f"{name}:{version}", f"{name}@{version}", name) if version else (name,)
        for key in keys:
            if key in self.paths:
                return Path(self.paths[key])
        msg = (
            f"{reference}: the place of this asset is unknown.{_near(name, self.paths)} Give "
            f"its place by --asset {keys[0]}=PATH, or in a mapping file by --assets."
        )
        raise Unresolved(msg)


def _near(name: str, known: Mapping[str, str]) -> str:
    """Return a hint for an unknown name as a sentence."""
    hint = nearest_of(name, [*known]) if known else ""
    return f" {hint[:1].upper()}{hint[1:]}{'' if hint.endswith('?') else '.'}" if hint else ""


def split_asset(word: str) -> tuple[str, str] | None:
    """Return the two sides of ``NAME=PATH``; a URL may have an equals sign of its own."""
    name, equals, path = word.rpartition("=") if "://" in word else word.partition("=")
    return (name, path) if name and equals and path else None


def _below(base: Path, paths: Mapping[str, str]) -> dict[str, str]:
    """Return absolute paths, by names without the prefix of references to assets."""
    return {
        name if "://" in name else name.removeprefix("azureml:"): str(base / path)
        for name, path in paths.items()
    }
