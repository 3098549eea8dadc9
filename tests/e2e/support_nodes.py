"""A node as the agent in a pod sees it: files below /dev, /sys, /opt and /usr/local, its limits, its NCCL.

The agent is the real one, in its own mount namespace. Only what a machine with GPUs would add is made: files
of devices, and torch, which reports GPUs and logs what NCCL logs there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloudrec.transport import profile_of
from tests.unit.agent.support_fabrics import KITS, Kit

_IPC_LOCK = "ipc_lock"
# The shell's own word list is the order of the mounts: /dev last, since the commands need it.
_ENTER = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /sys
cp -r "$1"/sys/. /sys/
mount -t tmpfs tmpfs /opt
[ ! -d "$1"/opt ] || cp -r "$1"/opt/. /opt/
if [ -d "$1"/usr/local ]; then
  mkdir -p "$2"/upper "$2"/work
  mount -t tmpfs tmpfs "$2"
  mkdir -p "$2"/upper "$2"/work
  mount -t overlay overlay -o lowerdir=/usr/local,upperdir="$2"/upper,workdir="$2"/work /usr/local
  cp -r "$1"/usr/local/. /usr/local/
fi
[ ! -f "$1"/proc/sys/net/core/optmem_max ] ||
  mount --bind "$1"/proc/sys/net/core/optmem_max /proc/sys/net/core/optmem_max
mkdir -p "$2"/dev
mount -t tmpfs tmpfs "$2"/dev
for each in null zero full random urandom tty; do
  touch "$2"/dev/$each; mount --bind /dev/$each "$2"/dev/$each
done
ln -s /proc/self/fd "$2"/dev/fd
cp -r "$1"/dev/. "$2"/dev/
mkdir "$2"/dev/shm
mount -t tmpfs -o size=128g tmpfs "$2"/dev/shm
mount --rbind "$2"/dev /dev
shift 2
exec "$@"
"""
_TORCH = """
import json, os, sys
_NODE = json.loads(os.environ["MADE_NODE"])
class version:
    cuda = "13.0"
class _Nccl:
    @staticmethod
    def version():
        return tuple(int(part) for part in _NODE["nccl"].split("."))
class cuda:
    nccl = _Nccl
    @staticmethod
    def device_count():
        return _NODE["gpus"]
    @staticmethod
    def set_device(device):
        pass
    @staticmethod
    def synchronize():
        pass
def device(kind, number):
    return (kind, number)
class _Ones:
    def __init__(self, count):
        self.count = count
    def sum(self):
        return self.count
    def numel(self):
        return self.count
def ones(count, device):
    return _Ones(count)
"""
_DISTRIBUTED = """
import json, os
def HashStore():
    return None
def init_process_group(*_given, **_named):
    for line in json.loads(os.environ["MADE_NODE"])["log"]:
        print(line)
def all_reduce(_value):
    pass
def destroy_process_group():
    pass
"""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node with its pod.

    Attributes:
        kit: its fabric and its machine.
        root: its files.
        log: the lines that NCCL logs.
        nccl: NCCL's version.
        memlock: bytes that the pod's processes may lock; None for this machine's limit.
        may_lock: whether they may lock any memory, by the capability IPC_LOCK. A test cannot raise the limit,
            which EFA's nodes do instead.
    """

    kit: Kit
    root: Path
    log: tuple[str, ...]
    nccl: str
    memlock: int | None = None
    may_lock: bool = True

    @classmethod
    def whole(cls, fabric: str, folder: Path) -> Node:
        """Return a node that lacks nothing."""
        return cls.of(KITS[fabric], folder)

    @classmethod
    def of(cls, kit: Kit, folder: Path) -> Node:
        """Return a whole node of a machine."""
        return cls(kit=kit, root=kit.node(folder / "root"), log=kit.log(), nccl=kit.nccl)

    def without(self, pattern: str) -> Node:
        """Return the node without the files that match a pattern."""
        for path in self.root.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return self

    def but(self, **changes: object) -> Node:
        """Return the node with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the fields' own types


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the agent ended: its exit code and its words."""

    code: int
    words: str = field(repr=False)


def run_agent(node: Node, folder: Path) -> Ended:
    """Run `python -m cloudrec.agent agent` on the node, with the variables of its pod's manifest."""
    made, work, scratch = folder / "packages", folder / "work", folder / "scratch"
    for file, text in {
        "torch/__init__.py": _TORCH,
        "torch/distributed/__init__.py": _DISTRIBUTED,
    }.items():
        path = made / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    scratch.mkdir(exist_ok=True)
    settings = node.kit.settings
    profile = profile_of(settings.fabric, settings.instance_type)
    of_profile = profile.environment
    answer = {"gpus": settings.gpus, "nccl": node.nccl, "log": node.log}
    variables = {
        **os.environ,
        **{name: value for name, value in of_profile.items() if name != "LD_PRELOAD"},  # the files are empty
        "PYTHONPATH": f"{made}:{Path.cwd()}",
        "MADE_NODE": json.dumps(answer),
        "CLOUDREC_FABRIC": settings.fabric,
        "CLOUDREC_INSTANCE_TYPE": settings.instance_type,
        "CLOUDREC_GPUS": str(settings.gpus),
        "CLOUDREC_CARDS": str(settings.cards),
        "CLOUDREC_PROFILE": profile.script,
    }
    limits = [] if node.memlock is None else ["prlimit", f"--memlock={node.memlock}:{node.memlock}"]
    limits += [] if node.may_lock else ["setpriv", "--bounding-set", f"-{_IPC_LOCK}"]
    agent = [
        sys.executable,
        "-m",
        "cloudrec.agent",
        "agent",
        "--work",
        str(work),
        "--termination-log",
        "/dev/null",
    ]
    command = [
        *("unshare", "--mount", "sh", "-c", _ENTER, "sh", str(node.root), str(scratch)),
        *limits,
        *agent,
        "--",
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--no-python", "--", "true"),
    ]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    return Ended(code=done.returncode, words=done.stdout + done.stderr)


def why_not() -> str | None:
    """Return why no node can be made here; None if one can."""
    if os.geteuid() != 0:
        return "only root can make a mount namespace for a node's files"
    missing = [name for name in ("unshare", "prlimit", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return None if tried.returncode == 0 else "this machine makes no mount namespace"
