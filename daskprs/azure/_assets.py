"""The local places of the paths, assets, datastores and environments in Azure's files."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from daskprs._suggest import nearest, nearest_of
from daskprs._system.interpreter import NoInterpreter, interpreter_at
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import Form, filled, works
from daskprs.azure._yaml_files.mistakes import Mistake, whole
from daskprs.errors import UsageError, YamlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

RELATIVE = re.compile(r"azureml:\.\.?(/|$)")
"""A path as `dump` of the azure-ai-ml package writes it."""
SHORT = re.compile(r"azureml:(?P<name>[^/:@][^:@]*)([:@](?P<version>.+))?")
NAMED = re.compile(r"(?P<name>[^/:@]+)[:@](?P<version>[^/:@]+)")
"""The same without its prefix, where it is not the path of a file or folder: see `bare_name`."""
IN_DATASTORE = re.compile(r"azureml://(.*/)?datastores/(?P<store>[^/]+)(/paths/(?P<path>.*))?")
LONG = re.compile(
    r"azureml:/(/.*)?/(?P<name>[^/]+)/(versions/(?P<version>[^/]+)|labels/(?P<label>[^/]+))/?"
)
IN_REGISTRY = re.compile(r"azureml://registries/[^/]+/[^/]+/(?P<name>[^/]+)/?")
"""A reference to an asset in a registry, whatever its version."""
DEFAULT_DATASTORE = "workspaceblobstore"
"""The default datastore of a workspace, by the name that Azure gives it."""
LONGEST_NAME_BYTES = 255
"""The limit of file systems for one name in a path."""


class Unresolved(UsageError):  # noqa: N818 - it says what happened
    """A reference whose local path is unknown."""


class AssetFile(Form):
    """The mapping file."""

    assets: dict[str, str] = works(
        default_factory=dict,
        note="local paths of assets; a key is a name, `name:version` or a whole reference",
    )
    datastores: dict[str, str] = works(
        default_factory=dict, note="local root folders of datastores"
    )
    environments: dict[str, str] = works(
        default_factory=dict,
        note="interpreters for environments, or folders that contain an interpreter",
    )


class NamedEnvironment(NamedTuple):
    """The environment of a step or a deployment, and the interpreter that stands for it."""

    name: str
    """Its name in messages."""
    names: tuple[str, ...]
    """Every name by which it can be given, the most exact first."""
    given: str | None = None
    """The one by which an interpreter is given."""
    python: str | None = None
    """That interpreter; None where the Python that runs daskprs is used."""

    @property
    def way(self) -> str:
        """The option of the command line that gives the environment an interpreter."""
        return f"--environment {shlex.quote(self.name)}=PYTHON"


@dataclass(frozen=True)
class Assets:
    """The known local paths of assets and datastores, and interpreters of environments."""

    paths: Mapping[str, str] = field(default_factory=dict)
    """Paths of assets by name, ``name:version`` or whole reference."""
    datastores: Mapping[str, str] = field(default_factory=dict)
    """Local roots of datastores, by name."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of environments, by name."""
    needed: frozenset[str] = frozenset()
    """The environments that the caller gives for these files: one without a user is a mistake."""

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Assets:
        """Read a mapping file, whose paths are relative to the file; refuse all its mistakes."""
        document = Document.read(path)
        form = whole(*filled(AssetFile, document.content or {}, document))
        base = Path(path).absolute().parent
        try:
            environments = _interpreters(base, form.environments)
        except UsageError as error:
            place = document.place(("environments",))
            raise YamlError(str(Mistake(place, "environments", str(error)))) from error
        return cls(_below(base, form.assets), _below(base, form.datastores), environments)

    def and_also(
        self,
        paths: Mapping[str, str],
        datastores: Mapping[str, str],
        environments: Mapping[str, str] | None = None,
    ) -> Assets:
        """Return these assets with others that override them, relative to the working directory."""
        here = Path.cwd()
        pythons = _interpreters(here, environments or {})
        return Assets(
            {**self.paths, **_below(here, paths)},
            {**self.datastores, **_below(here, datastores)},
            {**self.environments, **pythons},
            self.needed | pythons.keys(),
        )

    def for_several_files(self) -> Assets:
        """Return these assets for files of which some do not use every environment."""
        return replace(self, needed=frozenset())

    def environment(self, given: Any, base: Path, user: str) -> NamedEnvironment:
        """Return the environment that a file names or defines for a step or a deployment.

        `base` is the folder that paths in a definition are relative to. A `user` without an
        environment in the file has one by its own name.
        """
        names = [*dict.fromkeys(_names_of(given, base))] or [user]
        name = next((one for one in names if not re.search("[:@/]", one)), names[0])
        found = next((one for one in names if one in self.environments), None)
        python = None if found is None else self.environments[found]
        return NamedEnvironment(name, tuple(names), found, python)

    def unused_environments(self, used: Iterable[NamedEnvironment]) -> Iterator[tuple[str, str]]:
        """Yield each option of an environment that nothing uses, with the problem."""
        used = [*used]
        known = [*dict.fromkeys(one.name for one in used)]
        for name in sorted(self.needed - {one.given for one in used}):
            problem = f"nothing here has an environment {name!r}; {nearest_of(name, known)}"
            yield f"--environment {name}", problem

    def place(
        self, reference: str, base: Path, store_root: Callable[[str], Path] | None = None
    ) -> Path:
        """Return the local path that a reference means; the path need not exist.

        Relative paths start from `base`. `store_root` returns the root of a datastore without a
        known root. Without it such a reference is unresolved, as is a web address.
        """
        path = self._place(reference, base, store_root)
        for name in path.parts:
            size = len(name.encode(errors="surrogatepass"))
            if size > LONGEST_NAME_BYTES:
                msg = (
                    f"{name!r} has {size} bytes, and the name of a file or folder has at most "
                    f"{LONGEST_NAME_BYTES}: use a shorter one."
                )
                raise UsageError(msg)
        return path

    def _place(self, reference: str, base: Path, store_root: Callable[[str], Path] | None) -> Path:
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
        return self._named(reference, base) or base / Path(reference).expanduser()

    def _named(self, reference: str, base: Path) -> Path | None:
        """Return the path of a known asset that is named without a prefix.

        None stands for other texts: they are paths, maybe of what a job makes.
        """
        found = bare_name(reference, base)
        with suppress(Unresolved):
            return found and self._asset(reference, found)
        return None

    def located(self, url: str) -> str | None:
        """Return the local path of a URL in a file; None where neither it nor a folder is known."""
        for known in sorted(self.paths, key=len, reverse=True):
            root = known.rstrip("/")
            if "://" in known and (url == known or url.startswith(f"{root}/")):
                below = url[len(root) :].rstrip("/")
                if ".." in PurePosixPath(below).parts:
                    msg = f"{url}: the path climbs out of {known}."
                    raise UsageError(msg)
                return self.paths[known].rstrip("/") + below
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
        if below.is_absolute() or ".." in (store, *below.parts):
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


