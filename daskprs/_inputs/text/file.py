"""One file of text, read at byte offsets: on a disk, remote, compressed, or in another encoding."""

from __future__ import annotations

import codecs
import zlib
from contextlib import contextmanager
from gzip import GzipFile
from lzma import FORMAT_XZ, LZMADecompressor, LZMAError
from typing import IO, TYPE_CHECKING, Any, cast
from zipfile import BadZipFile, ZipFile

import pyarrow as pa

from daskprs._inputs.files.file_versions import refuse_changed, refuse_changed_after_error
from daskprs._inputs.files.suffixes import begins_as, compression_of, magic_of, suffix_of
from daskprs._inputs.source.input_file import READ_AHEAD_BYTES, open_binary
from daskprs.errors import InputChanged, InputError, LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._inputs.source.input_file import InputFile

BYTEWISE = {
    *("utf-8", "utf-8-sig", "ascii", "iso8859-1", "iso8859-15"),
    *("cp1250", "cp1251", "cp1252", "cp1254"),
}
"""Encodings in which a byte below 128 is always that very character."""
SKIP_BYTES = 1 << 20
HEAD_BYTES = 10
"""First bytes of a file that show what it is."""
WHOLE_BYTES = 4 << 20
"""An input up to this size is its own sample."""
STREAMS = 32
"""Streams that are read to find the size of their text; each is a request to a store."""


def size_of(file: InputFile, encoding: str) -> int | None:
    """Return the size in bytes of the text of a file; None for a stream."""
    is_stream = compression_of(file.path) is not None or not _is_bytewise(encoding)
    return None if is_stream else file.size_bytes


def is_small(files: Sequence[InputFile], encoding: str) -> bool:
    """Say whether an input is so small that its sample is the whole input.

    Compressed text counts by the bytes of the text, as plain text does.
    """
    sizes = [size_of(file, encoding) for file in files]
    left = WHOLE_BYTES - sum(size for size in sizes if size is not None)
    streams = [file for file, size in zip(files, sizes, strict=True) if size is None]
    if len(streams) > STREAMS or sum(file.size_bytes or 0 for file in streams) > left:
        return False
    for file in streams:
        if (size := _size_of_stream(file, encoding, left)) is None:
            return False
        left -= size
    return left >= 0


def _size_of_stream(file: InputFile, encoding: str, most: int) -> int | None:
    """Return the bytes of the text of a stream; None for more than `most`, or unreadable ones."""
    text = TextFile(file, encoding)
    try:
        size = len(text.read(0, most + 1))
    except EndsEarly as short:
        size = short.end
    except (LoadError, OSError):  # who samples the file says so
        return None
    finally:
        text.close()
    return size if size <= most else None


def encoding_of_bytes(encoding: str) -> str:
    """Return the encoding of the bytes that `TextFile` gives."""
    if not _is_bytewise(encoding) or codecs.lookup(encoding).name == "utf-8-sig":
        return "utf-8"
    return encoding


def _is_bytewise(encoding: str) -> bool:
    """Say whether text can be cut at bytes that look like a line break."""
    return codecs.lookup(encoding).name in BYTEWISE


class EndsEarly(LoadError):  # noqa: N818 - it says what happened
    """A compressed stream ends before its last byte: the file was cut short.

    The bytes before the end are correct, since they were all decoded. A stream whose bytes do not
    decode, or whose checksum is wrong, raises a plain `LoadError`.
    """

    body = b""
    """The bytes that could be read from the requested offset."""
    end = 0
    """Number of bytes of text that the file gives."""


