"""AWS: EC2's instance metadata, version 2, announces spot interruptions two minutes ahead."""

from __future__ import annotations

import time
from datetime import datetime

from trainer.preempt.metadata import MetadataError, MetadataResponse, MetadataService
from trainer.preempt.notice import Notice, plausible_end
from trainer.preempt.watch import Service

_LEAD_S = 120.0
_TIMEOUT_S = 2.0
_ENDS = ("terminate", "stop", "hibernate")
_SESSION_S = "21600"
_OK, _UNAUTHORISED, _NOT_FOUND = 200, 401, 404


class Ec2Metadata:
    """Reads spot/instance-action, and the rebalance recommendation that may come before it."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._token: str | None = None

    def poll(self) -> Notice | None:
        """Return the current notice, if any; MetadataError if the service gives no valid answer."""
        action = self._ask("/latest/meta-data/spot/instance-action")
        if action is not None:
            return _interruption(action)
        advice = self._ask("/latest/meta-data/events/recommendations/rebalance")
        if advice is None:
            return None
        when = str(advice.json().get("noticeTime"))  # boundary: MetadataResponse's
        return Notice(source="aws", reason=f"rebalance recommended, {when}", final=False)

    def _ask(self, path: str) -> MetadataResponse | None:
        """Return the response; None if there is no notice (404)."""
        if self._token is None:
            self._token = self._new_token()
        answer = self._service.get(path, {"X-aws-ec2-metadata-token": self._token}, timeout_s=_TIMEOUT_S)
        if answer.status == _UNAUTHORISED:
            self._token = None  # the token may have expired; the next poll requests a new one
        if answer.status not in (_OK, _NOT_FOUND):
            raise MetadataError(f"{path} answers with status {answer.status}")
        return answer if answer.status == _OK else None

    def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": _SESSION_S}
        answer = self._service.get("/latest/api/token", headers, timeout_s=_TIMEOUT_S, method="PUT")
        if answer.status != _OK or not answer.text.isascii() or not answer.text.isprintable():
            raise MetadataError(f"it gives no session token (status {answer.status})")
        return answer.text


def _interruption(answer: MetadataResponse) -> Notice:
    values = answer.json()  # boundary: MetadataResponse's
    action, moment = values.get("action"), values.get("time")
    if action not in _ENDS:
        raise MetadataError(f"it announces an unknown action, {action!r}")
    return Notice(
        source="aws",
        reason=f"spot instance to {action} at {moment}",
        ends_at=plausible_end(_seconds_until(moment), lead_s=_LEAD_S),
        fixed=True,
    )


def _seconds_until(moment: object) -> float:
    """Return the seconds until a time of day; infinity if it is malformed, since the action counts anyway."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return float("inf")


SERVICE = Service(
    url="http://169.254.169.254",
    variable="AWS_EC2_METADATA_SERVICE_ENDPOINT",
    lead_s=_LEAD_S,
    pause_s=5.0,  # as AWS advises
    hint="in a pod, the instance's metadata hop limit must be 2 or more",
    make_poller=Ec2Metadata,
)
