"""Input on other hosts: fetched from those that the operator named, and from no others."""

from __future__ import annotations

import http.server
import shutil
import ssl
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._serve.http_errors import Refusal
from daskprs._serve.web_input import FetchError, WebFile, WebHosts
from daskprs.errors import OptionError
from tests.support.services import LightService

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
MB = 1 << 20


class Files(http.server.BaseHTTPRequestHandler):
    """A host with a few files, of which one is elsewhere, and one breaks off."""

    def do_GET(self) -> None:
        """Answer by the path."""
        path, _, query = self.path.partition("?")
        body = {"/big": b"x" * (MB + 1), "/signed": query.encode()}.get(path, b"say fetched")
        self.send_response(302 if path == "/elsewhere" else 404 if path == "/none" else 200)
        self.send_header("Location", "/plain")
        if path != "/unknown-length":
            self.send_header("Content-Length", str(len(body) + (path == "/broken")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the name and port of a host, whose certificate is trusted."""
    folder = tmp_path_factory.mktemp("host")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", certificate)
        yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@NAMED
def test_a_file_on_a_named_host_is_the_input_of_a_job(tmp_path: Path, host: str) -> None:
    """It is fetched before the job; answers leave the signature of its address out.

    A resume fetches it by the whole address.
    """
    with LightService(tmp_path, input_hosts=[host]) as service:
        answer = service.invoke(f"https://{host}/plain?sig=planted-0815")
        assert "planted-0815" not in answer.text
        name = answer.json()["name"]
        assert service.ended(name) == "Completed"
        place = service.client.get(f"/jobs/{name}/outputs/done.txt").text
        assert place == str(tmp_path / "jobs" / name / "fetched" / "it" / "plain")
        assert service.client.get(f"/jobs/{name}/stream").text == "fetched\n"
        missing = service.invoke(f"https://{host}/none?sig=planted-0815").json()["name"]
        assert service.ended(missing) == "Failed"
        told = service.job(missing)["properties"]["error"]["message"]
        assert (
            told
            == f"daskprs: https://{host}/none?… cannot be fetched: the host answers 404 Not Found."
        )
        assert service.client.post(f"/jobs/{missing}/resume").status_code == 202
        assert service.ended(missing) == "Failed"
        assert service.invoke(f"https://{host}/plain", "UriFolder").status_code == 400
        other = service.invoke("https://example.org/plain")
        assert (other.status_code, other.json()["error"]["code"]) == (403, "HostNotAllowed")


@NAMED
@pytest.mark.attack
def test_what_is_not_the_file_is_not_taken_for_it(tmp_path: Path, host: str) -> None:
    """Nothing of it stays."""
    for path, told in [
        ("elsewhere", "sends elsewhere"),
        ("big", "larger than 1 MB"),
        ("broken", "after 11 of 12 bytes"),
    ]:
        with pytest.raises(FetchError, match=told):
            WebFile(f"https://{host}/{path}", str(tmp_path / path), [host], MB).fetch()
    assert list(tmp_path.iterdir()) == []
    signed = WebFile(f"https://{host}/signed?a=b%2F&c", str(tmp_path / "signed"), [host], MB)
    signed.fetch()
    assert tmp_path.joinpath("signed").read_text() == "a=b%2F&c"
    WebFile(f"https://{host}/unknown-length", str(tmp_path / "whole"), [host], MB).fetch()
    assert tmp_path.joinpath("whole").read_text() == "say fetched"


@NAMED
@pytest.mark.attack
def test_a_name_does_not_lead_to_a_private_address(tmp_path: Path, host: str) -> None:
    """Unless the operator named the address, too."""
    port = host.rpartition(":")[2]
    hosts = [f"localhost:{port}"]
    url = f"https://localhost:{port}/plain"
    with pytest.raises(FetchError, match="not public"):
        WebFile(url, str(tmp_path / "a"), hosts, MB).fetch()
    WebFile(url, str(tmp_path / "a"), [*hosts, "127.0.0.1"], MB).fetch()
    assert tmp_path.joinpath("a").read_text() == "say fetched"


@pytest.mark.attack
@pytest.mark.parametrize(
    "url",
    [
        "https://other.org/a",
        "https://example.org.other.org/a",
        "https://example.org:8443/a",
        "https://example.org@other.org/a",
        "https://other.org#example.org/a",
        "https://other.org\\@example.org/a",
        "https://exämple.org/a",
        "https://example.org:99999/a",
        "https://[::1/a",
        "https:///a",
    ],
)
def test_an_address_on_another_host_is_refused(url: str) -> None:
    """However it looks."""
    with pytest.raises(Refusal) as refusal:
        WebHosts(("Example.org",), MB).file(url, "it", "UriFile", "")
    assert refusal.value.status == 403


def test_a_file_has_a_plain_name_below_its_input() -> None:
    """Whatever its address ends in."""
    hosts = WebHosts(("example.org", "::1"), MB)
    for end, name in [("a/b.csv", "b.csv"), ("", "data"), ("a%2F..%2Fb", "a_.._b"), ("..", "data")]:
        file = hosts.file(f"https://example.org/{end}", "it", "UriFile", "")
        assert file.place == str(Path("fetched", "it", name))
    assert hosts.file("https://[::1]/a", "it", "UriFile", "").hosts == ["example.org", "::1"]
    with pytest.raises(OptionError, match="without https://"):
        WebHosts(("https://example.org",), MB)
