"""Commands that a privileged pod runs in its node's mount namespace, by `nsenter -t 1 --mount`.

The commands run on this machine, in a separate mount namespace where /mnt is the node's. The disks are
entries of files, which small programs read and write: lsblk, blkid, mdadm, mkfs.ext4, mount, mountpoint. Each
behaves as its manual page (util-linux, mdadm, e2fsprogs) says for the options that it takes here. It refuses
others. Of this machine's programs, only those in `_PLAIN` are found by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NVME, TEMPORARY = "nvme", "temporary_disk"  # members of a node's hardware
_MODEL = "Microsoft NVMe Direct Disk v2"
_LIMIT_S = 10.0

# Without --mount, the command would see the container's own mounts.
_TOOLS = {
    "nsenter": """\
target= mount=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    -t) target=$2; shift ;;
    --target=*) target=${1#*=} ;;
    -m|--mount) mount=1 ;;
    *) echo "nsenter: unrecognized option '$1'" >&2; exit 1 ;;
  esac
  shift
done
[ "$target" = 1 ] && [ -n "$mount" ] || exit 1
shift
exec "$@"
""",
    # The stand-in follows a loop for one turn.
    "sleep": "kill $PPID\n",
    "lsblk": """\
case $1 in
  -dnpo) [ "$2" = NAME,MODEL ] && cat "$NODE/disks" ;;
  -nro) [ "$2" = NAME ] && grep -q "^$3 " "$NODE/disks" && basename "$3" ;;
  *) echo "lsblk: unknown option $1" >&2; exit 1 ;;
esac
""",
    "blkid": """\
if [ "$1" = -L ]; then
  for each in "$NODE"/labels/*; do
    [ -e "$each" ] && [ "$(cat "$each")" = "$2" ] && basename "$each" | tr % / && exit 0
  done
  exit 2
fi
for disk; do :; done
[ -e "$NODE/labels/$(echo "$disk" | tr / %)" ] || exit 2
echo ext4
""",
    "mdadm": """\
[ "$1" = --create ] || { echo "mdadm: $1: not known" >&2; exit 2; }
array=$2 count=0 wanted=; shift 2
for each; do
  case $each in
    --raid-devices=*) wanted=${each#*=} ;;
    --run|--level=0|--name=*) ;;
    -*) echo "mdadm: unrecognized option '$each'" >&2; exit 2 ;;
    *) grep -q "^$each " "$NODE/disks" || { echo "mdadm: cannot open $each: No such file" >&2; exit 1; }
       count=$((count + 1)) ;;
  esac
done
[ "$count" = "$wanted" ] || { echo "mdadm: You haven't given enough devices" >&2; exit 1; }
echo "$array RAID" >> "$NODE/disks"
""",
    "mkfs.ext4": """\
label=
while [ $# -gt 1 ]; do
  case $1 in
    -q) ;;
    -m) shift ;;
    -L) label=$2; shift ;;
    *) echo "mkfs.ext4: invalid option -- '$1'" >&2; exit 1 ;;
  esac
  shift
done
grep -q "^$1 " "$NODE/disks" || { echo "The file $1 does not exist and no size was specified." >&2; exit 1; }
echo "$label" > "$NODE/labels/$(echo "$1" | tr / %)"
""",
    "mount": """\
[ "$1" = -o ] && shift 2
fail() { echo "mount: $1" >&2; exit 32; }
[ -e "$NODE/labels/$(echo "$1" | tr / %)" ] || fail "$2: special device $1 does not exist."
[ -d "$2" ] || fail "$2: mount point does not exist."
echo "$2" >> "$NODE/mounts"
""",
    "mountpoint": """\
[ "$1" = -q ] && shift
grep -qx "$1" "$NODE/mounts"
""",
}
# The mount ends with the namespace.
_ENTER = 'mount --bind "$NODE/mnt" /mnt && PATH="$NODE/tools" && export PATH && exec "$@"'
_PLAIN = ("basename", "cat", "chmod", "cut", "grep", "mkdir", "sh", "test", "tr", "wc")


class NodeShell:
    """A node's mount namespace, with its disks."""

    def __init__(self, folder: Path, hardware: Mapping[str, Any]) -> None:
        """Make the node's files if there are none.

        Args:
            folder: the node's folder; the folder `mnt` in it is the node's /mnt.
            hardware: `nvme`: the number of its local NVMe disks; `temporary_disk`: 1 if its image mounts a
                temporary disk at /mnt.
        """
        self._folder = folder
        tools = folder / "tools"
        if tools.exists():
            return
        for each in (tools, folder / "mnt", folder / "labels"):
            each.mkdir(parents=True, exist_ok=True)
        disks = [f"/dev/nvme{number}n1 {_MODEL}\n" for number in range(int(hardware.get(NVME, 0)))]
        (folder / "disks").write_text("".join(disks), encoding="utf-8")
        mounts = "/mnt\n" if hardware.get(TEMPORARY) else ""
        (folder / "mounts").write_text(mounts, encoding="utf-8")
        for name, text in _TOOLS.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
            (tools / name).chmod(0o755)
        for name in _PLAIN:
            if program := shutil.which(name):
                (tools / name).symlink_to(program)

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a command of a container that enters this namespace; return its exit code and its output.

        Of a command that repeats itself with `sleep`, one turn runs.
        """
        spaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
        try:
            done = subprocess.run(
                [*spaces, "--propagation", "private", "sh", "-c", _ENTER, "sh", *command],
                env={"PATH": os.environ.get("PATH", os.defpath), "NODE": str(self._folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, f"{command[0]}: not done after {_LIMIT_S:g} s\n"
        return done.returncode, done.stdout + done.stderr


def enters_node(pod: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    """Return whether a container enters its node's mount namespace, and may."""
    may = pod["spec"].get("hostPID") and (container.get("securityContext") or {}).get("privileged")
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return bool(may) and any("nsenter -t 1 --mount" in word for word in words)
