"""The program in a container: it gets its rights, limits and identity, then it is started."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import sys
import termios
from typing import Any, NoReturn

from cloudrec_sandbox.kubernetes.kubelet.container import kernel

_NOT_FOUND = 127
_FILES = 1 << 20  # limit of open files in container runtimes


def start(
    spec: dict[str, Any], *, is_first: bool, streams: tuple[int, int, int], is_terminal: bool = False
) -> tuple[int, str]:
    """Start a program in the namespaces of this process.

    Args:
        spec: command, environment, workdir, uid, gid, groups, capabilities, memlock, no_new_privileges.
        is_first: whether it is the container's process 1, which mounts /proc.
        streams: descriptors for its stdin, stdout and stderr; -1 for no stdin.
        is_terminal: whether they are a terminal, which it then controls.

    Returns:
        Its process id, and why it could not be started; '' if it was.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _become(spec, is_first=is_first, streams=streams, is_terminal=is_terminal, writer=writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        return pid, file.read()


def _become(
    spec: dict[str, Any], *, is_first: bool, streams: tuple[int, int, int], is_terminal: bool, writer: int
) -> NoReturn:
    step = "start"
    try:
        if is_first or is_terminal:
            os.setsid()
        if is_terminal:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        if is_first:
            _mount_proc(is_root=spec["is_root"])
        step = "identity"
        _take_identity(spec)
        kernel.die_with_parent()  # after the change of identity, which resets it
        step = spec["command"][0]
        os.chdir(spec["workdir"])
        given = os.open("/dev/null", os.O_RDONLY) if streams[0] < 0 else streams[0]
        for source, target in ((given, 0), (streams[1], 1), (streams[2], 2)):
            os.dup2(source, target)
        # Closed by a successful exec, which is how the parent sees that the program has started.
        os.set_inheritable(writer, False)  # noqa: FBT003 - the parameter is positional only
        os.closerange(3, writer)
        os.closerange(writer + 1, 256)
        os.execvpe(step, spec["command"], spec["environment"])  # noqa: S606 - a container's command needs no shell
    except FileNotFoundError:
        os.write(writer, f'exec: "{step}": executable file not found in $PATH'.encode())
    except OSError as error:
        os.write(writer, f'exec: "{step}": {(error.strerror or str(error)).lower()}'.encode())
    except Exception as error:  # noqa: BLE001 - the forked process must end here in any case
        os.write(writer, f"{step}: {error!r}".encode())
    os._exit(_NOT_FOUND)


def _mount_proc(*, is_root: bool) -> None:
    try:
        kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    except OSError:
        if is_root:
            raise
        # The outer /proc shows the outer process ids.
        kernel.mount(kernel.OUTER_PROC, "/proc", "", kernel.BIND | kernel.REC)
    if not is_root:
        kernel.unmount(kernel.OUTER_PROC)


def _take_identity(spec: dict[str, Any]) -> None:
    # Limits and capabilities first: afterwards the process may not change them.
    if spec["memlock"] is not None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (spec["memlock"], spec["memlock"]))
    _raise_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    os.umask(0o022)
    uid, gid = spec["uid"], spec["gid"]
    if not spec["is_root"]:
        _appear_as(uid, gid)
        return
    kernel.bound_capabilities(spec["capabilities"])
    os.setgroups(spec["groups"])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if uid == 0:
        kernel.keep_capabilities(spec["capabilities"])
    if spec["no_new_privileges"]:
        kernel.no_new_privileges()


def _raise_files(most: int) -> None:
    """Raise the limit of open files to that of container runtimes, as far as allowed."""
    for limit in (_FILES, most):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (OSError, ValueError):  # above what this process may set
            continue
        return


def _appear_as(uid: int, gid: int) -> None:
    """Take the pod's user and group in a user namespace; outside it the process keeps its own user."""
    kernel.unshare(kernel.NEW_USER)
    map_user(uid, gid, outer=0)


def map_user(uid: int, gid: int, *, outer: int, outer_group: int | None = None) -> None:
    """Map this process's user and group in the user namespace that it has just made."""
    group = outer if outer_group is None else outer_group
    for name, text in (
        ("uid_map", f"{uid} {outer} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{gid} {group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def report(descriptor: int, **event: object) -> None:
    """Report an event to the kubelet, which may be gone."""
    try:
        os.write(descriptor, (json.dumps(event) + "\n").encode())
    except BrokenPipeError:
        sys.exit(1)
