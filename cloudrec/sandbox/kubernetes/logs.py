"""Logs of pods: whoever runs the containers tells the lines, and this cuts out what was asked for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cloudrec.sandbox.clock import as_datetime
from cloudrec.sandbox.http import Reply
from cloudrec.sandbox.kubernetes import errors, reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cloudrec.sandbox.kubernetes.call import Call

_TEXT = (("Content-Type", "text/plain"),)
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """Which container's lines are asked for; `previous`: those of the container before the last restart."""

    pod: Mapping[str, Any]
    container: str
    follow: bool
    previous: bool


Line = tuple[float, bytes]
"""The virtual moment at which a line was written, and the line with its line feed."""


class LogSource(Protocol):
    """Whoever runs the containers."""

    def __call__(self, request: LogRequest, /) -> Iterable[Line | None]:
        """All lines of a container from its start; ApiError (400) where it has not started.

        It refuses when called, not when read. While it follows, a None about once a second tells that there
        is nothing new now; the first None is the end of what there was when it was asked. It ends when the
        container has ended.
        """


def answer(call: Call) -> Reply:
    """The lines as text, as they come where they are followed."""
    pod = reads.existing(call).obj
    container = _container(call, pod)
    source = call.store.logs
    if not pod["spec"].get("nodeName") or source is None:
        raise errors.bad_request(
            f'container "{container}" in pod "{call.target.name}" is waiting to start: ContainerCreating'
        )
    follow = call.target.flag("follow")
    request = LogRequest(pod=pod, container=container, follow=follow, previous=call.target.flag("previous"))
    lines = _wanted(call, iter(source(request)))
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


def _wanted(call: Call, lines: Iterator[Line | None]) -> Iterator[bytes]:
    """What is asked for, of all lines."""
    numbers = {name: _number(call, name) for name in _NUMBERS}
    since = _since(call, numbers["sinceSeconds"])
    stamped = call.target.flag("timestamps")
    shown = (
        None if line is None else _shown(line, stamped=stamped)
        for line in lines
        if line is None or line[0] >= since
    )
    return _limited(_tailed(shown, numbers["tailLines"]), numbers["limitBytes"])


def _number(call: Call, name: str) -> int | None:
    text = call.query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        blame = errors.cause(name, f'Invalid value: "{text}": must be greater than or equal to 0')
        raise errors.invalid("PodLogOptions", "", call.target.name, [blame])
    return int(text)


def _since(call: Call, seconds: int | None) -> float:
    return call.store.clock.now() - seconds if seconds is not None else 0.0


def _shown(line: Line, *, stamped: bool) -> bytes:
    moment, text = line
    if not stamped:
        return text
    return as_datetime(moment).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode() + text


def _tailed(lines: Iterator[bytes | None], count: int | None) -> Iterator[bytes]:
    """The last lines of those that there are by now, and then what comes."""
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
