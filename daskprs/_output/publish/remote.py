"""An output folder that is a URL: make the file here, and upload it when it is finished.

The means that keep a job's output whole work on files of this machine. So the output file is
published in the job folder first, and from there under its URL. An object store shows an upload
when it is complete; any other file system gets it under another name first. The upload is recorded
before and after, so that a resume can tell its own file from one that was there.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daskprs._output.journal.history import MANIFEST
from daskprs._output.publish.open_uploads import HOLD_OPEN, OpenUploads, read_record
from daskprs._output.publish.output_file import it_exists, it_is_a_folder
from daskprs._output.spool import checksum_of
from daskprs._system.atomic_file import write_json
from daskprs._system.regular_files import read_json
from daskprs._system.stores import no_bucket, open_store
from daskprs.errors import Option, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PUBLISH_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"}
"""Object stores, where an object appears only when its upload is complete."""
_PART = re.compile(r"\.?part-\d{5,}-([0-9a-f]{8})\..*")
"""The names of part files, and of those that are half uploaded."""
VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")


class RemoteOutput:
    """The output folder of a job, and the file in it; no file if only the script writes.

    Raise `OutputError` when no installed file system can reach the folder.
    """

    def __init__(self, url: str, name: str | None) -> None:
        self.url = url.rstrip("/")
        self.file = None if name is None else f"{self.url}/{name}"
        """The URL of the output file."""
        self.done = name is None
        """Whether the file is in place."""
        self.has_rest = False
        """Whether the new data set is in place, beside files of an earlier one."""
        self.complaint = ""
        """The problem, if any, that did not keep the file from its place."""
        self.how_far = ""
        """The progress of the upload, in a few words; read by another thread."""
        self._filesystem, self._place = _opened(self.file or self.url)

    def open_uploads(self, _records: Path, _timeout_s: float) -> OpenUploads | None:
        """Return the uploads of parts while the job runs; None where nothing can send them."""
        return None

    def check(self, record: Path, *, overwrite: bool) -> None:
        """Refuse an output file that exists already, unless it may be replaced.

        Raise `OutputError` also when the store cannot be asked. In `record` a job records its
        uploads: a file that it has uploaded does not count.
        """
        if self.file is None or overwrite:
            return
        info = self._info()
        if info is not None and not self._is_ours(info, read_record(record)):
            raise it_exists(self.file)

    def check_bucket(self) -> None:
        """Refuse a bucket that does not exist: the upload would fail after all the work."""
        lacking = "" if self.file is None else no_bucket(self._filesystem, self._place)
        if lacking:
            msg = f":{lacking} Create the bucket, or use another."
            raise OutputError(Option("output_dir", self.url), msg)

    def begin(self, record: Path, *, overwrite: bool) -> None:
        """Record what the job may replace: its resume may replace the same."""
        replaced = self._foreign(record) if overwrite and self.file is not None else ""
        if replaced:
            write_json(record, {**read_record(record), "url": self.file, "replaces": replaced})

    def _foreign(self, record: Path) -> str:
        """Return the version of a file that is there, and that this job has not uploaded."""
        info = self._info()
        return "" if self._is_ours(info, read_record(record)) else _version(info)

    def publish(self, made: Path, record: Path, *, overwrite: bool) -> None:
        """Upload a finished file, unless it was uploaded before and is still there.

        Raise `OutputError` when the upload fails. The file stays where it was made, and a resume
        uploads it.
        """
        written, info = read_record(record), self._info()
        with made.open("rb") as file:
            size, checksum = checksum_of(file)
        known = {"url": self.file, "size": size, "checksum": checksum}
        same = "replaces" not in written or written["replaces"] != _version(info)
        same &= written.items() >= known.items()
        if not (same and self._is_ours(info, written)):
            self.check(record, overwrite=overwrite)
            write_json(record, {**known, "replaces": _version(info)})
            self._upload(made, self._place, made, callback=self._sent())
            info = self._info()
            if info is None or info["size"] != size:
                msg = f"{self.file} is not what was uploaded: {size} bytes are expected."
                raise OutputError(msg)
        self.done = True
        with suppress(OSError):  # a resume finds out by comparing
            write_json(record, {**known, "version": _version(info)})

    def _upload(self, made: Path, place: str, shown: Path, **words: Any) -> None:
        """Upload a finished file; the error shows where it lies."""
        try:
            if PUBLISH_WHOLE.isdisjoint(_protocols(self._filesystem)):
                folder, _, name = place.rpartition("/")
                part = f"{folder}/.{name}.part"
                self._filesystem.makedirs(folder, exist_ok=True)
                self._filesystem.put_file(str(made), part, **words)
                self._filesystem.mv(part, place)
            else:
                self._filesystem.put_file(str(made), place, **words)
        except Exception as error:  # each store has errors of its own
            msg = (
                f"the output cannot be uploaded to {self.file}: {error}. It lies finished in "
                f"{shown}: resume the job to upload it."
            )
            raise OutputError(msg) from error

    def _sent(self) -> Any:
        """Return a callback of fsspec that notes how much is uploaded."""
        from fsspec.callbacks import Callback

        def note(size: int, value: int, **_: object) -> None:
            self.how_far = f"{value >> 20:,} of {(size or 0) >> 20:,} MB"

        return Callback(hooks={"note": note})

    def _is_ours(self, info: dict[str, Any] | None, written: dict[str, Any]) -> bool:
        """Say whether this job uploaded the existing file, even if it died before it knew."""
        if info is None or written.get("url") != self.file:
            return False
        if written.get("replaces") and written["replaces"] == _version(info):
            return True  # the new file has not replaced it
        if written.get("size") != info["size"]:
            return False
        if written.get("version"):
            return bool(written["version"] == _version(info))
        with self._filesystem.open(self._place, "rb") as file:
            return checksum_of(file) == (written["size"], written["checksum"])

    def _info(self) -> dict[str, Any] | None:
        try:
            self._filesystem.invalidate_cache()
            found: dict[str, Any] = self._filesystem.info(self._place)
        except FileNotFoundError:
            return None
        except Exception as error:  # each store has errors of its own
            raise self._out_of_reach(error) from error
        if found["type"] != "directory":
            return found
        raise it_is_a_folder(self.file)

    def _out_of_reach(self, error: Exception) -> OutputError:
        return OutputError(Option("output_dir", self.url), f" cannot be reached: {error}")


class RemoteParts(RemoteOutput):
    """The output folder of a job whose output is a data set: a folder of files with a manifest.

    Where a store holds uploads open, they have been sent while the job ran, and are completed now.
    Files get their place first, the manifest last. Then what the manifest replaces is removed. The
    record names every publication that was begun, so that each step can be done again.
    """

    def __init__(self, url: str, name: str | None) -> None:
        super().__init__(url, name)
        self._uploads: OpenUploads | None = None

    def open_uploads(self, records: Path, timeout_s: float) -> OpenUploads | None:
        """Return the uploads of parts while the job runs, if the store holds uploads open.

        A process has `timeout_s` at least for its part, the upload included.
        """
        if self.file is not None and not HOLD_OPEN.isdisjoint(_protocols(self._filesystem)):
            self._uploads = OpenUploads(self.file, str(records), timeout_s)
        return self._uploads

    def check(self, record: Path, *, overwrite: bool) -> None:
        """Refuse an output that exists already, unless it may be replaced.

        A data set, or a beginning of one, that this job has uploaded does not count. Nothing
        replaces a folder without a manifest.
        """
        there, written = self._there(), read_record(record)
        ours = written.get("publications", [])
        known = self._manifest(there).get("publication")
        if not there or known in ours:
            return
        if known is None and not all(_publication_of(name) in ours for name in there):
            msg = (
                f"{self.file} holds files and no data set of daskprs, which nothing replaces. Use "
                f"another {Option('append_row_file_name')}."
            )
            raise OutputError(msg)
        if known not in {None, written.get("replaces")} and not overwrite:
            raise it_exists(self.file)

    def _foreign(self, record: Path) -> str:
        known = self._manifest(self._there()).get("publication", "")
        return "" if known in read_record(record).get("publications", []) else known

    def publish(self, made: Path, record: Path, *, overwrite: bool) -> None:
        """Upload a finished data set, unless it was uploaded before and is still there.

        Raise `OutputError` when the upload fails. The data set stays where it was made, and a
        resume uploads what is missing.
        """
        new, there = read_json(made / MANIFEST), self._there()
        sizes = {one["path"]: one["bytes"] for one in new["files"]}
        written, found = read_record(record), self._manifest(there)
        if found != new or not sizes.items() <= there.items():
            self.check(record, overwrite=overwrite)
            begun = [*written.get("publications", []), new["publication"]]
            ours = {"url": self.file, "publications": list(dict.fromkeys(begun))}
            write_json(record, {**ours, "replaces": found.get("publication")})
            missing = self._missing(new["files"], there)
            for done, name in enumerate(missing):
                self.how_far = f"{done:,} of {len(missing):,} files"
                self._put(made / name, name)
            self._put(made / MANIFEST, MANIFEST)
        self.has_rest = True
        self._remove(there.keys() - sizes.keys() - {MANIFEST})
        self.done, self.has_rest = True, False
        if self._uploads is not None:
            self.complaint = self._uploads.tidy_up(sizes) or self.complaint

    def _missing(self, files: list[dict[str, Any]], there: dict[str, int]) -> list[str]:
        """Complete the uploads that are open; return the names of files that are not there then."""
        missing = {
            one["path"]: (one["bytes"], one["crc32"])
            for one in files
            if there.get(one["path"]) != one["bytes"]
        }
        if self._uploads is None or not missing:
            return sorted(missing)
        try:
            errors = self._uploads.complete(missing)
        except Exception as error:  # each store has errors of its own
            msg = (
                f"the uploads to {self.file} cannot be completed: {error}. Resume the job for that."
            )
            raise OutputError(msg) from error
        if errors:
            self.complaint = (
                f"{len(errors)} of {len(missing)} uploads failed while the job ran, and were made "
                f"again at its end. The first error was {errors[0]}. Every process that writes "
                "part files needs the keys of the store."
            )
        there = self._there()
        return [name for name in sorted(missing) if there.get(name) != missing[name][0]]

    def _there(self) -> dict[str, int]:
        """Return the files below the URL by their names there, with their sizes."""
        try:
            self._filesystem.invalidate_cache()
            found = self._filesystem.find(self._place, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:  # each store has errors of its own
            raise self._out_of_reach(error) from error
        if self._place in found:
            msg = (
                f"{self.file} is a file, and the output is a folder, which does not replace it. "
                f"Use another {Option('append_row_file_name')}."
            )
            raise OutputError(msg)
        return {
            path[len(self._place) + 1 :]: info["size"]
            for path, info in found.items()
            if not path.endswith("/")  # the mark of a folder on S3
        }

    def _manifest(self, there: dict[str, int]) -> dict[str, Any]:
        if MANIFEST not in there:
            return {}
        try:
            content = self._filesystem.cat_file(f"{self._place}/{MANIFEST}")
        except FileNotFoundError:
            return {}
        except Exception as error:  # each store has errors of its own
            raise self._out_of_reach(error) from error
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError:
            return {}
        return found if "daskprs_data_set" in found else {}

    def _put(self, file: Path, name: str) -> None:
        self._upload(file, f"{self._place}/{name}", file.parent)

    def _remove(self, names: Iterable[str]) -> None:
        """Remove files of earlier publications.

        Raise `OutputError` when one stays: a reader that does not know the manifest would have its
        rows beside the new ones.
        """
        left = []
        for name in filter(_publication_of, sorted(names)):
            try:
                self._filesystem.rm_file(f"{self._place}/{name}")
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - each store has errors of its own
                left.append((name, error))
        if left:
            (name, why), *_ = left
            msg = (
                f"the output at {self.file} is not complete: {len(left):,} of the files of an "
                f"earlier data set cannot be removed: {name}: {why}. Who lists the folder reads "
                "them beside the new ones. Let the keys of the store delete files there, and "
                "resume the job."
            )
            raise OutputError(msg) from why


def _publication_of(name: str) -> str:
    """Return the publication that a part file's name tells; empty for another file."""
    found = _PART.fullmatch(name.rpartition("/")[2])
    return found[1] if found else ""


def is_remote(output_dir: object) -> bool:
    """Say whether an output folder is a URL."""
    return isinstance(output_dir, str) and "://" in output_dir


def _opened(url: str) -> tuple[Any, str]:
    try:
        return open_store(url)
    except (ImportError, ValueError) as error:
        raise OutputError(Option("output_dir", url), f" cannot be used: {error}") from error


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _version(info: dict[str, Any] | None) -> str:
    return next((str(info[key]) for key in VERSIONS if info.get(key)), "") if info else ""
