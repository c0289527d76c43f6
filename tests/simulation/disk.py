"""A disk that keeps a record of all that is done to it, and can lose what was not synced.

The files lie in memory, and all reads are real. What changes a file or a name is recorded, in the
order in which it happened. So the disk can be put back to any moment, as it would be found after a
loss of power: with what was synced, and with some of the rest.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
from contextlib import contextmanager, suppress
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._system import atomic_file
from tests.simulation.world import Died, Process, now

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

WRITES = ("write", "truncate", "whole", "sync")
OPEN_TO = {"full": ("create", "write", "mkdir"), "torn": ("write",), "cannot": ("exchange",)}
"""The operations that these can befall; everything else befalls any."""
FULL_FOR = 4
"""Operations for which a disk is full."""
REAL = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "pwrite", "write", "ftruncate", "fdatasync", "fsync"),
        *("rename", "replace", "unlink", "remove", "mkdir", "rmdir", "link"),
    )
}
REAL_OPEN, REAL_EXCHANGE = io.open, atomic_file.exchanged


class Operation(NamedTuple):
    """Something that was done to the disk."""

    what: str
    given: tuple[Any, ...]
    """Nodes are numbers, and names are paths below the root."""


class Disk:
    """The files below a folder.

    Parameters
    ----------
    root
        The folder; it lies in memory.

    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self._prefix = f"{root}/"
        self.record: list[Operation] = []
        self._made = 0
        self._nodes: dict[str, int] = {"": 0}
        """The node of each name; the root is 0."""
        self._open: dict[int, int | None] = {}
        """The node of each descriptor."""
        self._owners: dict[int, tuple[Process, tuple[int, int]]] = {}
        """Whose descriptors they are, and the file of each."""
        self.driver = Process("no driver")
        self.strike: Callable[[str], str] = lambda _: ""
        """Returns what befalls the next operation of the driver, given what it does."""
        self.named: Callable[[str], None] = lambda _: None
        """Called with each name that a file has been given, or whose file has been emptied."""
        self.struck: list[tuple[str, str]] = []
        """What befell an operation, and which."""
        self.lies = False
        """Whether syncs do nothing."""
        self.cut_off: list[Process] = []
        """Processes that have lost their locks and may not know it."""
        self.is_full_for = 0
        """Operations of the driver that fail from here on, since the disk is full."""

    # ---- the record ----

    def adopt(self, found: dict[str, bytes | None]) -> None:
        """Record what lies below the root as if it were synced: it was there before.

        Parameters
        ----------
        found
            The content of each file by its name; None for a folder.

        """
        for name, body in sorted(found.items()):
            node = self._new(name)
            self._note("mkdir" if body is None else "create", node, name)
            if body is not None:
                self._note("whole", node, body)
                self._note("sync", node)
        for node in {0, *self._nodes.values()}:
            self._note("sync", node)

    def drop(self) -> None:
        """Remove all files, whether or not the record has them."""
        with suppress(OSError):  # else something was made in a way that is not recorded
            for name in sorted(self._nodes, reverse=True):
                place = f"{self.root}/{name}"
                try:
                    REAL["unlink"](place)
                except IsADirectoryError:
                    REAL["rmdir"](place)
            return
        shutil.rmtree(self.root, ignore_errors=True)

    def _note(self, what: str, *given: Any) -> None:
        self.record.append(Operation(what, given))

    def _new(self, name: str) -> int:
        self._made += 1
        self._nodes[name] = self._made
        return self._made

    def _name(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return the name of a path below the root; None for one that lies elsewhere."""
        text = path if type(path) is str else os.fsdecode(path)
        if dir_fd is not None and not text.startswith("/"):
            text = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{text}"  # noqa: PTH115
        if text == self._prefix[:-1]:
            return ""
        return text[len(self._prefix) :] if text.startswith(self._prefix) else None

    @staticmethod
    def _below(path: Any) -> Any:
        """Return the path that a process means by a relative one."""
        folder = now().process.folder
        text = os.fsdecode(path) if folder else "/"
        return path if text.startswith("/") else f"{folder}{text}"

    # ---- what befalls an operation ----

    def _begin(self, what: str, name: str) -> str:
        """Count an operation of the driver; let it fail, or the driver die, if that is due."""
        process = now().process
        if process.is_dead:
            raise Died
        if process is not self.driver:
            if process.pace is not None:
                now().wait(_never, process.pace())
            return ""
        how = self.strike(what)
        if how:
            self.struck.append((how, f"{what} {name}"))
        if how == "full":
            self.is_full_for = FULL_FOR
        if self.is_full_for and what in OPEN_TO["full"]:
            self.is_full_for -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        match how:
            case "die":
                process.die()
                raise Died
            case "error":
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)
            case "terminate":
                _terminate(process)
        return how

    def _end(self, how: str) -> None:
        if how == "die after":
            now().process.die()
            raise Died
        if how == "terminate after":
            _terminate(now().process)

    # ---- in place of the functions of the system ----

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Open a file."""
        path = self._below(path)
        name = self._name(path, dir_fd) if isinstance(path, str | bytes | os.PathLike) else None
        if name is None:
            fd: int = REAL["open"](path, flags, mode, dir_fd=dir_fd)
            self._open.pop(fd, None)  # a file object has closed the one that had this number
            self._owners.pop(fd, None)
            return fd
        _look(name)
        how = ""
        if flags & os.O_CREAT and name not in self._nodes:
            how = self._begin("create", name)
        fd = REAL["open"](path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT and name not in self._nodes:
            self._note("create", self._new(name), name)
            self.named(name)
        elif flags & os.O_TRUNC:
            self._note("truncate", self._nodes[name], 0)
            self.named(name)
        self._open[fd] = self._nodes.get(name)
        self._owners[fd] = now().process, _file(fd)
        self._end(how)
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        if self._open.pop(fd, None) is not None:
            self._owners.pop(fd)
            if now().process.is_dead:  # its end has closed it
                REAL["close"](fd)
                raise Died
        REAL["close"](fd)

    def pwrite(self, fd: int, piece: Any, offset: int) -> int:
        """Write at an offset."""
        node = self._open.get(fd)
        if node is None:
            written: int = REAL["pwrite"](fd, piece, offset)
            return written
        how = self._begin("write", str(node))
        body = bytes(piece)
        if how == "torn":
            body = body[: len(body) // 2]
        REAL["pwrite"](fd, body, offset)
        self._note("write", node, offset, body)
        if how == "torn":
            now().process.die()
            raise Died
        self._end(how)
        return len(body)

    def ftruncate(self, fd: int, length: int) -> None:
        """Cut a file."""
        node = self._open.get(fd)
        if node is not None:
            self._begin("truncate", str(node))
            self._note("truncate", node, length)
        REAL["ftruncate"](fd, length)

    def fsync(self, fd: int) -> None:
        """Sync a file or a folder."""
        node = self._open.get(fd)
        if node is None:
            name = self._name(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115
            node = None if name is None else self._nodes.get(name)
            if name is not None and node is not None:
                size = os.fstat(fd).st_size
                self._note("whole", node, REAL_OPEN(f"{self.root}/{name}", "rb").read(size))
        if node is None:
            return
        how = self._begin("sync", str(node))
        if not self.lies:
            self._note("sync", node)
        self._end(how)

    def rename(self, old: Any, new: Any, **folders: Any) -> None:
        """Give a file or folder another name."""
        one, other = self._name(old), self._name(new)
        if one is None or other is None:
            REAL["rename"](old, new, **folders)
            return
        how = self._begin("rename", other)
        REAL["rename"](old, new)
        self._note("rename", one, other)
        self._nodes = _renamed(self._nodes, one, other)
        self.named(other)
        self._end(how)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two names."""
        first, second = self._name(one), self._name(other)
        assert first is not None
        assert second is not None
        how = self._begin("exchange", second)
        if how == "cannot":
            return False
        done = REAL_EXCHANGE(one, other)
        if done:
            self._note("exchange", first, second)
            self._nodes = _exchanged(self._nodes, first, second)
            self.named(second)
        self._end(how)
        return done

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Remove a name of a file."""
        self._remove("unlink", path, dir_fd)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Remove a folder."""
        self._remove("rmdir", path, dir_fd)

    def _remove(self, what: str, path: Any, dir_fd: int | None) -> None:
        name = self._name(path, dir_fd)
        if name is None or name not in self._nodes:
            REAL[what](path, dir_fd=dir_fd)
            return
        how = self._begin(what, name)
        REAL[what](path, dir_fd=dir_fd)
        self._note(what, name)
        del self._nodes[name]
        self._end(how)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """Make a folder."""
        path = self._below(path)
        name = self._name(path, dir_fd)
        how = "" if name is None or name in self._nodes else self._begin("mkdir", name)
        REAL["mkdir"](path, mode, dir_fd=dir_fd)
        if name is not None:
            self._note("mkdir", self._new(name), name)
            self._end(how)

    def link(self, old: Any, new: Any, **more: Any) -> None:
        """Give a file one more name."""
        one, other = self._name(old), self._name(new)
        if one is None or other is None:
            REAL["link"](old, new, **more)
            return
        how = self._begin("link", other)
        REAL["link"](old, new, **more)
        self._note("link", one, other)
        self._nodes[other] = self._nodes[one]
        self.named(other)
        self._end(how)

    def open_file(self, file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
        """Open a file as Python's `open` does."""
        name = self._name(file) if isinstance(file, str | os.PathLike) else None
        if name is not None:
            _look(name)
        writes = name is not None and bool(set(mode) & set("wxa"))
        how = self._begin("create", str(name)) if writes else ""
        opened = REAL_OPEN(file, mode, *given, **more)
        # What had this number before was closed by its file object, not by `os.close`.
        self._open.pop(opened.fileno(), None)
        self._owners.pop(opened.fileno(), None)
        if writes and name is not None and name not in self._nodes:
            self._note("create", self._new(name), name)
        if writes and name is not None:
            self.named(name)
        self._end(how)
        return opened

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the functions of the system be those of this disk within the block."""
        new = {
            **{name: getattr(self, name) for name in REAL if hasattr(self, name)},
            "fdatasync": self.fsync,
            "replace": self.rename,
            "remove": self.unlink,
        }
        for name, function in new.items():
            setattr(os, name, function)
        io.open = self.open_file  # type: ignore[assignment]
        try:
            yield
        finally:
            for name, function in REAL.items():
                setattr(os, name, function)
            io.open = REAL_OPEN
            self.release()

    def release(self, process: Process | None = None) -> None:
        """Close what a dead process has open, and let go of its locks with it; None: all do."""
        for fd, (owner, file) in list(self._owners.items()):
            if process in (None, owner):
                del self._owners[fd], self._open[fd]
                with suppress(OSError):  # a file object has closed it
                    if _file(fd) == file:
                        REAL["close"](fd)

    def give_locks(self, process: Process) -> None:
        """Let others have the locks of a process, as a network file system does after a cut."""
        self.cut_off.append(process)
        for fd, (owner, _) in self._owners.items():
            if owner is process:
                with suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)

    def rot(self, path: Path, rng: random.Random) -> None:
        """Change a byte of a file, which nobody writes."""
        name = self._name(path)
        assert name is not None
        body = bytearray(path.read_bytes())
        place = rng.randrange(len(body))
        body[place] ^= 1 << rng.randrange(8)
        fd = REAL["open"](path, os.O_WRONLY)
        REAL["pwrite"](fd, body[place : place + 1], place)
        REAL["close"](fd)
        self._note("write", self._nodes[name], place, bytes(body[place : place + 1]))
        self.struck.append(("rot", name))

    # ---- after a loss of power ----

    def after_power_loss(
        self, count: int, folder: Path, rng: random.Random
    ) -> dict[str, bytes | None]:
        """Write the disk into a folder as it may be found when the power went; return what it has.

        Parameters
        ----------
        count
            The operations of the record that had happened.
        folder
            The new root.
        rng
            Decides what of the rest has reached the disk.

        """
        done = self.record[:count]
        names = [number for number, one in enumerate(done) if one.what not in WRITES]
        last = _last_durable(done)
        # Journaled file systems keep the order of names, so that a prefix of them is there.
        left = [number for number in names if number > last]
        kept = rng.choice([0, len(left), rng.randint(0, len(left))])
        cut = left[kept - 1] if kept else last
        there = _names([one for number, one in enumerate(done) if number <= cut])
        now_there, synced = _contents(done)
        found: dict[str, bytes | None] = {}
        folder.mkdir(parents=True)
        for name, node in sorted(there.items()):
            place = f"{folder}/{name}"
            if node < 0:
                found[name] = None
                REAL["mkdir"](place)
                continue
            body = _found(now_there.get(node, b""), synced.get(node, b""), rng)
            found[name] = body
            with REAL_OPEN(place, "wb") as file:
                file.write(body)
        return found


def _look(name: str) -> None:
    """Raise an error where the disk is not there for a process."""
    if now().process.is_blind:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _never() -> bool:
    return False


def _terminate(process: Process) -> None:
    """Send SIGTERM to a process; its main thread handles it at once."""
    process.signal(SIGTERM)
    if now().thread is None:
        process.heed()


def _file(fd: int) -> tuple[int, int]:
    """Return what tells the file of a descriptor from all others."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _renamed(nodes: dict[str, int], one: str, other: str) -> dict[str, int]:
    """Return the nodes after a rename, with all that lies below the name."""
    moved = {}
    for name, node in nodes.items():
        if name == one or name.startswith(f"{one}/"):
            moved[other + name[len(one) :]] = node
        elif name != other and not name.startswith(f"{other}/"):
            moved.setdefault(name, node)
    return moved


def _exchanged(nodes: dict[str, int], one: str, other: str) -> dict[str, int]:
    swap = {}
    for name, node in nodes.items():
        for old, new in ((one, other), (other, one)):
            if name == old or name.startswith(f"{old}/"):
                swap[new + name[len(old) :]] = node
                break
        else:
            swap[name] = node
    return swap


def _names(done: list[Operation]) -> dict[str, int]:
    """Return the nodes by name after some operations; the numbers of folders are negative."""
    there: dict[str, int] = {}
    for what, given in done:
        match what:
            case "create":
                there[given[1]] = given[0]
            case "mkdir":
                there[given[1]] = -given[0]
            case "rename":
                there = _renamed(there, *given)
            case "exchange":
                there = _exchanged(there, *given)
            case "link":
                there[given[1]] = there[given[0]]
            case "unlink" | "rmdir":
                there.pop(given[0], None)
    return there


def _last_durable(done: list[Operation]) -> int:
    """Return the number of the last operation on a name that the sync of a folder made durable."""
    folders, last, latest = {"": 0}, -1, dict[int, int]()
    """The folders by name, and the last operation on a name in each."""
    for number, (what, given) in enumerate(done):
        if what == "sync":
            last = max(last, latest.get(given[0], -1))
            continue
        if what in WRITES:
            continue
        named = given[1:] if what in ("create", "mkdir") else given
        for name in named:
            parent = name.rpartition("/")[0]
            if parent in folders:
                latest[folders[parent]] = number
        if what == "mkdir":
            folders[given[1]] = given[0]
        elif what == "rename":
            folders = _renamed(folders, *given)
        elif what == "exchange":
            folders = _exchanged(folders, *given)
    return last


def _contents(done: list[Operation]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the content of each node as programs see it, and as it was when it was synced."""
    seen: dict[int, bytearray] = {}
    synced: dict[int, bytes] = {}
    for what, given in done:
        match what:
            case "write":
                node, offset, body = given
                held = seen.setdefault(node, bytearray())
                if len(held) < offset:
                    held.extend(bytes(offset - len(held)))
                held[offset : offset + len(body)] = body
            case "truncate":
                node, length = given
                held = seen.setdefault(node, bytearray())
                del held[length:]
                held.extend(bytes(max(0, length - len(held))))
            case "whole":
                seen[given[0]] = bytearray(given[1])
            case "sync":
                synced[given[0]] = bytes(seen.get(given[0], b""))
    return {node: bytes(held) for node, held in seen.items()}, synced


def _found(seen: bytes, synced: bytes, rng: random.Random) -> bytes:
    """Return what is found in a file: all of it, what was synced, or some of what came after."""
    if seen == synced:
        return seen
    how = rng.randrange(5)
    if how == 0:
        return seen
    if how == 1 or not seen.startswith(synced):
        return synced
    rest = seen[len(synced) :]
    if how == 4:  # other bytes than were written, where a block was not
        damaged = bytearray(rest)
        damaged[rng.randrange(len(rest))] ^= 1 << rng.randrange(8)
        return synced + bytes(damaged)
    most = rng.randint(0, len(rest))
    # The length of a file may be on the disk before its bytes: these are zeros then.
    return synced + (rest[:most] if how == 2 else bytes(most))