class TextFile:
    """Reads bytes at offsets.

    A stream is a file that can only be read from its beginning: it is compressed, or its encoding
    cannot be cut bytewise. Its offsets are those of the decompressed text, in UTF-8.
    """

    def __init__(self, file: InputFile, encoding: str) -> None:
        self.path = file.path
        self.size_bytes = size_of(file, encoding)
        """Size in bytes; None for a stream."""
        self._input = file
        self._encoding = encoding
        self._file: IO[bytes] | None = None
        self._raw: IO[bytes] | None = None
        """The raw file; `_file` is its decoded content."""
        self._at = 0

    @property
    def is_stream(self) -> bool:
        """Whether the file can only be read from its beginning."""
        return self.size_bytes is None

    def read(self, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the file only.

        A compressed file that is cut short before the end of these bytes raises `EndsEarly`, and
        any other unreadable file a `LoadError`; a file that has changed, `InputChanged`.
        """
        if self.size_bytes is not None:
            length = max(0, min(length, self.size_bytes - start))
        pieces: list[bytes] = []
        try:
            self._read(start, length, pieces)
        except EndsEarly as short:
            refuse_changed_after_error(self._input, self._raw)
            short.body, short.end = b"".join(pieces), self._at
            raise
        except (OSError, EOFError, pa.ArrowException) as error:
            refuse_changed_after_error(self._input, self._raw)
            msg = f"{self.path}: it cannot be read beyond byte {self._at}: {error}"
            raise LoadError(msg) from error
        whole = b"".join(pieces)
        if self.size_bytes is not None and len(whole) < length:
            refuse_changed_after_error(self._input, self._raw)
            msg = f"{self.path} is shorter than it was: it ends before byte {start + length}."
            raise LoadError(msg)
        return whole

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Compare the open file with the plan after it was read, and after an error."""
        try:
            yield
        except InputChanged:
            raise
        except LoadError:
            refuse_changed_after_error(self._input, self._raw)
            raise
        if self._raw is not None:
            refuse_changed(self._input, self._raw)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        if self._raw is not None:
            self._raw.close()
        self._file = self._raw = None

    def _read(self, start: int, length: int, pieces: list[bytes]) -> None:
        """Append bytes to `pieces`, including those before an error."""
        file = self._opened(start)
        if not self.is_stream:
            file.seek(start)
            self._at = start
        while length > 0 and (piece := file.read(length)):
            pieces.append(piece)
            length -= len(piece)
            self._at += len(piece)

    def _opened(self, start: int) -> IO[bytes]:
        if self._file is None or (self.is_stream and start < self._at):
            self.close()
            # A stream is read to its end, each request for more of it.
            self._raw = open_binary(self.path, None if self.is_stream else READ_AHEAD_BYTES)
            refuse_changed(self._input, self._raw)
            self._file = self._stream(self._raw) if self.is_stream else self._raw
            self._at = 0
        while self.is_stream and self._at < start:
            skipped = len(self._file.read(min(SKIP_BYTES, start - self._at)))
            if skipped == 0:
                break
            self._at += skipped
        return self._file

    def _stream(self, raw: IO[bytes]) -> IO[bytes]:
        compression = compression_of(self.path)
        if compression is not None:
            self._refuse_other_bytes(raw)
            opened = _Unpacked if compression in ("xz", "zip") else _Decompressed
            raw = cast("IO[bytes]", opened(raw, self.path, compression))
        if _is_bytewise(self._encoding):
            return raw
        return cast("IO[bytes]", _Utf8(raw, self.path, self._encoding))

    def _refuse_other_bytes(self, raw: IO[bytes]) -> None:
        """Refuse a file that is not compressed in the way that its suffix says."""
        head, suffix = raw.read(HEAD_BYTES), suffix_of(self.path)
        raw.seek(0)
        if not begins_as(suffix, head):
            own = magic_of(head)
            what = f"it begins as {own} files do" if own else f"it begins with {head!r}"
            msg = f"{self.path}: {what}, and not as {suffix} files do. Rename it."
            raise LoadError(msg)


@contextmanager
def opened_to_sample(file: InputFile, encoding: str) -> Iterator[TextFile]:
    """Open a file while the job is planned: what cannot be read is an `InputError`."""
    text = TextFile(file, encoding)
    try:
        _refuse_other_text(text)
        yield text
    except (LoadError, OSError) as error:
        raise InputError(str(error)) from error
    finally:
        text.close()


def _refuse_other_text(text: TextFile) -> None:
    """Refuse bytes that are compressed, or text of two or four bytes for each character."""
    if text.is_stream:
        return
    head = text.read(0, HEAD_BYTES)
    if own := magic_of(head):
        what = "a Parquet file" if own == ".parquet" else f"compressed, as {own} files are"
        msg = f"{text.path}: it is {what}. Rename it so that its suffix says so: {own}."
        raise InputError(msg)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head[:4]:
        is_wide = head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))
        wide = "utf-32" if is_wide else "utf-16"
        msg = f"{text.path}: it looks like text in {wide.upper()}. Say "
        raise InputError(msg, Option("encoding", wide), ".")


