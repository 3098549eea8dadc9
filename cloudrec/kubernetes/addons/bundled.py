"""The objects of the add-ons that cloudrec renders from its own templates."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons import contexts, gpu_nodes, local_disks
from cloudrec.kubernetes.manifests import render
from cloudrec.kubernetes.manifests.names import MANAGED_BY, MANAGER, METRICS
from cloudrec.kubernetes.manifests.shared import claim_name
from cloudrec.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.kubernetes.addons.table import Addon
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests import TemplateContext

_MELLANOX = "15b3"  # the PCI vendor id
_DRIVER = "doca-driver"
# AKS sets it on every node, with the release even where the pool's OS SKU is Ubuntu (azure-aks-docs,
# use-labels.md).
_RELEASE_LABEL = "kubernetes.azure.com/os-sku-effective"
_SYSTEM = "kube-system"  # the namespace of the exporters
_NAME = "app.kubernetes.io/name"
_EXPORTERS = ("cloudrec-gpu-metrics", "cloudrec-fabric-metrics")
_AWAIT_DRIVER = "until [ -e /run/mellanox/drivers/.driver-ready ]; do sleep 5; done"
# DaemonSets that need no values besides their images.
_DAEMONS: Mapping[str, type[contexts.OnNodes]] = {
    "nvidia-peermem": contexts.NvidiaPeermem,
    "tcpx-installer": contexts.TcpxInstaller,
    "tcpxo-installer": contexts.TcpxoInstaller,
    "gib-installer": contexts.GibInstaller,
    "nri-device-injector": contexts.NriDeviceInjector,
    "gpu-metrics": contexts.DcgmExporter,
    "fabric-metrics": contexts.FabricExporter,
}


def objects_of(
    addon: Addon, target: ClusterTarget, *, cluster: str, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return an add-on's objects in the order in which they are applied.

    Args:
        addon: an add-on without a release.
        target: the cluster.
        cluster: the cluster's name.
        labels: the labels of each object.

    Raises:
        PreflightError: the target lacks a value that the add-on needs.
    """
    if addon.name == "volumes":
        return [render(each) for each in _volumes(target, cluster, labels)]
    if addon.name in _DAEMONS:
        given: dict[str, Any] = {**_on(target), **addon.images}
        return [render(_DAEMONS[addon.name](labels=labels, **given))]
    maker = _monitors if is_monitor(addon) else _MAKERS[addon.name]
    return [render(each) for each in maker(addon, target, labels)]


def is_in_namespace(addon: Addon) -> bool:
    """Return whether an add-on's objects are in the namespace of the runs."""
    return is_monitor(addon) or addon.name == "gke-pod-monitorings"


def is_monitor(addon: Addon) -> bool:
    """Return whether an add-on names the pods that serve metrics, for an operator of Prometheus."""
    return any(kind.endswith("/PodMonitor") for kind in addon.requires)


def _on(target: ClusterTarget) -> dict[str, Any]:
    return {"node_selector": dict(target.node_selector) or None}


