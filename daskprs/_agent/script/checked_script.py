"""The entry script as the caller gives it: checked before anything starts, then made to travel."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import io
import linecache
import os
import platform
import re
import sys
import types
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from daskprs._agent.child.entry_script import ScriptWithFunctions, returns_coroutines, takes_one
from daskprs._agent.child.wrapped_functions import reduced
from daskprs._agent.protocol.messages import ScriptSpec, SourceText
from daskprs._agent.script.checked_source import THREAD_SAFE, check_run, check_source, names_in
from daskprs._agent.script.own_modules import OwnModules
from daskprs._agent.script.snapshot import (
    LARGEST_BYTES,
    archive_of,
    content_hash,
    copy_snapshot,
    digests_of,
    is_seen,
    linked_files,
    own_output,
    refuse_too_large,
    source_files,
    unpack,
)
from daskprs._output.journal.changes import is_log
from daskprs._output.rows.definitions import digest_of
from daskprs._output.rows.own_classes import name_class_of_program
from daskprs._suggest import nearest
from daskprs.errors import Option, ScriptError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daskprs._agent.protocol.messages import LinkedFile, PackageFolder

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
SHOWN = 5
NAMELESS = "<dynamic-code>"
"""The file name that cloudpickle writes since 3.1.3; tracebacks need the true name."""


@dataclass
class CheckedScript:
    """An entry script that can be run."""

    name: str
    """``score.py``, ``src.score``, or the name of the object."""
    root: Path | None = None
    """The source directory."""
    file: str | None = None
    """The script in it, relative to it."""
    module: str | None = None
    pickled: bytes | None = None
    digest: str = ""
    """The digest of what `pickled` holds."""
    sources: tuple[SourceText, ...] = ()
    """The code that `pickled` holds, as its author wrote it."""
    called_in: str = ""
    """The working directory of who has given an object."""
    packages: tuple[PackageFolder, ...] = ()
    """The folders where `pickled` finds packages by name."""
    original: Path | None = None
    """The source directory of which `root` is a copy; None where `root` is the original."""
    data_folders: tuple[Path, ...] = ()
    """Data folders, left out of the snapshot unless the source directory or script is in them."""
    inputs: tuple[Path, ...] = ()
    """Resolved paths of the input, left out of the snapshot unless the script may import them: a
    module, or a package folder."""
    any_second: bool = False
    """Whether any second parameter of `run` is for the context, as in Azure's entry scripts."""
    names: frozenset[str] = frozenset()
    """The names, also of attributes, in the script's file, or in `run` of an object."""
    functions: frozenset[str] = frozenset()
    """The names of the methods of an object."""
    cost: str = ""
    """The function that is called in place of `run`, and says what rows cost; empty: `run` is."""
    is_async: bool = False
    """Whether `run` is a coroutine function."""
    is_thread_safe: bool = False
    """Whether the script says, by ``thread_safe = True``, that threads may call `run`."""
    _files: dict[str, int] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _linked: tuple[LinkedFile, ...] = ()
    """The large files, of which a snapshot has links."""
    _set_aside: set[Path] = field(default_factory=set)
    """The files of `inputs` that do not travel."""

    def look(self, exclude: Collection[Path]) -> None:
        """Find and hash the files that travel."""
        if self.root is None:
            return
        around = {self.root, *(self.root / (self.file or "")).parents}
        data = {path.resolve() for path in self.data_folders} - around
        self._set_aside = {path for path in self.inputs if not _is_importable(path)} - around
        data |= self._set_aside
        try:
            with self._without_change():
                self._files = source_files(self.root, {*exclude, *data})
                self._digests = digests_of(self.root, self._files)
                self._linked = linked_files(self.root, self._files)
        except OSError as error:
            raise ScriptError(
                Option("source_directory", str(self.root)),
                f": {error.filename} cannot be read: {error.strerror}. Make it readable, or list "
                "it in a .amlignore file.",
            ) from error

    @contextmanager
    def _without_change(self) -> Iterator[None]:
        """Refuse a source directory from which a file goes while it is read."""
        try:
            yield
        except FileNotFoundError as error:
            raise ScriptError(
                Option("source_directory", str(self.root)),
                f": {error.filename} has gone while the folder was copied. Call again, or list "
                "such files in a .amlignore file.",
            ) from error

    def fingerprint(self) -> dict[str, Any]:
        """Return the script's content digests (after `look`); empty ones for our own log files.

        Other logs are left out: they grow, and the script is the same.
        """
        ours = {} if self.root is None else dict.fromkeys(own_output(self.root), "")
        files = {path: one for path, one in self._digests.items() if not is_log(path)}
        return {"name": self.name, "files": files | ours, "object": self.digest}

    def is_input(self, path: str) -> bool:
        """Say whether a file in the source directory is there, and does not travel as input."""
        if self.root is None:
            return False
        place = (self.root / path).resolve()
        return place.exists() and not self._set_aside.isdisjoint([place, *place.parents])

    def travel(self, folder: Path) -> ScriptSpec:
        """Copy the source directory to a snapshot, and return what agents need (after `look`)."""
        if self.root is None:
            return self.at(None)
        places = {file.path: f"{self._digests[file.path]} {file.place}" for file in self._linked}
        digest = content_hash(self._digests | places)
        with self._without_change():
            return self.at(copy_snapshot(self.root, self._files, folder, digest, self._linked))

    def packed(self) -> bytes:
        """Return an archive of the source directory (after `look`); empty without one.

        Large files are in it, unless they are too large to travel: see `unpacked`.
        """
        if self.root is None:
            return b""
        linked = {file.path for file in self._left_out()}
        with self._without_change():
            return archive_of(self.root, (path for path in self._files if path not in linked))

    def unpacked(self, archive: bytes, folder: Path) -> Path:
        """Return the source directory out of its archive, below a folder of this node.

        Raise `ScriptError` if this node does not see a file that was too large for the archive.
        """
        for file in self._left_out():
            if not is_seen(file) and self.root is not None:
                why = f", and {platform.node()} does not see {file.place} as it was"
                refuse_too_large(self.root, self._files, why)
        return unpack(archive, folder, self._left_out())

    def _left_out(self) -> tuple[LinkedFile, ...]:
        """Return the files that an archive does not have."""
        return self._linked if sum(self._files.values()) > LARGEST_BYTES else ()

    def at(self, snapshot: Path | None) -> ScriptSpec:
        """Return the script for the agents; `snapshot` is its copy, if it has one."""
        spec = ScriptSpec(
            self.name,
            module=self.module,
            pickled=self.pickled,
            sources=self.sources,
            called_in=self.called_in,
            any_second=self.any_second,
            packages=self.packages,
            cost=self.cost,
        )
        if snapshot is None:
            return spec
        return spec._replace(
            file=None if self.file is None else str(snapshot / self.file),
            source_directory=str(snapshot),
            original_directory=str(self.original or self.root),
            linked=self._linked,
        )


