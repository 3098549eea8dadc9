"""The program in a container: given its rights, limits and identity, then started."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, NoReturn

from cloudrec.sandbox.kubernetes.kubelet.container import kernel

_NOT_FOUND = 127
_FILES = 1 << 20  # open files that container runtimes allow


def start(spec: dict[str, Any], *, is_first: bool, output: int) -> tuple[int, str]:
    """Start a program in the namespaces of this process.

    Args:
        spec: command, environment, workdir, uid, gid, groups, capabilities, memlock, no_new_privileges.
        is_first: it is the container's process 1, which has /proc mounted.
        output: descriptor of its stdout and stderr.

    Returns:
        Its process id and, when it could not be started, why.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _become(spec, is_first=is_first, output=output, tell=tell)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8") as file:
        return pid, file.read()


def _become(spec: dict[str, Any], *, is_first: bool, output: int, tell: int) -> NoReturn:
    step = "start"
    try:
        if is_first:
            os.setsid()
            _mount_proc(is_root=spec["is_root"])
        step = "identity"
        _take_identity(spec)
        kernel.die_with_parent()  # after the change of identity, which would undo it
        step = spec["command"][0]
        os.chdir(spec["workdir"])
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.set_inheritable(tell, False)  # noqa: FBT003 - the only way
        os.closerange(3, tell)
        os.closerange(tell + 1, 256)
        os.execvpe(step, spec["command"], spec["environment"])  # noqa: S606 - a container's command is no shell's
    except FileNotFoundError:
        os.write(tell, f'exec: "{step}": executable file not found in $PATH'.encode())
    except OSError as error:
        os.write(tell, f'exec: "{step}": {(error.strerror or str(error)).lower()}'.encode())
    except Exception as error:  # noqa: BLE001 - this process must end here, whatever it is
        os.write(tell, f"{step}: {error!r}".encode())
    os._exit(_NOT_FOUND)


def _mount_proc(*, is_root: bool) -> None:
    try:
        kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    except OSError:
        if is_root:
            raise
        kernel.mount(kernel.OUTER_PROC, "/proc", "", kernel.BIND | kernel.REC)  # tells other numbers
    if not is_root:
        kernel.unmount(kernel.OUTER_PROC)


def _take_identity(spec: dict[str, Any]) -> None:
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
    """Allow as many open files as container runtimes do, where that may be."""
    for limit in (_FILES, most):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (OSError, ValueError):  # more than this process may give
            continue
        return


def _appear_as(uid: int, gid: int) -> None:
    """Be, in a user namespace, who the pod says; outside it stays whoever started all this."""
    kernel.unshare(kernel.NEW_USER)
    map_user(uid, gid, outer=0)


def map_user(uid: int, gid: int, *, outer: int, outer_group: int | None = None) -> None:
    """Say who this process is in the user namespace that it has just made."""
    group = outer if outer_group is None else outer_group
    for name, text in (
        ("uid_map", f"{uid} {outer} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{gid} {group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def tell(descriptor: int, **event: object) -> None:
    """Tell the kubelet what happened; it may be gone."""
    try:
        os.write(descriptor, (json.dumps(event) + "\n").encode())
    except BrokenPipeError:
        sys.exit(1)