def bare_name(reference: str, base: Path) -> re.Match[str] | None:
    """Return the parts of ``name:1`` or ``name@latest``; None where that is a path that exists."""
    found = NAMED.fullmatch(reference)
    return None if found is None or os.path.lexists(base / reference) else found


def given_places(
    assets: Assets | Mapping[str, str | PathLike[str]] | str | PathLike[str] | None,
    datastores: Mapping[str, str | PathLike[str]] | None = None,
    environments: Mapping[str, str | PathLike[str]] | None = None,
) -> Assets:
    """Return the assets that Python code gives: by name or in a mapping file, with the others."""
    known = Assets.read(assets) if isinstance(assets, str | PathLike) else assets
    places = None if isinstance(known, Assets) else known
    base = known if isinstance(known, Assets) else Assets()
    return base.and_also(as_texts(places), as_texts(datastores), as_texts(environments))


def as_texts(given: Mapping[str, str | PathLike[str]] | None) -> dict[str, str]:
    """Return paths by name as text."""
    return {name: str(value) for name, value in (given or {}).items()}


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
    return {_bare(name): str(base / path) for name, path in paths.items()}


def _bare(name: str) -> str:
    return name if "://" in name else name.removeprefix("azureml:")


# ---- environments ----


def _interpreters(base: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreters of environments, by names without the prefix of references."""
    return {_bare(name): _interpreter(name, base, place) for name, place in given.items()}


def _interpreter(name: str, base: Path, place: str) -> str:
    path = base / Path(place).expanduser()
    is_there = os.path.exists(path)  # noqa: PTH110 - it never raises
    is_program = os.sep not in place and not is_there  # such as python3.8
    try:
        found = interpreter_at(place if is_program else path)
        if os.path.isfile(found) and os.access(found, os.X_OK):  # noqa: PTH113
            return found
        problem = f"{found} {'cannot be executed' if is_there else 'does not exist'}"
    except NoInterpreter as error:
        problem = f"{path} does not exist, and {error}" if is_program else str(error)
    hint = "" if is_there else nearest(path)
    msg = (
        f"the environment {name!r}: {problem}.{hint} Give an interpreter, or the folder of a "
        "virtual environment or of a conda environment."
    )
    raise UsageError(msg)


def _names_of(given: Any, base: Path) -> Iterator[str]:
    """Yield the names of an environment in a file: those of a reference, or of a definition.

    A definition goes by its name, else by its conda file, else by its image.
    """
    if isinstance(given, str):
        yield from _names_of_reference(given, base)
    elif isinstance(given, dict):
        conda, image = given.get("conda_file"), given.get("image")
        yield from _with_version(given.get("name"), given.get("version"))
        if isinstance(conda, str):
            conda = conda.removeprefix("file:")
            yield from _paths_of(conda, base)
            conda = _content(base / conda)
        yield from _with_version(conda.get("name") if isinstance(conda, dict) else None, None)
        yield from [image] if isinstance(image, str) else []


def _names_of_reference(reference: str, base: Path) -> Iterator[str]:
    for form in (SHORT, LONG, IN_REGISTRY):
        if found := form.fullmatch(reference):
            groups = found.groupdict()
            yield reference
            yield from _with_version(groups["name"], groups.get("version") or groups.get("label"))
            return
    path = reference.removeprefix("file:")
    if path.endswith((".yml", ".yaml")):
        yield from _names_of(_content(base / path), (base / path).parent)
        yield from _paths_of(path, base)
    else:
        yield reference
        yield re.split("[:@]", reference)[0]


def _with_version(name: Any, version: Any) -> Iterator[str]:
    """Yield a name with its version, then alone."""
    if name and version:
        yield from (f"{name}:{version}", f"{name}@{version}")
    if name:
        yield str(name)


def _paths_of(path: str, base: Path) -> Iterator[str]:
    """Yield a path as a person in the working directory would write it."""
    place = os.path.abspath(base / path)  # noqa: PTH100 - without the ".." in it
    yield from (os.path.relpath(place), f"./{os.path.relpath(place)}", place)


def _content(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, an empty one where it has none."""
    try:
        content = Document.read(path).content
    except UsageError:
        return {}  # nothing else in the file is of interest here
    return content if isinstance(content, dict) else {}
