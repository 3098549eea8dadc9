"""Facts about clouds, which shared code reads instead of checking for a cloud's name.

A provider folder may have a module `facts` with one value, FACTS. The module must import no SDK.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PROVIDERS = "cloudrec.providers"
_SHARED = "base"
PLAIN_IMAGE = "plain"  # the image for nodes without a fabric


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """An interconnect between GPUs of different nodes, other than TCP.

    Its transport profile is in `transport/profiles.yaml`, or in `profiles.yaml` in the provider's folder.

    Attributes:
        name: its name in transport profiles and in specs.
        machines: the machines that have it, for help texts.
        image: the Dockerfile's target with its libraries.
        base_image: a publisher's image with them, for pods that install the rest; `plain` if the libraries
            come from the node, so that any image serves; empty if none is known.
        device_class: the DeviceClass of its cards, where a driver gives them by dynamic resource allocation.
        device_driver: the name of that driver.
        card_resource: the resource that the device plugin gives a node for each card; a prefix if it ends
            in a slash; empty if pods need not ask for cards.
        resources: resources that a pod needs beside its cards, if nodes have them.
        capabilities: capabilities that a pod needs beyond an unprivileged one.
    """

    name: str
    machines: str
    image: str
    base_image: str = ""
    card_resource: str = ""
    device_class: str = ""
    device_driver: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()

    def has_card(self, resource: str) -> bool:
        """Return whether a node's resource is a card of this fabric."""
        if self.card_resource.endswith("/"):
            return resource.startswith(self.card_resource)
        return bool(self.card_resource) and resource == self.card_resource


@dataclass(frozen=True, kw_only=True)
class PreemptionNotice:
    """A cloud's notice to a spot machine that it is about to be preempted.

    Attributes:
        service: the metadata service's name, as the trainer's `--preemption_notices` takes it.
        seconds: seconds between the notice and the machine's end that a pod can use.
        machine_ids: the first part of `spec.providerID` of the cloud's nodes, before the colon.
    """

    service: str
    seconds: int
    machine_ids: str


@dataclass(frozen=True, kw_only=True)
class CloudFacts:
    """The facts about one cloud that shared code needs.

    Attributes:
        name: the provider's name.
        fabrics: fabrics beyond TCP.
        notice: the notice of a preemption; None if there is none.
        pool_label: the label by which the cloud names a node's pool; empty if it sets none.
        unhealthy: conditions by which its agents report a node that must be repaired, each with the status
            of a problem.
        metrics_agent: the service that `cluster.metrics: managed` switches on; empty if there is none.
        metrics_addons: the add-ons that this service needs in the cluster.
        control_plane: what the price table calls the control plane; empty if it has no price of one.
        bucket: what it calls a GiB in the cluster's bucket; empty if it has no price of one.
        egress: what it calls a GB that leaves the cloud; empty if it has no price of one.
        topology: the labels by which it names the parts of the network that a node is in, the widest first.
    """

    name: str
    fabrics: tuple[Fabric, ...] = ()
    notice: PreemptionNotice | None = None
    pool_label: str = ""
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    topology: tuple[str, ...] = ()
    metrics_agent: str = ""
    metrics_addons: tuple[str, ...] = ()
    control_plane: str = ""
    bucket: str = ""
    egress: str = ""


@cache
def all_facts() -> tuple[CloudFacts, ...]:
    """Return the facts of every provider that states any, by name."""
    root = import_module(_PROVIDERS)
    folders = sorted(each.name for each in iter_modules(root.__path__) if each.ispkg and each.name != _SHARED)
    return tuple(found for name in folders if (found := facts_of(name)) is not None)


def facts_of(name: str) -> CloudFacts | None:
    """Return the facts of one provider; None if its folder states none.

    Args:
        name: the folder's name; it exists.
    """
    module = f"{_PROVIDERS}.{name}.facts"
    if find_spec(module) is None:
        return None
    stated: CloudFacts = import_module(module).FACTS
    return stated


def topology_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the labels of the network's topology that any of these nodes has, of whichever cloud."""
    present = {label for node in nodes for label in node["metadata"].get("labels") or {}}
    return tuple(label for facts in all_facts() for label in facts.topology if label in present)


def fabric_of(name: str) -> Fabric | None:
    """Return the fabric of this name, from any cloud; None for `tcp` and `none`."""
    return next((fabric for facts in all_facts() for fabric in facts.fabrics if fabric.name == name), None)


def image_targets() -> tuple[str, ...]:
    """Return the Dockerfile targets for all kinds of nodes, the plain one first."""
    targets = (fabric.image for facts in all_facts() for fabric in facts.fabrics)
    return tuple(dict.fromkeys((PLAIN_IMAGE, *targets)))
