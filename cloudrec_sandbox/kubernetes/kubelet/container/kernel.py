"""Calls of the Linux kernel that Python 3.11 has no function for."""

from __future__ import annotations

import ctypes
import os

NEW_NS = 0x00020000
NEW_UTS = 0x04000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000

BIND = 4096
REC = 16384
PRIVATE = 1 << 18
NOSUID = 2
NODEV = 4
NOEXEC = 8

OUTER_PROC = "/.proc"  # this machine's /proc, until the container has its own

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL",
    "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip

_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_READ_ONLY = 1
_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def unshare(flags: int) -> None:
    """Leave the parent's namespaces."""
    _check(_libc.unshare(flags), "unshare")


def enter(namespace: int, kind: int) -> None:
    """Enter a namespace, by its descriptor."""
    _check(_libc.setns(namespace, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system; OSError with the target's name."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, target)


def read_only(target: str, *, recursive: bool = False) -> None:
    """Make a mount read-only, or it and all mounts below it."""
    attributes = _MountAttributes(attr_set=_READ_ONLY)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(attributes)
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR, -100, target.encode(), flags, ctypes.byref(attributes), ctypes.c_size_t(size)
    )
    _check(result, target)


def pivot_root(root: str) -> None:
    """Make a mount the root directory, and unmount the old root."""
    os.chdir(root)
    # pivot_root(2): with "." twice the old root is stacked under the new one, and needs no folder.
    _check(_libc.syscall(_SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), root)
    _check(_libc.umount2(b".", _DETACH), root)
    os.chdir("/")


def unmount(target: str) -> None:
    """Unmount a mount and those below it, lazily."""
    _check(_libc.umount2(target.encode(), _DETACH), target)


def set_hostname(name: str) -> None:
    """Set the host name in this namespace."""
    _check(_libc.sethostname(name.encode(), len(name.encode())), "sethostname")


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl")


def no_new_privileges() -> None:
    """Let no program that starts from now on gain privileges."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def bound_capabilities(allowed: list[str]) -> None:
    """Drop, permanently, every capability that is not named."""
    for number, name in enumerate(CAPABILITIES):
        if name not in allowed:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for one that this kernel does not have


def keep_capabilities(allowed: list[str]) -> None:
    """Keep exactly the named capabilities from now on."""
    mask = sum(1 << number for number, name in enumerate(CAPABILITIES) if name in allowed)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _check(_libc.syscall(_SYS_CAPSET[os.uname().machine], header, data), "capset")


def _check(result: int, name: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
