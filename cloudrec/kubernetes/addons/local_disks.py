"""The add-on `local-disks`: joins a node's local disks into one volume, and mounts it at a path of the node.

For clouds whose nodes do not do so themselves. It takes the local NVMe disks that nothing uses; of several it
makes an array of level 0. Without such a disk it takes a folder of the machine's temporary disk, which the
node's image has mounted at /mnt. A disk with partitions, a file system or another use is never changed: only
the volume with the add-on's own label is mounted again, as after a restart of the node.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.addons import contexts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.addons.table import Addon
    from cloudrec.kubernetes.client.target import ClusterTarget

_LABEL = "cloudrec-data"  # of the file system; ext4 allows 16 characters
_EVERY_S = 30
# The model by which Azure's local NVMe disks are known; its remote disks and its accelerators have other ones
# (azure-aks-docs, best-practices-storage-nvme.md).
_MODEL = "Microsoft NVMe Direct Disk"
_SCRIPT = """\
set -eu
root={root} data={data}
if ! mountpoint -q "$root"; then
  volume=$(blkid -L {label} || true)
  if [ -z "$volume" ]; then
    disks=""
    for disk in $(lsblk -dnpo NAME,MODEL | grep -F '{model}' | cut -d' ' -f1); do
      [ "$(lsblk -nro NAME "$disk" | wc -l)" = 1 ] || continue
      [ -z "$(blkid -p -o value -s TYPE "$disk" || true)" ] || continue
      disks="$disks $disk"
    done
    set -- $disks
    if [ $# -gt 1 ]; then
      mdadm --create /dev/md/{label} --run --level=0 --name={label} --raid-devices=$# "$@"
      volume=/dev/md/{label}
    elif [ $# = 1 ]; then
      volume=$1
    fi
    [ -z "$volume" ] || mkfs.ext4 -q -m 0 -L {label} "$volume"
  fi
  mkdir -p "$root"
  if [ -n "$volume" ]; then
    mount -o noatime "$volume" "$root"
  elif ! mountpoint -q /mnt; then
    echo "this node has no local disk" >&2
    exit 1
  fi
fi
mkdir -p "$data"
chmod 1777 "$data"
"""


def daemon(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> contexts.LocalDisks:
    """Return the DaemonSet that mounts the disks at the parent of the target's folder for datasets."""
    data = PurePosixPath(target.local_path)
    script = _SCRIPT.format(
        root=shlex.quote(str(data.parent)), data=shlex.quote(str(data)), label=_LABEL, model=_MODEL
    )
    on_node = ["nsenter", "-t", "1", "--mount", "--"]
    step = shlex.join([*on_node, "sh", "-c", script])
    chosen: dict[str, Any] = {"node_selector": dict(target.node_selector) or None}
    return contexts.LocalDisks(
        labels=labels,
        loader=addon.images["loader"],
        command=("sh", "-c", f"while true; do {step}; sleep {_EVERY_S}; done"),
        probe=(*on_node, "test", "-d", str(data)),
        **chosen,
    )
