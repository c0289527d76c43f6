"""The manifest of a data set: its files, and what they were made by."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from daskprs._output.journal.history import PublishedFile, PublishedPart
    from daskprs._output.spec import OutputSpec

FORM = 1


def manifest_of(
    spec: OutputSpec,
    publication: str,
    made_by: dict[str, Any],
    schema: pa.Schema,
    mini_batches: Sequence[int],
    parts: list[PublishedPart],
) -> dict[str, Any]:
    """Return the manifest as JSON values; `mini_batches` are those with rows, in input order."""
    files: list[dict[str, Any]] = []
    first = 0
    for part in parts:
        numbers = mini_batches[first : first + part.mini_batches]
        first += part.mini_batches
        files += [
            {
                "path": one.name,
                "rows": one.rows,
                "bytes": one.size,
                "crc32": f"{one.checksum:08x}",
                "mini_batches": _bounds(numbers, one),
            }
            for one in part.files
        ]
    return {
        "daskprs_data_set": FORM,
        "format": spec.format,
        "publication": publication,
        **made_by,
        "rows": sum(file["rows"] for file in files),
        "schema": [{"name": one.name, "type": str(one.type)} for one in schema],
        "partition_by": list(spec.partition_by),
        "files": files,
    }


def _bounds(numbers: Sequence[int], file: PublishedFile) -> list[int] | None:
    """Return the first and the last mini-batch of a part with rows in a file; None without rows."""
    within = [number for number, count in zip(numbers, file.counts, strict=True) if count]
    return [within[0], within[-1]] if within else None


def made_by(job: str, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of its job: the folder's name, and a digest of the script."""
    script = json.dumps(fingerprint.get("script"), sort_keys=True).encode()
    return {"job": job, "script": hashlib.blake2b(script, digest_size=16).hexdigest()}
