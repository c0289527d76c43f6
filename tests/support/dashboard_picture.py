"""The picture of Dask's dashboard during a job, as a browser shows it.

``python -m tests.support.dashboard_picture`` takes it anew. It needs bokeh and chromium.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from time import sleep
from typing import Any

import pandas as pd
from distributed import Client, LocalCluster
from tornado.websocket import websocket_connect

import daskprs
from tests.support.pictures import IMAGES
from tests.support.polling import poll_for

SIZE, LOOK_S = "1400,820", 12.0
"""Of the window, and how long the job runs before the picture is taken."""
BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
MOST_BYTES = 1 << 26


def main() -> None:
    """Run a job on two workers, and take a picture of the dashboard."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=2, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        job = daskprs.start(
            pd.DataFrame({"n": range(4000)}),
            _slowly,
            client=client,
            mini_batch_size=80,
            job_dir=Path(folder) / "job",
            progress=False,
        )
        assert poll_for(lambda: job.progress.mini_batches.succeeded > 0)
        picture = _seen(cluster.dashboard_link)
        job.cancel()
        job.wait()
    (IMAGES / "dashboard.png").write_bytes(picture)


def _slowly(rows: pd.DataFrame) -> pd.DataFrame:
    sleep(0.2)
    return rows


def _seen(address: str) -> bytes:
    """Return a picture of a page, some seconds after a browser has opened it."""
    with tempfile.TemporaryDirectory() as profile:
        options = [f"--window-size={SIZE}", "--remote-debugging-port=0"]
        browser = subprocess.Popen(
            [*BROWSER, *options, f"--user-data-dir={profile}", address], stderr=subprocess.DEVNULL
        )
        try:
            sleep(LOOK_S)
            port = (Path(profile) / "DevToolsActivePort").read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as pages:
                page = next(one for one in json.load(pages) if one["type"] == "page")
            return asyncio.run(_picture(page["webSocketDebuggerUrl"]))
        finally:
            browser.terminate()
            browser.wait()


async def _picture(debugger: str) -> bytes:
    """Ask a browser for a picture of its page."""
    socket = await websocket_connect(debugger, max_message_size=MOST_BYTES)
    await socket.write_message(json.dumps({"id": 1, "method": "Page.captureScreenshot"}))
    answer: dict[str, Any] = {}
    while answer.get("id") != 1:
        answer = json.loads(await socket.read_message() or "{}")
    return base64.b64decode(answer["result"]["data"])


if __name__ == "__main__":
    main()
