"""A file system of fsspec that works in an event loop, as those of stores, and counts its calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fsspec.asyn import AsyncFileSystem


class FarFiles(AsyncFileSystem):  # type: ignore[misc]
    """Files by their paths; a call waits until as many others run as `together` says."""

    protocol = "far"
    objects: dict[str, bytes]
    failing: dict[str, BaseException]
    together: int
    most: int
    """The largest number of calls at the same time."""
    fetched: list[str]
    """Paths of the files that were fetched, or begun to be."""
    cancelled: list[str]

    @classmethod
    def clear(cls) -> None:
        """Begin anew."""
        cls.objects, cls.failing, cls.together, cls.most = {}, {}, 1, 0
        cls.fetched, cls.cancelled = [], []
        cls.here = 0

    async def _get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        self.fetched.append(rpath)
        await self._wait(rpath)
        Path(lpath).write_bytes(self.objects[rpath])  # noqa: ASYNC240 - a few bytes

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        await self._wait(path)
        return self._entry(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's own
        assert detail
        await self._wait(path)
        return [self._entry(name) for name in self.objects if name.startswith(f"{path}/")]

    def _entry(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            if any(name.startswith(f"{path}/") for name in self.objects):
                return {"name": path, "size": 0, "type": "directory"}
            raise FileNotFoundError(path)
        body = self.objects[path]
        return {"name": path, "size": len(body), "type": "file", "ETag": str(hash(body))}

    async def _wait(self, path: str) -> None:
        """Wait until enough calls are there; one that fails does so at once."""
        here = type(self)
        here.here += 1
        here.most = max(here.most, here.here)
        try:
            if path in self.failing:
                raise self.failing[path]
            for _ in range(500):
                if here.most >= here.together:
                    break
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            here.cancelled.append(path)
            raise
        finally:
            here.here -= 1
