"""A privileged pod that enters its node's mount namespace finds the node's disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cloudrec.kubernetes.addons.local_disks import daemon
from cloudrec.kubernetes.addons.table import addon_of
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec_sandbox.kubernetes.kubelet.node.shell import NodeShell

if TYPE_CHECKING:
    from pathlib import Path

_TARGET = ClusterTarget(
    kubeconfig="", context="", namespace="cloudrec", service_account="", local_path="/mnt/cloudrec/data"
)


def _shell(folder: Path, **hardware: int) -> tuple[NodeShell, list[str], list[str]]:
    made = daemon(addon_of("local-disks"), _TARGET, {})
    return NodeShell(folder, hardware), list(made.command), list(made.probe)


def test_several_disks_become_one_array_with_the_folder_for_datasets(tmp_path: Path) -> None:
    shell, command, probe = _shell(tmp_path, nvme=8, temporary_disk=1)
    assert shell.run(probe)[0] == 1
    assert shell.run(command)[1] == ""
    assert shell.run(probe)[0] == 0
    assert (tmp_path / "mnt/cloudrec/data").is_dir()
    assert (tmp_path / "mounts").read_text().split() == ["/mnt", "/mnt/cloudrec"]
    assert (tmp_path / "disks").read_text().splitlines()[-1] == "/dev/md/cloudrec-data RAID"
    shell.run(command)  # the next turn changes nothing
    assert (tmp_path / "disks").read_text().count("RAID") == 1


def test_a_node_without_such_disks_gives_its_temporary_disk(tmp_path: Path) -> None:
    shell, command, probe = _shell(tmp_path, temporary_disk=1)
    shell.run(command)
    assert shell.run(probe)[0] == 0
    assert (tmp_path / "mounts").read_text().split() == ["/mnt"]


def test_a_node_without_disks_is_not_ready(tmp_path: Path) -> None:
    shell, command, probe = _shell(tmp_path)
    assert "no local disk" in shell.run(command)[1]
    assert shell.run(probe)[0] == 1


@pytest.mark.parametrize("command", [["sh", "-c", "python3 -c 1"], ["modprobe", "nvidia"]])
def test_no_other_program_of_this_machine_is_found(tmp_path: Path, command: list[str]) -> None:
    assert _shell(tmp_path)[0].run(command)[0] == 127
