"""Files on hosts that the operator named, which are fetched before a job starts."""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import time
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from daskprs._serve.http_errors import Refusal
from daskprs._system.atomic_file import whole_file
from daskprs._system.stores import plain_address
from daskprs.errors import OptionError

HTTPS_PORT = 443
CHUNK_BYTES = 1 << 20
SILENCE_S = 60.0
"""Seconds without a byte after which a host is given up."""
WITHIN_S = 3600.0
OK = 200
REDIRECTIONS = range(300, 400)
_HOST = re.compile(r"[a-z0-9.-]{1,253}(?::[0-9]{1,5})?")
_PLAIN = re.compile(r"[\x21-\x7e]+")


class WebFile(NamedTuple):
    """A file to fetch."""

    url: str
    place: str
    """Its path on this machine."""
    hosts: list[str]
    """The names and addresses that the operator allows."""
    most_bytes: int

    @property
    def shown(self) -> str:
        """The address without its query, which may hold a signature."""
        return plain_address(self.url)

    def fetch(self) -> None:
        """Fetch the file, unless it is there; a `FetchError` says why it cannot be had."""
        if Path(self.place).exists():
            return
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or HTTPS_PORT
        folder = Path(self.place).parent
        folder.mkdir(parents=True, exist_ok=True)
        for one in (folder, folder.parent):  # a job may run as another user
            one.chmod(0o755)
        connection = _PinnedConnection(host, port, self._address(host, port))
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        try:
            connection.request("GET", target, headers={"Accept-Encoding": "identity"})
            self._save(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            msg = f"{type(error).__name__}: {error}"
            raise FetchError(msg) from error
        finally:
            connection.close()

    def _address(self, host: str, port: int) -> str:
        """Return an address of the host that jobs may reach: a public one, or one that is named."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            msg = f"the host has no address: {error}"
            raise FetchError(msg) from error
        addresses = [str(one[4][0]) for one in found]
        named = {one for one in addresses if not {one, f"{one}:{port}"}.isdisjoint(self.hosts)}
        allowed = [one for one in addresses if one in named or _is_public(one)]
        if not allowed:
            msg = f"its addresses are not public, and not named by --input-host: {addresses[0]}"
            raise FetchError(msg)
        return allowed[0]

    def _save(self, response: http.client.HTTPResponse) -> None:
        if response.status in REDIRECTIONS:
            msg = f"the host sends elsewhere ({response.status}): give the final address"
            raise FetchError(msg)
        if response.status != OK:
            msg = f"the host answers {response.status} {response.reason}"
            raise FetchError(msg)
        length, size, end_s = response.length, 0, time.monotonic() + WITHIN_S
        with whole_file(Path(self.place)) as file:
            while chunk := response.read1(CHUNK_BYTES):
                size += len(chunk)
                if size > self.most_bytes or (length or 0) > self.most_bytes:
                    msg = f"it is larger than {self.most_bytes >> 20} MB (--max-input-mb)"
                    raise FetchError(msg)
                if time.monotonic() > end_s:
                    msg = f"it took more than {WITHIN_S:.0f} seconds"
                    raise FetchError(msg)
                file.write(chunk)
            if length is not None and size != length:
                msg = f"the connection ended after {size} of {length} bytes"
                raise FetchError(msg)
        Path(self.place).chmod(0o644)


class FetchError(Exception):
    """A file that cannot be fetched, with the reason."""


class WebHosts:
    """The hosts from which callers may have files fetched, of at most `most_bytes` each."""

    def __init__(self, names: tuple[str, ...] = (), most_bytes: int = 0) -> None:
        self.names = [name.lower().strip("[]") for name in names]
        self._most_bytes = most_bytes
        for name in self.names:
            if not _HOST.fullmatch(name) and not _is_address(name):
                msg = f"--input-host {name}: write the name or address of a host, without https://"
                raise OptionError(msg)

    def file(self, url: str, name: str, kind: str, target: str) -> WebFile:
        """Return the file that a caller names for an input; its place is relative to the job."""
        try:
            parts = urlsplit(url)
            port = parts.port or HTTPS_PORT
        except ValueError:
            parts, port = urlsplit(""), 0
        host = parts.hostname or ""
        known = {host, f"{host}:{port}"} if port == HTTPS_PORT else {f"{host}:{port}"}
        is_plain = _PLAIN.fullmatch(url) is not None and "@" not in parts.netloc
        if not is_plain or not host or known.isdisjoint(self.names):
            names, shown = ", ".join(self.names) or "none", plain_address(url)
            message = f"{shown!r} is not on a host that this service may fetch from: {names}."
            raise Refusal(403, "HostNotAllowed", message, target=target)
        if kind != "UriFile":
            message = (
                f"{plain_address(url)!r}: only a UriFile can be fetched; a folder has no listing."
            )
            raise Refusal(400, "BadRequest", message, target=target)
        last = re.sub(r"[^\w.-]", "_", unquote(PurePosixPath(parts.path).name), flags=re.ASCII)
        place = Path("fetched", name, last.lstrip(".")[-200:] or "data")
        return WebFile(url, str(place), self.names, self._most_bytes)


class _PinnedConnection(http.client.HTTPSConnection):
    """A connection to an address that was checked, for the certificate of the host's name."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._trust = ssl.create_default_context()
        super().__init__(host, port, timeout=SILENCE_S, context=self._trust)
        self._address = address

    def connect(self) -> None:
        """Connect."""
        plain = socket.create_connection((self._address, self.port), SILENCE_S)
        self.sock = self._trust.wrap_socket(plain, server_hostname=self.host)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    inner = None
    if isinstance(address, ipaddress.IPv6Address):
        in_nat64 = address in ipaddress.ip_network("64:ff9b::/96")
        last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if in_nat64 else None
        inner = address.ipv4_mapped or address.sixtofour or last
    return (inner or address).is_global and not address.is_multicast
