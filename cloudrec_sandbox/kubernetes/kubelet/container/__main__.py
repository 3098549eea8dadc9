"""`python -m cloudrec_sandbox.kubernetes.kubelet.container SPEC`: run one container and follow it to its end.

stdin takes a command a line, {"signal": 15} or {"exec": ID, "command": [...]}; when it closes, the kubelet is
gone and the container is killed. stdout has an event a line, {"event": "started"|"refused"|"ended"|"exec",
...}. stderr is the container's output.
"""

from __future__ import annotations

import json
import os
import select
import sys
from dataclasses import dataclass, field
from typing import Any

from cloudrec_sandbox.kubernetes.kubelet.container import kernel, program
from cloudrec_sandbox.kubernetes.kubelet.container.view import View

_CHUNK = 65536
_KEPT = 8192  # bytes of an exec's output


@dataclass
class _Exec:
    """Another program that runs in the container."""

    identity: str
    pid: int
    output: int
    said: bytearray = field(default_factory=bytearray)


class Container:
    """A container, from its spec to its end."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._events = os.dup(1)
        os.dup2(2, 1)  # only events are written to the old stdout
        self._poll = select.poll()
        self._input = b""
        self._execs: dict[int, _Exec] = {}
        self._first = 0
        self._pidfd = -1

    def run(self) -> None:
        """Start the program, follow it, report its end."""
        try:
            self._isolate()
        except OSError as error:
            program.report(
                self._events, event="refused", reason="CreateContainerError", message=_words(error)
            )
            return
        self._first, problem = program.start(self._spec, is_first=True, streams=(-1, 2, 2))
        if problem:
            os.waitpid(self._first, 0)
            program.report(self._events, event="refused", reason="StartError", message=problem)
            return
        program.report(self._events, event="started", pid=self._first)
        self._follow()

    def _isolate(self) -> None:
        spaces = kernel.NEW_NS | kernel.NEW_UTS | kernel.NEW_PID
        if self._spec["network"] is not None:
            kernel.enter(self._spec["network"], kernel.NEW_NET)
            os.close(self._spec["network"])
        if self._spec["is_root"]:
            kernel.unshare(spaces)
        else:
            uid, gid = os.getuid(), os.getgid()
            kernel.unshare(kernel.NEW_USER | spaces)
            program.map_user(0, 0, outer=uid, outer_group=gid)
        kernel.set_hostname(self._spec["hostname"])
        view = View(self._spec)
        view.build()
        view.enter()

    def _follow(self) -> None:
        self._pidfd = os.pidfd_open(self._first)
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._pidfd:
                    _, status = os.waitpid(self._first, 0)
                    program.report(self._events, event="ended", code=_code(status))
                    return
                if descriptor == 0:
                    self._listen()
                elif descriptor in self._execs:
                    self._read_output(descriptor)

    def _listen(self) -> None:
        data = os.read(0, _CHUNK)
        if not data:  # the kubelet has closed the pipe, or died
            os.kill(self._first, 9)
            os.waitpid(self._first, 0)
            sys.exit(1)
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "signal" in command:
                os.kill(self._first, command["signal"])
            else:
                self._exec(command["exec"], command["command"])

    def _exec(self, identity: str, command: list[str]) -> None:
        output, write = os.pipe()
        os.set_inheritable(write, True)  # noqa: FBT003 - the parameter is positional only
        pid, problem = program.start(
            {**self._spec, "command": command}, is_first=False, streams=(-1, write, write)
        )
        os.close(write)
        each = _Exec(identity=identity, pid=pid, output=output)
        each.said += problem.encode()
        self._execs[output] = each
        self._poll.register(output, select.POLLIN)

    def _read_output(self, descriptor: int) -> None:
        each = self._execs[descriptor]
        if data := os.read(descriptor, _CHUNK):
            each.said += data[: _KEPT - len(each.said)]
            return
        self._poll.unregister(descriptor)
        os.close(descriptor)
        del self._execs[descriptor]
        _, status = os.waitpid(each.pid, 0)
        said = each.said.decode(errors="replace")
        program.report(self._events, event="exec", id=each.identity, code=_code(status), output=said)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    # The shell's convention, as container runtimes report it: 128 and the signal's number.
    return code if code >= 0 else 128 - code


def _words(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


if __name__ == "__main__":
    kernel.die_with_parent()
    with open(sys.argv[1], encoding="utf-8") as _file:  # noqa: PTH123 - pathlib takes time to import
        _spec = json.load(_file)
    Container(_spec).run()
