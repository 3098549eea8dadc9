"""The process of a stand-in: one JSON line, a loopback address, and an end on SIGTERM."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from cloudrec_sandbox.core.client import Control, RefusedError

COMMAND = (sys.executable, "-m", "cloudrec_sandbox")


def test_the_stand_in_prints_one_json_line_serves_and_ends_on_sigterm() -> None:
    words = [*COMMAND, "metadata", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            announcement = json.loads(process.stdout.readline())
            host = announcement["env"]["GCE_METADATA_HOST"]
            assert announcement["endpoints"] == {"metadata": f"http://{host}"}
            assert host.startswith("127.0.0.1:")
            with pytest.raises(RefusedError, match="unknown: gpc; there are: aws") as refused:
                Control.of(announcement).order(gpc={})
            assert refused.value.status == 400
        finally:
            process.terminate()
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["moon"], "invalid choice: 'moon'"),
        (["metadata", "--port", "70000"], "port 70000 is not within 0 to 65535"),
        (["metadata", "--port", "TAKEN"], "cannot be used: Address already in use"),
        (["kubernetes", "--port", "TAKEN"], "cannot be used: Address already in use"),
        (["gcp", "--port", "TAKEN"], "cannot be used: Address already in use"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(words: list[str], message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [port if word == "TAKEN" else word for word in words]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_requests_are_kept_as_they_arrived_from_the_order_on() -> None:
    words = [*COMMAND, "aws", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            announcement = json.loads(process.stdout.readline())
            control = Control.of(announcement)
            address = announcement["endpoints"]["aws"]
            form = b"Action=DescribeVpcs&Version=2016-11-15"
            scope = "k/20260101/us-east-1/ec2/aws4_request"
            signed = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
            head = {"Authorization": signed, "Content-Type": "application/x-www-form-urlencoded"}
            for _ in range(2):
                line = HTTPConnection(urlsplit(address).netloc, timeout=60)
                line.request("POST", "/", body=form, headers=head)
                line.getresponse().read()
                line.close()
                control.order(requests=True)
            (kept,) = control.ask("GET", "/requests")
        finally:
            process.terminate()
        assert process.wait(300) == 0
    assert base64.b64decode(kept["body"]) == form
    assert (kept["n"], kept["action"], kept["method"]) == (2, "DescribeVpcs", "POST")
    assert signed not in json.dumps(kept)
