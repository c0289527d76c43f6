"""What keeps the HTTP servers that Dask starts with a `LocalCluster` on loopback."""

from __future__ import annotations

from typing import Any

LOCAL_SERVERS: dict[str, Any] = {
    "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    "worker_dashboard_address": "127.0.0.1:0",
}
