"""Webhook, Slack and e-mail against real servers on loopback: they answer, refuse, hang and misbehave."""

import email
import ssl
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest

from cloudrec.notify.channels import Hook, Mail, channels_of
from cloudrec.notify.notice import Notification, UnusableChannel
from cloudrec.spec.models import NotifySpec
from tests.unit.notify.support_receivers import Mailbox, deaf_server, free_port, hooks, mail_server

RIGHT, WRONG = "right", "wr0ng"
NOTICE = Notification(
    key="failed:1",
    event="failed",
    at=1795000000.0,
    text="Run r has failed: <b>rank 0 & 1</b>",
    cluster="ads",
    run="r",
    details={"launch": 1},
)
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "id", "event", "time", "cluster", "run", "text", "details"],
    "properties": {
        "schema": {"const": 1},
        "id": {"type": "string", "pattern": "^[0-9a-f]{24}$"},
        "event": {
            "enum": ["finished", "failed", "preempted", "moved", "budget", "end-near", "ended", "test"]
        },
        "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"},
        "cluster": {"type": ["string", "null"]},
        "run": {"type": ["string", "null"]},
        "text": {"type": "string", "maxLength": 1000},
        "details": {"type": "object"},
    },
}


def test_a_webhook_receives_the_documented_json() -> None:
    with hooks(200) as server:
        assert Hook(name="webhook", url=server.url).send(NOTICE) is None
    (got,) = server.got
    jsonschema.validate(got, SCHEMA)
    assert (got["event"], got["run"], got["cluster"], got["details"]) == ("failed", "r", "ads", {"launch": 1})
    assert server.headers[0]["Idempotency-Key"] == got["id"]


def test_slack_receives_its_format_with_no_text_as_a_command() -> None:
    with hooks(200) as server:
        assert Hook(name="slack", url=server.url).send(NOTICE) is None
    assert server.got == [
        {
            "text": "*cloudrec: failed: run r, cluster ads*\n"
            "Run r has failed: &lt;b&gt;rank 0 &amp; 1&lt;/b&gt;"
        }
    ]


@pytest.mark.parametrize(
    ("code", "is_final"), [(500, False), (503, False), (429, False), (404, True), (403, True), (302, True)]
)
def test_a_refusal_is_final_if_the_request_is_wrong(code: int, *, is_final: bool) -> None:
    with hooks(code) as server:
        refusal = Hook(name="webhook", url=server.url).send(NOTICE)
    assert refusal is not None
    assert str(code) in refusal.why
    assert refusal.is_final is is_final
    assert len(server.got) == 1  # a redirect is not followed


def test_a_server_that_refuses_connections_or_hangs_is_tried_again() -> None:
    refused = Hook(name="webhook", url=f"http://127.0.0.1:{free_port()}/hidden").send(NOTICE)
    with deaf_server() as port:
        began = time.monotonic()
        hung = Hook(name="webhook", url=f"http://127.0.0.1:{port}/hidden").send(NOTICE, timeout_s=0.5)
        took = time.monotonic() - began
    assert refused is not None
    assert hung is not None
    assert (refused.is_final, hung.is_final) == (False, False)
    assert "hidden" not in refused.why + hung.why
    assert took < 5


@pytest.mark.parametrize("url", ["ftp://host/hidden", "hidden", "http://", "https://host:99999/hidden", ""])
def test_a_secret_that_is_no_url_is_final_and_not_shown(url: str) -> None:
    refusal = Hook(name="webhook", url=url).send(NOTICE)
    assert refusal is not None
    assert refusal.is_final
    assert "hidden" not in refusal.why


def _mail(port: int, **given: str) -> Mail:
    fixed = {"security": "none", "sender": "bot@example.com"} | given
    return Mail(host="127.0.0.1", port=port, to=("a@example.com", "b@example.com"), **fixed)


def test_a_mail_reaches_every_address() -> None:
    box = Mailbox()
    with mail_server(box) as port:
        assert _mail(port).send(NOTICE) is None
    message = email.message_from_string(box.got[0])
    assert message["Subject"] == "cloudrec: failed: run r, cluster ads"
    assert message["Message-ID"] == f"<{NOTICE.id}@cloudrec.invalid>"
    assert box.to == ["a@example.com", "b@example.com"]
    assert "Run r has failed" in message.get_payload()


@pytest.mark.parametrize(("reply", "is_final"), [("451 later", False), ("554 never", True)])
def test_a_mail_servers_refusal_is_final_if_it_says_so(reply: str, *, is_final: bool) -> None:
    with mail_server(Mailbox(reply)) as port:
        refusal = _mail(port).send(NOTICE)
    assert refusal is not None
    assert refusal.is_final is is_final
    assert reply.split()[1] in refusal.why


def test_a_mail_server_that_is_away_or_silent_is_tried_again() -> None:
    away = _mail(free_port()).send(NOTICE)
    with deaf_server() as port:
        silent = _mail(port).send(NOTICE, timeout_s=0.5)
    assert away is not None
    assert silent is not None
    assert (away.is_final, silent.is_final) == (False, False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder


def _context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_a_login_is_sent_encrypted_and_its_refusal_hides_it(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    box = Mailbox()
    with mail_server(box, tls=_context(certificate), login=True) as port:
        assert _mail(port, security="starttls", user="bot", password=RIGHT).send(NOTICE) is None
        wrong = _mail(port, security="starttls", user="bot", password=WRONG).send(NOTICE)
    assert len(box.got) == 1
    assert wrong is not None
    assert wrong.is_final
    assert WRONG not in wrong.why


def test_a_certificate_that_is_not_trusted_gets_no_login(certificate: Path) -> None:
    box = Mailbox()
    with mail_server(box, tls=_context(certificate), login=True) as port:
        refusal = _mail(port, security="starttls", user="bot", password=RIGHT).send(NOTICE)
    assert box.got == []
    assert refusal is not None
    assert "certificate verify failed" in refusal.why


def test_a_channel_without_its_secret_is_named() -> None:
    spec = NotifySpec(webhook="HOOK", email=("a@example.com",), smtp="127.0.0.1:25")
    channels, problems = channels_of(spec, {})
    assert [channel.name for channel in channels] == ["email"]
    assert problems == [UnusableChannel(channel="webhook", why="its secret 'HOOK' is not set")]