def _is_importable(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").exists()


def check_script(
    script: Any,
    source_directory: str | os.PathLike[str] | None,
    *,
    compiles_elsewhere: bool = False,
) -> CheckedScript:
    """Return the script; a `ScriptError` says why it cannot be run.

    A script that `compiles_elsewhere` may have the syntax of another version of Python.
    """
    if isinstance(script, CheckedScript):
        return script
    root = None if source_directory is None else _folder(Path(source_directory))
    if isinstance(script, types.ModuleType):
        script = getattr(script, "__file__", None) or script.__name__
    if isinstance(script, (str, os.PathLike)):
        text = os.fspath(script)
        is_folder = Path(text).is_dir() and not Path(text, "__init__.py").exists()
        if not text.endswith(".py") and DOTTED.fullmatch(text) and not is_folder:
            return _from_module(text, root, compiles_elsewhere)
        return _from_file(Path(text), root, compiles_elsewhere)
    return _from_object(script, root)


def check_script_of(
    data: Any,
    script: Any,
    source_directory: str | os.PathLike[str] | None,
    *,
    compiles_elsewhere: bool = False,
) -> CheckedScript:
    """Return the script; ask about swapped arguments if the input looks like a script.

    In Python the input comes first, on the command line the script.
    """
    try:
        return check_script(script, source_directory, compiles_elsewhere=compiles_elsewhere)
    except ScriptError as error:
        like_a_script = _like_a_script(data)
        if like_a_script is None or _like_a_script(script) is not None:
            raise
        names = f"{_named(script)} is given as the script, and {_named(like_a_script)} as input."
        seen = _is_object(script) or Path(script).exists()
        before = () if seen else (*error.args, " ")
        raise ScriptError(*before, f"{names} Is it the other way round?") from error


def _like_a_script(given: Any) -> Any:
    """Return the first of the inputs that looks like a script, or None."""
    for one in given if isinstance(given, (list, tuple)) else [given]:
        if _is_object(one):
            # The method of its class: a frame may have a column of this name.
            has_run = callable(getattr(type(one), "run", None))
            if callable(one) or has_run or isinstance(one, types.ModuleType):
                return one
        elif _names_a_script(os.fspath(one)):
            return one
    return None


def _names_a_script(text: str) -> bool:
    if not text.endswith(".py") and not Path(text).exists() and DOTTED.fullmatch(text):
        text = text.replace(".", "/") + ".py"
    return text.endswith(".py") and Path(text).is_file()


def _is_object(given: Any) -> bool:
    return not isinstance(given, (str, os.PathLike))


def _named(given: Any) -> str:
    """Return how a message names an input or a script."""
    if not _is_object(given):
        return repr(os.fspath(given))
    if isinstance(given, (list, tuple)):
        return f"a {type(given).__name__}"
    if callable(given):
        return f"{getattr(given, '__name__', type(given).__name__)!r}"
    return f"a {type(given).__module__.partition('.')[0]}.{type(given).__qualname__}"


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ScriptError(Option("source_directory", str(path)), ": this folder does not exist.")
    return path.resolve()


def _from_file(path: Path, root: Path | None, elsewhere: bool) -> CheckedScript:  # noqa: FBT001
    if not path.exists() and root is not None and (root / path).exists():
        path = root / path
    if not path.is_file():
        if path.is_dir():
            inside = ", ".join(sorted(str(one) for one in path.glob("*.py"))[:SHOWN])
            msg = f"the entry script {str(path)!r} is a folder. Name a file in it: {inside or '…'}."
        else:
            msg = f"the entry script {str(path)!r} does not exist.{nearest(path, '.py', root)}"
        raise ScriptError(msg)
    path = path.resolve()
    source = check_source(path, elsewhere=elsewhere, by_path=True)
    root = root or path.parent
    if not path.is_relative_to(root):
        outside = f"the entry script {path} does not lie in "
        raise ScriptError(outside, Option("source_directory", str(root)), ".")
    return CheckedScript(path.name, root, file=str(path.relative_to(root)), **source)


def _from_module(name: str, root: Path | None, elsewhere: bool) -> CheckedScript:  # noqa: FBT001
    """Find a dotted module in the source directory, the working directory, or what is installed."""
    relative, folder = Path(*name.split(".")), root or Path.cwd()
    for candidate in (relative.with_suffix(".py"), relative / "__init__.py"):
        if (folder / candidate).is_file():
            source = check_source(folder / candidate, elsewhere=elsewhere)
            return CheckedScript(name, folder, file=str(candidate), module=name, **source)
    try:
        installed = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        installed = None
    if installed is None or not installed.origin or not installed.origin.endswith(".py"):
        missing = f"the module {name!r} is neither in {folder} nor installed."
        hint = nearest((root or Path()) / relative, ".py")
        more = " Give the path of the script, or where its module is by "
        raise ScriptError(missing, *((hint,) if hint else (more, Option("source_directory"), ".")))
    source = check_source(Path(installed.origin), elsewhere=elsewhere)
    return CheckedScript(name, module=name, **source)


def _from_object(script: Any, root: Path | None) -> CheckedScript:
    whole = script
    if isinstance(script, ScriptWithFunctions):
        script = script.script
    run = script if inspect.isroutine(script) else getattr(script, "run", None)
    if run is None and callable(script) and not inspect.isclass(script):
        run = script
    name = getattr(script, "__qualname__", None) or type(script).__qualname__
    if not callable(run):
        msg = (
            f"{name}: the entry script is a path, a module name, a callable, or an object or class "
            "with a method run(mini_batch). Rename the __call__ of a class to run."
        )
        raise ScriptError(msg)
    method = inspect.getattr_static(script, "run", None) if inspect.isclass(script) else None
    bound = method.__get__(object()) if isinstance(method, types.FunctionType) else run
    check_run(name, yields=inspect.isasyncgenfunction(run), takes_one=takes_one(bound))
    own = OwnModules(script, root)
    pickled, digest, sources = _pickled(whole, name, own)
    names = names_in(getattr(inspect.unwrap(bound), "__code__", None))
    return CheckedScript(
        name,
        root,
        pickled=pickled,
        digest=digest,
        sources=sources,
        called_in=str(Path.cwd()),
        packages=own.packages,
        names=names,
        functions=_functions_of(script),
        is_async=returns_coroutines(run),
        is_thread_safe=getattr(script, THREAD_SAFE, False) is True,
    )


def _functions_of(script: Any) -> frozenset[str]:
    """Return the names of the functions that an object or class has for its own."""
    if inspect.isroutine(script):
        return frozenset()
    names = (name for name in dir(script) if not name.startswith("__"))
    return frozenset(name for name in names if callable(getattr(script, name, None)))


class _CodePickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle is not typed
    """Pickles as cloudpickle does, and keeps the functions and the names of their files."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.files: set[str] = set()
        self.functions: list[types.FunctionType] = []

    def reducer_override(self, value: Any) -> Any:
        """Note a function, and the file of code."""
        if isinstance(value, types.FunctionType):
            self.functions.append(value)
        if isinstance(value, types.CodeType):
            self.files.add(value.co_filename)
            make, arguments = self.dispatch_table[types.CodeType](value)
            named = (value.co_filename if one == NAMELESS else one for one in arguments)
            return make, tuple(named)
        if isinstance(value, type):
            name_class_of_program(value)
        by_name = reduced(value)
        return super().reducer_override(value) if by_name is None else by_name


def _pickled(script: Any, name: str, own: OwnModules) -> tuple[bytes, str, tuple[SourceText, ...]]:
    """Return cloudpickle's bytes of an entry script, a digest, and the text of the code in them.

    The digest is the same in another process, such as the kernel of a notebook after its restart:
    the bytes have the names of files and cells, random names of classes, and sets in any order.
    """
    file = io.BytesIO()
    pickler = _CodePickler(file)
    try:
        with own.by_value():
            pickler.dump(script)
            digest = digest_of(script, lambda _: False)
    except Exception as error:  # any class of the caller has its own error where it has no pickle
        msg = (
            f"{name} cannot be sent to the agents{_culprit(pickler.functions)}: "
            f"{type(error).__name__}: {error}. Make what it holds (a lock, a connection, an open "
            "file) in init(), or put the script into a file."
        )
        raise ScriptError(msg) from error
    sources = (_source_of(one) for one in sorted(pickler.files) if not own.installed(one))
    pickled = file.getvalue()
    digest = digest or hashlib.sha256(pickled).hexdigest()[:24]
    return pickled, digest, tuple(source for source in sources if source.text)


def _culprit(functions: list[types.FunctionType]) -> str:
    """Return which variable of which function has no pickle; empty if it is none of these.

    The function that was met last comes first: others have no pickle because of this one.
    """
    for function in reversed(functions):
        with suppress(ValueError):  # a variable of an outer function has no value yet
            used = inspect.getclosurevars(function)
            for name, value in {**used.globals, **used.nonlocals}.items():
                try:
                    cloudpickle.dumps(value)
                except Exception:  # noqa: BLE001 - as above
                    return f", since {function.__qualname__} uses {name!r}"
    return ""


def _source_of(file: str) -> SourceText:
    """Return the text of a file or of a cell; empty where it is unknown, as for typed code."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    cell = None if shell is None else shell.compile.format_code_name(file)
    linecache.checkcache(file)  # a notebook reloads modules that were edited since its last job
    return SourceText(file, " ".join(cell or ()), "".join(linecache.getlines(file)))
