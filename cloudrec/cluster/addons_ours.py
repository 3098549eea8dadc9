"""The objects of add-ons that are made of templates of ours."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cloudrec.cluster import addons_contexts as contexts
from cloudrec.errors import PreflightError
from cloudrec.manifests import render
from cloudrec.manifests.shared import claim_name
from cloudrec.plan.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.cluster.addons_table import Addon
    from cloudrec.kube.target import Target
    from cloudrec.manifests import Context

_MELLANOX = "15b3"
# DaemonSets that differ in their images alone.
_DAEMONS: Mapping[str, type[contexts.OnNodes]] = {
    "nvidia-peermem": contexts.NvidiaPeermem,
    "tcpx-installer": contexts.TcpxInstaller,
    "tcpxo-installer": contexts.TcpxoInstaller,
    "nri-device-injector": contexts.NriDeviceInjector,
}


def objects_of(
    addon: Addon, target: Target, *, cluster: str, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return an add-on's objects in the order in which they are applied.

    Args:
        addon: one without a release.
        target: the cluster.
        cluster: its name.
        labels: what each object bears.

    Raises:
        PreflightError: the cluster has nothing that this add-on could be for.
    """
    if addon.name == "volumes":
        return [render(each) for each in _volumes(target, cluster, labels)]
    if addon.name in _DAEMONS:
        given: dict[str, Any] = {**_on(target), **addon.images}
        return [render(_DAEMONS[addon.name](labels=labels, **given))]
    return [render(each) for each in _MAKERS[addon.name](addon, target, labels)]


def _on(target: Target) -> dict[str, Any]:
    return {"node_selector": dict(target.node_selector) or None}


def _nvidia(addon: Addon, target: Target, labels: Mapping[str, str]) -> list[Context]:
    return [contexts.NvidiaDevicePlugin(labels=labels, image=addon.images["plugin"], **_on(target))]


def _efa(addon: Addon, target: Target, labels: Mapping[str, str]) -> list[Context]:
    return [contexts.EfaDevicePlugin(labels=labels, image=addon.images["plugin"], **_on(target))]


def _rdma(addon: Addon, target: Target, labels: Mapping[str, str]) -> list[Context]:
    """Only cards whose link is InfiniBand: one of them is the Ethernet's."""
    prefix, _, name = profile_of("infiniband", target.instance_type).card_resource.partition("/")
    selectors = {"vendors": [_MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    config = json.dumps(
        {"resourceList": [{"resourcePrefix": prefix, "resourceName": name, "selectors": selectors}]}
    )
    digest = hashlib.sha256(config.encode()).hexdigest()[:16]
    return [
        contexts.RdmaDeviceConfig(labels=labels, config=config),
        contexts.RdmaDevicePlugin(labels=labels, image=addon.images["plugin"], digest=digest, **_on(target)),
    ]


def _networks(addon: Addon, target: Target, labels: Mapping[str, str]) -> list[Context]:
    if not target.networks:
        raise PreflightError(
            f"{addon.name}: nobody knows the networks of this cluster's GPU nodes",
            remedy="say them in the cluster's settings: interface, network and subnetwork of each card",
        )
    made: list[Context] = []
    for each in target.networks:
        name = each["network"]
        made.append(
            contexts.GkeNetworkParameters(
                labels=labels, name=name, network=name, subnetwork=each["subnetwork"]
            )
        )
        made.append(contexts.GkeNetwork(labels=labels, name=name))
    return made


def _volumes(target: Target, cluster: str, labels: Mapping[str, str]) -> list[Context]:
    """Return a volume and a claim of each; a volume's name holds the cluster's, since it has no namespace."""
    if not target.volumes:
        return []
    kind = "cloudrec-static"
    made: list[Context] = [contexts.StaticStorageClass(labels=labels, name=kind)]
    for each in target.volumes:
        name, claim = f"cloudrec-{cluster}-{each['name']}", claim_name(each["name"])
        made.append(
            contexts.PersistentVolume(
                labels=labels,
                name=name,
                namespace=target.namespace,
                claim=claim,
                storage_class=kind,
                driver=each["driver"],
                handle=each["handle"],
                capacity=each["capacity"],
                attributes=each.get("attributes") or {},
                mount_options=each.get("mount_options") or None,
            )
        )
        made.append(
            contexts.PersistentVolumeClaim(
                labels=labels,
                name=claim,
                namespace=target.namespace,
                storage_class=kind,
                volume=name,
                capacity=each["capacity"],
            )
        )
    return made


_MAKERS: Mapping[str, Callable[[Addon, Target, Mapping[str, str]], list[Context]]] = {
    "nvidia-device-plugin": _nvidia,
    "efa-device-plugin": _efa,
    "rdma-device-plugin": _rdma,
    "gke-networks": _networks,
}
