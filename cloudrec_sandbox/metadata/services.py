"""What each cloud answers and refuses; pure but for the clock and the wait of GCP's long poll."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.metadata.state import MACHINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.metadata.state import State

_LONGEST_WAIT_S = 60.0
_TTL = "x-aws-ec2-metadata-token-ttl-seconds"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One request; names of headers are lower-case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


NOT_FOUND = Reply(status=HTTPStatus.NOT_FOUND)


def answer(question: Question, state: State) -> Reply:
    """Return the answer of the service that has the request's path."""
    if question.path.startswith("/latest/"):
        return _aws(question, state)
    if question.path.startswith("/metadata/"):
        return _azure(question, state)
    if question.path.startswith("/computeMetadata/"):
        return _gcp(question, state)
    return NOT_FOUND


def _aws(question: Question, state: State) -> Reply:
    token = f"token-{state.generation}"
    if question.path == "/latest/api/token":
        # IMDSv2 hands out tokens only by PUT, and only with a time to live.
        if question.method != "PUT" or not question.headers.get(_TTL, "").isdigit():
            return Reply(status=HTTPStatus.BAD_REQUEST)
        return Reply(body=token, headers={_TTL: question.headers[_TTL]})
    # As with HttpTokens required: a request without a token is refused.
    if question.headers.get("x-aws-ec2-metadata-token") != token:
        return Reply(status=HTTPStatus.UNAUTHORIZED)
    # AWS answers 404 until an interruption is planned.
    if question.path == "/latest/meta-data/spot/instance-action" and "action" in state.aws:
        moment = state.aws.get("time") or _iso(state.aws.get("in_s", 120))
        return Reply(body=json.dumps({"action": state.aws["action"], "time": moment}))
    if question.path == "/latest/meta-data/events/recommendations/rebalance" and state.aws.get("rebalance"):
        return Reply(body=json.dumps({"noticeTime": _iso(0)}))
    return NOT_FOUND


def _azure(question: Question, state: State) -> Reply:
    if question.headers.get("metadata") != "true":
        text = json.dumps({"error": "Bad request. Required metadata header not specified"})
        return Reply(status=HTTPStatus.BAD_REQUEST, body=text)
    if "api-version" not in question.query:
        return Reply(status=HTTPStatus.BAD_REQUEST, body=json.dumps({"error": "Bad request. api-version"}))
    if question.path == "/metadata/instance/compute/name":
        return Reply(body=MACHINE)
    if question.path != "/metadata/scheduledevents":
        return NOT_FOUND
    events = [_azure_event(state.azure)] if state.azure else []
    # The incarnation changes when the events do: clients compare it.
    return Reply(body=json.dumps({"DocumentIncarnation": 1 + len(events), "Events": events}))


def _azure_event(wish: Mapping[str, Any]) -> dict[str, Any]:
    status = wish.get("status", "Scheduled")
    moment = datetime.fromtimestamp(time.time() + float(wish.get("in_s", 30)), UTC)
    not_before = wish.get("time") or format_datetime(moment, usegmt=True)
    return {
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297",
        "EventType": wish.get("event", "Preempt"),
        "ResourceType": "VirtualMachine",
        "Resources": wish.get("resources", [MACHINE]),
        "EventStatus": status,
        "NotBefore": "" if status == "Started" else not_before,
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def _gcp(question: Question, state: State) -> Reply:
    # Google refuses without the header, so that a forwarded web request gets no credentials.
    if question.headers.get("metadata-flavor") != "Google":
        return Reply(status=HTTPStatus.FORBIDDEN, body="Missing Metadata-Flavor:Google header.")
    if question.path != "/computeMetadata/v1/instance/preempted":
        return NOT_FOUND
    value, etag = _preempted(state)
    # `wait_for_change` holds the request until the etag differs from `last_etag`: no change is missed.
    if question.query.get("wait_for_change") == "true":
        seen = question.query.get("last_etag", etag)
        wait_s = min(float(question.query.get("timeout_sec", _LONGEST_WAIT_S)), _LONGEST_WAIT_S)
        with state.changed:
            state.changed.wait_for(lambda: _preempted(state)[1] != seen, timeout=wait_s)
        value, etag = _preempted(state)
    return Reply(body=value, headers={"Metadata-Flavor": "Google", "ETag": etag})


def _preempted(state: State) -> tuple[str, str]:
    """Return the value and its etag."""
    return ("TRUE", "e1") if state.gcp.get("preempted") else ("FALSE", "e0")


def _iso(in_s: float) -> str:
    return f"{datetime.fromtimestamp(time.time() + in_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