class _Unpacked:
    """The bytes of a compressed file that Python itself reads, one piece at a time."""

    def __init__(self, raw: IO[bytes], path: str, compression: str) -> None:
        self._path = path
        self._compression = compression
        self._at = 0
        try:
            self._file = _XzStreams(raw) if compression == "xz" else _only_member(raw, path)
        except BadZipFile as error:
            raise LoadError(self._unreadable(error)) from error

    def read(self, length: int) -> bytes:
        try:
            piece: bytes = self._file.read1(min(length, SKIP_BYTES))
        except EOFError:
            msg = (
                f"{self._path}: the {self._compression} stream ends early, after {self._at} bytes "
                "of text: the file was cut short. Copy it again, or compress it anew."
            )
            raise EndsEarly(msg) from None
        except (LZMAError, BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
            raise LoadError(self._unreadable(error)) from error
        self._at += len(piece)
        return piece

    def close(self) -> None:
        self._file.close()

    def _unreadable(self, error: Exception) -> str:
        return f"{self._path}: it cannot be read beyond byte {self._at} of its text: {error}"


class _XzStreams:
    """The text of all streams of an .xz file.

    Python's own `LZMAFile` stops without an error if another stream does not follow at once. The
    rows behind padding by zeros, which the format allows, or behind damage would be lost.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._stream = LZMADecompressor(FORMAT_XZ)
        self._ahead = b""
        """Bytes of the file that belong to the stream that has begun."""

    def read1(self, length: int) -> bytes:
        """Return some bytes of text; none at the end of the file."""
        while not self._stream.eof or self._begins_another():
            packed = b""
            if self._stream.needs_input:
                packed, self._ahead = self._ahead or self._raw.read(SKIP_BYTES), b""
                if not packed:
                    raise EOFError
            if piece := self._stream.decompress(packed, length):
                return piece
        return b""

    def _begins_another(self) -> bool:
        """Begin the next stream, behind padding of four zeros each; say whether there is one."""
        rest, zeros = self._stream.unused_data, 0
        while True:
            begin = rest.lstrip(b"\0")
            zeros += len(rest) - len(begin)
            if begin or not (rest := self._raw.read(SKIP_BYTES)):
                break
        if zeros % 4:
            msg = f"{zeros} zeros stand behind a stream, and padding has four or a multiple"
            raise LZMAError(msg)
        if begin:
            self._stream, self._ahead = LZMADecompressor(FORMAT_XZ), begin
        return bool(begin)

    def close(self) -> None:
        """Do nothing: the raw file is closed by its owner."""


def _only_member(raw: IO[bytes], path: str) -> Any:
    """Open the only file in an archive, as pandas does."""
    archive = ZipFile(raw)
    names = [one.filename for one in archive.infolist() if not one.is_dir()]
    names = [name for name in names if not name.startswith("__MACOSX/")]
    if len(names) != 1:
        msg = f"{path}: a .zip file of a table has one file in it, and this one {len(names)}."
        raise LoadError(msg)
    try:
        return archive.open(names[0])
    except (RuntimeError, NotImplementedError) as error:  # it has a password, say
        msg = f"{path}: {error}"
        raise LoadError(msg) from error


class _Counted:
    """A file that Arrow reads, and the number of bytes that were read."""

    closed = False

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.read_bytes = 0
        self.is_at_end = False

    def read(self, length: int) -> bytes:
        piece = self._raw.read(length)
        self.read_bytes += len(piece)
        self.is_at_end = not piece
        return piece

    def close(self) -> None:
        self.closed = True


class _Decompressed:
    """The decompressed bytes of a file, up to the last byte that can be decoded.

    Arrow drops the decoded bytes of a piece that ends in an error. Such a piece is hence read
    again, byte by byte, and the error is raised behind it.
    """

    def __init__(self, raw: IO[bytes], path: str, compression: str) -> None:
        self._raw = raw
        self._path = path
        self._compression = compression
        self._at = 0
        self._error: Exception | None = None
        self._is_over = False
        self._open()

    def _open(self) -> None:
        self._raw.seek(0)
        self._counted = _Counted(self._raw)
        file = pa.PythonFile(self._counted, mode="r")
        self._stream = pa.CompressedInputStream(file, self._compression)

    def read(self, length: int) -> bytes:
        if self._error is not None:
            raise self._error
        if self._is_over:
            return b""
        length = min(length, SKIP_BYTES)
        try:
            piece: bytes = self._stream.read(length)
        except (OSError, pa.ArrowException) as error:
            self._error = error
            piece = self._decodable(length)
            if self._compression == "gzip" and self._is_padded(self._at + len(piece)):
                self._error, self._is_over = None, True
            elif not piece:
                raise self._error from None
        if length and not piece and not self._counted.read_bytes:
            self._error = self._ends_early()  # even the stream of an empty text has bytes
            raise self._error
        self._at += len(piece)
        return piece

    def _decodable(self, length: int) -> bytes:
        """Return the bytes before the error, and find out whether the stream ends early."""
        self.close()
        self._open()
        piece = bytearray()
        left = self._at
        try:
            while left and (skipped := self._stream.read(min(SKIP_BYTES, left))):
                left -= len(skipped)
            while not left and len(piece) < length and (byte := self._stream.read(1)):
                piece += byte
        except (OSError, pa.ArrowException):
            if self._counted.is_at_end:
                self._error = self._ends_early()
            return bytes(piece)
        return b""  # the error does not come again, so these bytes stay unknown

    def _is_padded(self, length: int) -> bool:
        """Say whether zeros alone stand behind a text of this length, as tapes are padded."""
        self._raw.seek(0)
        try:
            with GzipFile(fileobj=self._raw) as file:
                while piece := file.read1(SKIP_BYTES):
                    length -= len(piece)
        except (OSError, EOFError, zlib.error):
            return False
        return length == 0

    def _ends_early(self) -> EndsEarly:
        msg = (
            f"{self._path}: the {self._compression} stream ends early, after "
            f"{self._counted.read_bytes} bytes: the file was cut short. Copy it again, or "
            "compress it anew."
        )
        return EndsEarly(msg)

    def close(self) -> None:
        self._stream.close()
        self._counted.close()


class _Utf8:
    """A file of text in any encoding, read as UTF-8."""

    def __init__(self, raw: IO[bytes], path: str, encoding: str) -> None:
        self._raw = raw
        self._path = path
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._left = b""
        self._read = 0
        self._lines = 1

    def read(self, length: int) -> bytes:
        while len(self._left) < length:
            try:
                piece = self._raw.read(SKIP_BYTES)
            except EndsEarly:
                if self._left:
                    break  # the next call raises the error
                raise
            self._read += len(piece)
            self._left += self._decoded(piece)
            if not piece:
                break
        piece, self._left = self._left[:length], self._left[length:]
        return piece

    def close(self) -> None:
        self._raw.close()

    def _decoded(self, piece: bytes) -> bytes:
        try:
            text = self._decoder.decode(piece, final=not piece).encode()
        except UnicodeError as error:
            raise LoadError(self._undecoded(error)) from error
        self._lines += text.count(b"\n")
        return text

    def _undecoded(self, error: UnicodeError) -> str:
        if not isinstance(error, UnicodeDecodeError):
            return f"{self._path}, after line {self._lines}: {error}"
        good = error.object[: error.start].decode(error.encoding, "ignore")
        line = self._lines + good.count("\n")
        offset = self._read - len(error.object) + error.start
        return (
            f"{self._path}, line {line}: byte {offset} is not in the encoding {self._encoding}: "
            f"{error.reason}. Say encoding= if it is another one."
        )
