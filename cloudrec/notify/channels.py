"""The ways out: a webhook, Slack's format, e-mail by SMTP. Each sends one notice, and says why it did not."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import EmailMessage
from http.client import HTTPException
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from cloudrec.notify.notice import UnusableChannel
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from http.client import HTTPMessage
    from typing import IO

    from cloudrec.notify.notice import Notification
    from cloudrec.spec.models import NotifySpec

WEBHOOK, SLACK, EMAIL = "webhook", "slack", "email"
TIMEOUT_S = 10.0  # of a connection and of each answer
_READ = 300  # bytes of an answer that a message shows
# RFC 9110: the request may succeed later. All other refusals are of the request itself.
_LATER = (408, 425, 429)
_SERVER = 500
_TEMPORARY = range(400, 500)  # SMTP (RFC 5321, 4.2.1): a reply of 4yz is temporary, one of 5yz permanent


@dataclass(frozen=True, kw_only=True)
class SendFailure:
    """Why a notice was not delivered.

    Attributes:
        why: the cause, without any part of a secret.
        is_final: whether another attempt would have the same end.
    """

    why: str
    is_final: bool = False


class Channel(Protocol):
    """One way out."""

    @property
    def name(self) -> str:
        """Its name: webhook, slack or email."""
        ...

    def send(self, notice: Notification, *, timeout_s: float = TIMEOUT_S) -> SendFailure | None:
        """Deliver a notice once; return why that failed, None if it did not."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hook:
    """An HTTP endpoint.

    Attributes:
        name: webhook or slack.
        url: the address, which is a secret: anyone who has it can write there.
    """

    name: str
    url: str

    def send(self, notice: Notification, *, timeout_s: float = TIMEOUT_S) -> SendFailure | None:
        """POST the notice; a redirect is a failure, since it could lead anywhere."""
        wrong = _wrong_url(self.url)
        if wrong:
            return SendFailure(why=wrong, is_final=True)
        body = {"text": slack_text(notice)} if self.name == SLACK else notice.document()
        request = urllib.request.Request(  # noqa: S310 - `_wrong_url` admits http and https only
            self.url,
            data=json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "User-Agent": f"cloudrec/{__version__}",
                "Idempotency-Key": notice.id,
            },
            method="POST",
        )
        try:
            with _OPENER.open(request, timeout=timeout_s) as answer:
                answer.read(_READ)
        except urllib.error.HTTPError as error:
            with error:
                is_final = error.code < _SERVER and error.code not in _LATER
                return SendFailure(why=f"it answered {error.code} {error.reason}"[:_READ], is_final=is_final)
        except (OSError, HTTPException, ValueError) as error:
            return SendFailure(why=_said(error, self.url))
        return None


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A mail server.

    Attributes:
        host: its name.
        port: its port.
        security: starttls, tls or none.
        sender: the address that the mail is from.
        to: the addresses that it is to.
        user: the login; empty for none.
        password: the password.
        name: email.
    """

    host: str
    port: int
    security: str
    sender: str
    to: Sequence[str]
    user: str = ""
    password: str = ""
    name: str = EMAIL

    def send(self, notice: Notification, *, timeout_s: float = TIMEOUT_S) -> SendFailure | None:
        """Hand the mail to the server."""
        try:
            with self._connected(timeout_s) as server:
                if self.user:
                    server.login(self.user, self.password)
                server.send_message(self._message(notice))
        except smtplib.SMTPAuthenticationError as error:
            # Its answer may contain the login.
            return SendFailure(why=f"the server refuses the login ({error.smtp_code})", is_final=True)
        except smtplib.SMTPResponseException as error:
            return SendFailure(
                why=_reply(error.smtp_code, error.smtp_error), is_final=_is_final(error.smtp_code)
            )
        except smtplib.SMTPRecipientsRefused as error:
            code, text = next(iter(error.recipients.values()), (0, b""))
            why = f"no recipient was accepted: {_reply(code, text)}"
            return SendFailure(why=why, is_final=_is_final(code))
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return SendFailure(why=_said(error, self.password))
        return None

    def _connected(self, timeout_s: float) -> smtplib.SMTP:
        tls = ssl.create_default_context()
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=timeout_s, context=tls)
        server = smtplib.SMTP(self.host, self.port, timeout=timeout_s)
        if self.security == "starttls":
            try:
                server.starttls(context=tls)
            except BaseException:
                server.close()
                raise
        return server

    def _message(self, notice: Notification) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = _line(notice.title)
        message["From"] = self.sender
        message["To"] = ", ".join(self.to)
        # The same id after a repeated delivery, by which mail programs show it once.
        message["Message-ID"] = f"<{notice.id}@cloudrec.invalid>"
        document = json.dumps(notice.document(), indent=2)
        message.set_content(f"{notice.text}\n\n{document}\n")
        return message


def channels_of(spec: NotifySpec, secrets: Mapping[str, str]) -> tuple[list[Channel], list[UnusableChannel]]:
    """Return the ways out that a spec asks for, and why others cannot be used.

    Args:
        spec: the section `notify`.
        secrets: the value of each secret that is there, by its key in the section.
    """
    found: list[Channel] = []
    problems = [
        UnusableChannel(channel=key, why=f"its secret {reference!r} is not set")
        for key, reference in spec.secrets.items()
        if not secrets.get(key)
    ]
    found += [Hook(name=key, url=secrets[key]) for key in (WEBHOOK, SLACK) if secrets.get(key)]
    if spec.email and (not spec.smtp_password or secrets.get("smtp_password")):
        host, _, port = (spec.smtp or "").rpartition(":")
        found.append(
            Mail(
                host=host,
                port=int(port),
                security=spec.smtp_security,
                sender=spec.email_from or spec.email[0],
                to=spec.email,
                user=spec.smtp_user or "",
                password=secrets.get("smtp_password", ""),
            )
        )
    return found, problems


def slack_text(notice: Notification) -> str:
    """Return a notice in Slack's format, with its three control characters escaped: no text is a command."""
    text = f"*{notice.title}*\n{notice.text}"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the signature of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Follow no redirect; the opener then raises HTTPError."""
        del req, fp, code, msg, headers, newurl
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _wrong_url(url: str) -> str:
    """Return what is wrong with an address, without showing it; empty if nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "its secret is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "its secret is no URL that begins with https:// or http://"
    return ""


def _said(error: Exception, secret: str) -> str:
    reason = getattr(error, "reason", None)  # of URLError: the error below it
    cause = reason if isinstance(reason, Exception) else error
    text = str(cause) or type(cause).__name__
    if secret:
        text = text.replace(secret, "(secret)")
    return _line(text)


def _reply(code: int, text: bytes | str) -> str:
    said = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
    return _line(f"the server answered {code} {said}")


def _is_final(code: int) -> bool:
    return code > 0 and code not in _TEMPORARY


def _line(text: str) -> str:
    return " ".join(text.split())[:_READ]
