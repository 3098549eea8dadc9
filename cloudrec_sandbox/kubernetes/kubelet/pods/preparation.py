"""What a pod's containers start with: volumes, variables, names, network, hardware."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.pods.environment import environment
from cloudrec_sandbox.kubernetes.kubelet.pods.spec import ConfigError, Surroundings, container_spec
from cloudrec_sandbox.kubernetes.kubelet.pods.volumes import Volumes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.kubelet.node.machine import Machine
    from cloudrec_sandbox.kubernetes.kubelet.pods.agent import Kubelet
    from cloudrec_sandbox.kubernetes.kubelet.pods.instance import Instance

_MTU = 1500
_LONGEST_HOSTNAME = 63


class Preparation:
    """Prepares one pod's containers."""

    def __init__(
        self, kubelet: Kubelet, machine: Machine, pod: Mapping[str, Any], *, address: str, folder: Path
    ) -> None:
        """Store the arguments.

        Args:
            kubelet: the kubelet that runs it.
            machine: its node.
            pod: its present state.
            address: its address.
            folder: the folder for its files.
        """
        self._kubelet = kubelet
        self._machine = machine
        self.pod = pod
        self._address = address
        self._folder = folder
        self.volumes = Volumes(
            pod,
            folder=folder / "volumes",
            shared=kubelet.folder / "shared",
            find=self._find,
            node=machine.object(),
            token=kubelet.accounts.token,
        )

    def spec(self, instance: Instance) -> dict[str, Any]:
        """Return a container's spec; ConfigError or MissingReferenceError if the pod's is wrong."""
        around = self._surroundings(instance)
        spec = container_spec(self.pod, instance.container, around)
        around.termination_file.write_bytes(b"")
        around.termination_file.chmod(0o666)
        return spec

    def _surroundings(self, instance: Instance) -> Surroundings:
        container, accounts = instance.container, self._kubelet.accounts
        found = environment(self._pod_with_address(), container, find=self._find, node=self._machine.object())
        variables = {**self._kubelet.given, **accounts.environment(), **found}
        self._check_volumes(container)
        mounts = self.volumes.mounts(container, found)
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        return Surroundings(
            hostname=str(spec.get("hostname") or metadata["name"])[:_LONGEST_HOSTNAME],
            hosts_file=self._folder / "hosts",
            termination_file=self._folder / f"{instance.name}.termination",
            environment=variables,
            mounts=[*mounts, *accounts.mounts(self.pod, self._folder, mounts), *self._given_files()],
            sight=self._machine.sights[metadata["uid"], instance.name],
            memlock=self._machine.memlock,
            network=self._network(variables),
        )

    def _given_files(self) -> list[dict[str, Any]]:
        """Return the mounts of files that a cloud's variables name, such as its certificate authority's."""
        files = (value for value in self._kubelet.given.values() if Path(value).is_file())
        return [{"target": file, "source": file, "read_only": True} for file in files]

    def _check_volumes(self, container: Mapping[str, Any]) -> None:
        known = {each["name"] for each in self.pod["spec"].get("volumes") or ()}
        missing = {mount["name"] for mount in container.get("volumeMounts") or ()} - known
        if missing:
            raise ConfigError(
                f"cannot find volume {min(missing)!r} to mount into container {container['name']!r}"
            )

    def _network(self, variables: Mapping[str, str]) -> int | None:
        """Return its network, with access to the loopback services that its texts name."""
        words = [json.dumps(self.pod["spec"]), *variables.values(), *self.volumes.texts()]
        words.append(self._kubelet.accounts.place)
        mtu = int(self._machine.hardware.get("mtu", _MTU))
        uid = self.pod["metadata"]["uid"]
        return self._kubelet.network.plug(uid, self._address, texts=words, mtu=mtu)

    def _pod_with_address(self) -> dict[str, Any]:
        """Return the pod as the downward API shows it."""
        status = {**self.pod.get("status", {}), "podIP": self._address, "podIPs": [{"ip": self._address}]}
        status["hostIP"] = self._machine.address
        return {**self.pod, "status": status}

    def _find(self, resource: str, name: str) -> dict[str, Any] | None:
        return self._kubelet.cluster.store.get(resource, self.pod["metadata"]["namespace"], name)