def _nvidia(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    chosen = None if target.node_selector else gpu_nodes.affinity()
    image = addon.images["plugin"]
    return [contexts.NvidiaDevicePlugin(labels=labels, image=image, affinity=chosen, **_on(target))]


def _efa(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    return [contexts.EfaDevicePlugin(labels=labels, image=addon.images["plugin"], **_on(target))]


def _doca(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    """Return a DaemonSet for each Ubuntu release, since an image has the packages of one release."""
    return [
        contexts.DocaDriver(
            labels=labels,
            image=image,
            name=f"cloudrec-{_DRIVER}-{release}",
            node_selector={**target.node_selector, _RELEASE_LABEL: release.capitalize()},
        )
        for release, image in sorted(addon.images.items())
    ]


def _rdma(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    """Return the plugin and its configuration, which selects the InfiniBand cards."""
    profile = profile_of("infiniband", target.instance_type)
    # The plugin looks for cards once, when it starts, and finds none before their modules are loaded.
    wait = ("sh", "-c", _AWAIT_DRIVER) if _DRIVER in profile.addons else ("true",)
    # One of the mlx5 cards of an ND machine is its Ethernet card, so the link type decides.
    prefix, _, name = profile.card_resource.partition("/")
    selectors = {"vendors": [_MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    config = json.dumps(
        {"resourceList": [{"resourcePrefix": prefix, "resourceName": name, "selectors": selectors}]}
    )
    image = addon.images["plugin"]
    digest = hashlib.sha256(config.encode()).hexdigest()[:16]
    return [
        contexts.RdmaDeviceConfig(labels=labels, config=config),
        contexts.RdmaDevicePlugin(
            labels=labels, digest=digest, wait=wait, image=image, loader=addon.images["loader"], **_on(target)
        ),
    ]


def _networks(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    if not target.networks:
        raise PreflightError(
            f"{addon.name}: the networks of this cluster's GPU nodes are unknown",
            remedy="name them in the cluster's settings: interface, network and subnetwork of each card",
        )
    made: list[TemplateContext] = []
    for each in target.networks:
        name = each.object_name
        made.append(
            contexts.GkeNetworkParameters(
                labels=labels, name=name, network=each.network, subnetwork=each.subnetwork, mode=each.mode
            )
        )
        made.append(contexts.GkeNetwork(labels=labels, name=name))
    return made


def _monitors(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    """Return a monitor of the runs and the keeper, and one of the exporters on the nodes."""
    version = addon.requires[0].rpartition("/")[0]
    exporters = {"key": _NAME, "operator": "In", "values": list(_EXPORTERS)}
    own: dict[str, Any] = {"matchLabels": {MANAGED_BY: MANAGER}}
    return [
        contexts.PodMonitor(
            labels=labels,
            version=version,
            name=name,
            namespace=target.namespace,
            namespaces=[namespace],
            selector=selector,
            port=METRICS,
        )
        for name, namespace, selector in (
            ("cloudrec-runs", target.namespace, own),
            ("cloudrec-exporters", _SYSTEM, {"matchExpressions": [exporters]}),
        )
    ]


def _gke_monitorings(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    """Return the object that names the runs and the keeper; GKE collects the metrics of GPUs itself."""
    del addon
    return [
        contexts.PodMonitoring(
            labels=labels,
            name="cloudrec-runs",
            namespace=target.namespace,
            selector={"matchLabels": {MANAGED_BY: MANAGER}},
            port=METRICS,
        )
    ]


def _local_disks(addon: Addon, target: ClusterTarget, labels: Mapping[str, str]) -> list[TemplateContext]:
    if not target.local_path:
        raise PreflightError(
            f"{addon.name}: pods of this cluster use no folder of the node's local disks",
            remedy="leave the add-on out: emptyDir volumes are on the node's own disk",
        )
    return [local_disks.daemon(addon, target, labels)]


def _volumes(target: ClusterTarget, cluster: str, labels: Mapping[str, str]) -> list[TemplateContext]:
    """Return a volume and a claim for each file system and bucket of the cluster."""
    # A PersistentVolume has no namespace, so its name contains that of the cluster.
    if not target.volumes:
        return []
    kind = "cloudrec-static"
    made: list[TemplateContext] = [contexts.StaticStorageClass(labels=labels, name=kind)]
    for each in target.volumes:
        claim = claim_name(each)
        name = claim.replace("cloudrec-", f"cloudrec-{cluster}-", 1)
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


_MAKERS: Mapping[str, Callable[[Addon, ClusterTarget, Mapping[str, str]], list[TemplateContext]]] = {
    "nvidia-device-plugin": _nvidia,
    "efa-device-plugin": _efa,
    _DRIVER: _doca,
    "rdma-device-plugin": _rdma,
    "gke-networks": _networks,
    "gke-pod-monitorings": _gke_monitorings,
    "local-disks": _local_disks,
}
