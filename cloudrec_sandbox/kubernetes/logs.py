"""Logs of pods: the kubelet provides the lines, and this module selects those that the query names."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.core.http import Reply
from cloudrec_sandbox.kubernetes.api import reads
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage.log_source import Line, LogRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cloudrec_sandbox.kubernetes.api.call import Call

_TEXT = (("Content-Type", "text/plain"),)
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")


def answer(call: Call) -> Reply:
    """Return the lines as text; if followed, as they come."""
    pod = reads.existing(call).obj
    for name in _NUMBERS:
        _number(call.query, name, call.target.name)
    container = _container(call, pod)
    source = call.store.logs
    if not pod["spec"].get("nodeName"):
        return Reply(status=HTTPStatus.NO_CONTENT)  # as of a pod that no node has yet
    if source is None:
        raise errors.bad_request(
            f'container "{container}" in pod "{call.target.name}" is waiting to start: ContainerCreating'
        )
    follow = call.target.flag("follow")
    request = LogRequest(pod=pod, container=container, follow=follow, previous=call.target.flag("previous"))
    lines = wanted(iter(source(request)), call.query, pod=call.target.name, now=call.store.clock.now())
    return Reply(headers=_TEXT, stream=lines)


def _container(call: Call, pod: Mapping[str, Any]) -> str:
    spec = pod["spec"]
    names = [each["name"] for each in spec["containers"]]
    every = [*(each["name"] for each in spec.get("initContainers") or ()), *names]
    asked = call.query.get("container", "")
    if not asked and len(names) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {call.target.name}, "
            f"choose one of: [{' '.join(every)}]"
        )
    if asked and asked not in every:
        raise errors.bad_request(f"container {asked} is not valid for pod {call.target.name}")
    return asked or names[0]


def wanted(
    lines: Iterator[Line | None], query: Mapping[str, str], *, pod: str, now: float
) -> Iterator[bytes]:
    """Yield the lines that a query selects; refused at the call if a number is malformed."""
    numbers = {name: _number(query, name, pod) for name in _NUMBERS}
    since = _since(query, numbers["sinceSeconds"], pod, now)
    stamped = query.get("timestamps", "").lower() in ("true", "1")
    shown = (
        None if line is None else _shown(line, stamped=stamped)
        for line in lines
        if line is None or line[0] >= since
    )
    return _limited(_tailed(shown, numbers["tailLines"]), numbers["limitBytes"])


def _number(query: Mapping[str, str], name: str, pod: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        blame = errors.cause(name, f'Invalid value: "{text}": must be greater than or equal to 0')
        raise errors.invalid("PodLogOptions", "", pod, [blame])
    return int(text)


def _since(query: Mapping[str, str], seconds: int | None, pod: str, now: float) -> float:
    if seconds is not None:
        return now - seconds
    text = query.get("sinceTime", "")
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        blame = errors.cause("sinceTime", f'Invalid value: "{text}": it is no time of RFC 3339')
        raise errors.invalid("PodLogOptions", "", pod, [blame]) from error


def _shown(line: Line, *, stamped: bool) -> bytes:
    moment, text = line
    if not stamped:
        return text
    return as_datetime(moment).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode() + text


def _tailed(lines: Iterator[bytes | None], count: int | None) -> Iterator[bytes]:
    """Yield the last of the present lines, and then the new ones."""
    if count is not None:
        last: deque[bytes] = deque(maxlen=count)
        for line in lines:
            if line is None:
                break
            last.append(line)
        yield from last
    yield from (line or b"" for line in lines)


def _limited(lines: Iterable[bytes], limit: int | None) -> Iterator[bytes]:
    left = limit
    for line in lines:
        if left is None:
            yield line
            continue
        yield line[:left]
        left -= len(line)
        if left <= 0:
            return
