"""Access to a stand-in: /_control needs its token, and web pages are refused with any DNS name."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cloudrec_sandbox.core.admission import TOKEN_HEADER, TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control, RefusedError

NAMES = ("aws", "azure", "gcp", "kubernetes", "metadata")
HERE = "127.0.0.1:PORT"
ANY_PATH = "/some/path"


class StandIn:
    """One running stand-in, asked as any program of this machine can ask it."""

    def __init__(self, announcement: dict[str, Any]) -> None:
        self.announcement = announcement
        self.control = Control.of(announcement)
        self.token: str = announcement["env"][TOKEN_VARIABLE]
        self.place = urlsplit(self.control.address)

    def status(self, method: str, path: str, **headers: str | None) -> int:
        """The status of a request with these headers; PORT in them is the stand-in's port."""
        lines = {"Host": HERE, "Content-Type": "application/json", TOKEN_HEADER: self.token}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}  # type: ignore[misc]
        with closing(self._connection()) as connection:
            connection.putrequest(method, path, skip_host=True)
            for name, value in lines.items():
                if value is not None:
                    connection.putheader(name, value.replace("PORT", str(self.place.port)))
            body = b"" if method == "GET" else b"{}"
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def _connection(self) -> HTTPConnection:
        if self.place.scheme == "http":
            return HTTPConnection(self.place.netloc, timeout=180)
        tls = ssl.create_default_context(cafile=self.announcement["certificate_authority"])
        return HTTPSConnection(self.place.netloc, timeout=180, context=tls)


@contextmanager
def started(name: str) -> Iterator[StandIn]:
    words = [sys.executable, "-m", "cloudrec_sandbox", name, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield StandIn(json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module", params=NAMES)
def stand_in(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with started(request.param) as running:
        yield running


REFUSED: Mapping[str, tuple[int, dict[str, str | None]]] = {
    "no token": (401, {TOKEN_HEADER: None}),
    "another token": (401, {TOKEN_HEADER: "guess"}),
    "a name that DNS points here": (421, {"Host": "evil.example:PORT"}),
    "a name below localhost": (421, {"Host": "bucket.localhost:PORT"}),
    "another port": (421, {"Host": "127.0.0.1:1"}),
    "no host": (421, {"Host": None}),
    "another site's page": (403, {"Origin": "http://evil.example"}),
    "a page without an origin": (403, {"Origin": "null"}),
    "a page of another port": (403, {"Origin": "http://127.0.0.1:1"}),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_control_api_refuses_unauthorized_requests(stand_in: StandIn, method: str, case: str) -> None:
    status, headers = REFUSED[case]
    assert stand_in.status(method, "/_control", **headers) == status


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_the_control_api_accepts_only_json(stand_in: StandIn, content_type: str | None) -> None:
    assert stand_in.status("POST", "/_control", Content_Type=content_type) == 415


@pytest.mark.parametrize("host", [HERE, "localhost:PORT", "LOCALHOST:PORT"])
def test_the_control_api_accepts_its_token(stand_in: StandIn, host: str) -> None:
    page = f"{stand_in.place.scheme}://{HERE}"
    assert (
        stand_in.status("POST", "/_control", Host=host, Content_Type="application/json; charset=utf-8") == 200
    )
    assert stand_in.status("GET", "/_control", Host=host, Origin=page) == 200


def test_the_service_refuses_browser_requests_and_foreign_host_names(stand_in: StandIn) -> None:
    usual = stand_in.status("GET", ANY_PATH)
    assert usual not in (403, 421) or stand_in.place.scheme == "https"
    assert stand_in.status("GET", ANY_PATH, Host="evil.example:PORT") == 421
    assert stand_in.status("POST", ANY_PATH, Origin="http://evil.example") == 403
    bucket = stand_in.status("GET", ANY_PATH, Host="bucket.localhost:PORT")  # as S3's clients ask
    assert bucket != 421


def test_each_stand_in_has_its_own_token(stand_in: StandIn) -> None:
    with started("metadata") as other:
        assert len(other.token) >= 32
        assert other.token != stand_in.token


def test_only_a_process_younger_than_the_stand_in_can_be_killed() -> None:
    sleeps = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(sleeps, stdout=subprocess.PIPE) as earlier:
        try:
            assert earlier.stdout is not None
            earlier.stdout.readline()  # so it began some ticks of the kernel's clock before the stand-in
            with started("kubernetes") as stand_in, subprocess.Popen(sleeps) as later:
                try:
                    for pid, words in (
                        (earlier.pid, "began before the stand-in"),
                        (os.getpid(), "began before the stand-in"),
                        (2**22 + 1, "no process of this machine has it"),
                    ):
                        with pytest.raises(RefusedError, match=words):
                            stand_in.control.order(kill={"pid": pid})
                    told = stand_in.control.order(kill={"pid": later.pid})
                    assert told["kill"]["pid"] == later.pid
                finally:
                    later.kill()
        finally:
            earlier.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process as another user")
def test_a_process_of_another_user_cannot_be_killed() -> None:
    with started("kubernetes") as stand_in:
        words = ["sleep", "600"]
        with subprocess.Popen(words, user=65534) as other:
            try:
                with pytest.raises(RefusedError, match="another user"):
                    stand_in.control.order(kill={"pid": other.pid})
            finally:
                other.kill()


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_a_link_reads_only_certificate_files(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    with started("kubernetes") as cluster, started(name) as cloud:
        announced = cluster.announcement
        for file in (secret, tmp_path, tmp_path / "missing", Path("/dev/zero")):
            with pytest.raises(RefusedError, match=r"holds no certificate|is no file"):
                cloud.control.order(kubernetes={**announced, "certificate_authority": str(file)})
        both = tmp_path / "both.pem"
        authority = Path(announced["certificate_authority"]).read_text()
        both.write_text(f"{secret.read_text()}\n{authority}")
        told = cloud.control.order(kubernetes={**announced, "certificate_authority": str(both)})
        assert told["kubernetes"]["certificate_authority"] == authority
        elsewhere = {"kubernetes": "https://192.0.2.1:443"}
        with pytest.raises(RefusedError, match="must be https and on this machine"):
            cloud.control.order(kubernetes={**announced, "endpoints": elsewhere})
