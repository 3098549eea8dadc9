"""EKS's state: clusters with everything that belongs to them. Documents have boto3's shapes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, setting
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations(
    {
        "eks-cluster-create": 600,
        "eks-cluster-delete": 300,
        "eks-cluster-name-reuse": 20,
        "eks-cluster-update": 60,
        "eks-cluster-update-shows": 2,
        "eks-service-role": 5,
    }
)


@dataclass
class Nodegroup:
    """A managed node group.

    Attributes:
        document: what EKS shows.
        uid: no other group has it, also not a later one of its name.
        lifecycle: that of its instances.
        parameters: those of the call that made it.
        ripe: when it can be active at the earliest.
        instances: ids of the instances that its Auto Scaling group counts.
        problem: the health issue that EKS shows.
        failure: why the Auto Scaling group cannot replace a lost instance; EKS notices it later.
        is_refilling: whether the Auto Scaling group tries to replace lost instances.
        updates: by id.
    """

    document: dict[str, Any]
    uid: str
    lifecycle: str
    parameters: dict[str, Any]
    ripe: float = 0.0
    instances: list[str] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    is_refilling: bool = False
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Addon:
    """An add-on and the caller's parameters."""

    document: dict[str, Any]
    uid: str
    parameters: dict[str, Any]
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class AccessEntry:
    """The access of a principal, with its policies by ARN."""

    document: dict[str, Any]
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Cluster:
    """A cluster; `enis` are the control plane's."""

    document: dict[str, Any]
    uid: str
    parameters: dict[str, Any]
    nodegroups: dict[str, Nodegroup] = field(default_factory=dict)
    addons: dict[str, Addon] = field(default_factory=dict)
    entries: dict[str, AccessEntry] = field(default_factory=dict)
    associations: dict[str, dict[str, Any]] = field(default_factory=dict)
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    enis: list[str] = field(default_factory=list)

    @property
    def is_updating(self) -> bool:
        """Return whether an update of the cluster itself runs."""
        return any(update["status"] == "InProgress" for update in self.updates.values())


@dataclass
class Eks:
    """EKS in one region."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)  # names of deleted clusters: taken until when
    service_role_from: float | None = None  # when EKS's service-linked role can be used


@dataclass
class Wishes:
    """What /_control sets."""

    kubernetes: dict[str, str] = field(default_factory=dict)
    eviction_blocked: bool = False


def eks_of(call: Call) -> Eks:
    """EKS in the call's region."""
    return call.world.state(Eks, call.region)


def cluster_of(call: Call, parameter: str = "clusterName") -> Cluster:
    """Return the cluster that the call names; ResourceNotFoundException if there is none."""
    name = call.params[parameter]
    cluster = eks_of(call).clusters.get(name)
    if cluster is None:
        raise not_found(f"No cluster found for name: {name}.", clusterName=name)
    return cluster


def require_active(cluster: Cluster) -> None:
    """Raise InvalidRequestException unless the cluster is active."""
    if cluster.document["status"] not in ("ACTIVE", "UPDATING"):
        name = cluster.document["name"]
        raise invalid_request(f"Cluster '{name}' is not in ACTIVE status", clusterName=name)


class Where(NamedTuple):
    """The cluster that a timed step is for."""

    region: str
    name: str
    uid: str


def where(call: Call, cluster: Cluster) -> Where:
    """Return how a timed step finds the cluster again."""
    return Where(call.region, cluster.document["name"], cluster.uid)


def find(world: World, place: Where) -> Cluster | None:
    """Return the cluster of a timed step; None if it is gone."""
    cluster = world.state(Eks, place.region).clusters.get(place.name)
    return cluster if cluster and cluster.uid == place.uid else None


def new_uid() -> str:
    """Return a new id."""
    return str(uuid4())


def now(world: World) -> Any:  # noqa: ANN401 - a timestamp as the reply has it
    """Return the virtual time as a reply carries it."""
    return as_datetime(world.now())


def arn(call: Call, rest: str) -> str:
    """Return an ARN of EKS."""
    return f"arn:aws:eks:{call.region}:{call.account}:{rest}"


def short_id(prefix: str) -> str:
    """Return an id such as a-0123456789abcdefg."""
    return prefix + secrets.token_hex(9)[:17]


def page(call: Call, key: str, items: list[Any], default: int = 100) -> dict[str, Any]:
    """Return one page of a list, as the call requests it."""
    start = int(call.params.get("nextToken") or 0)
    end = start + int(call.params.get("maxResults") or default)
    output: dict[str, Any] = {key: items[start:end]}
    if end < len(items):
        output["nextToken"] = str(end)
    return output


def invalid_parameter(message: str, **fields: str) -> AwsError:
    """Return the error for a parameter that does not fit."""
    return AwsError("InvalidParameterException", message, fields=fields)


def invalid_request(message: str, **fields: str) -> AwsError:
    """Return the error for a call that does not fit the resource's state."""
    return AwsError("InvalidRequestException", message, fields=fields)


def in_use(message: str, **fields: str) -> AwsError:
    """Return the error for a name that is taken, or a resource that others need."""
    return AwsError("ResourceInUseException", message, status=HTTPStatus.CONFLICT, fields=fields)


def not_found(message: str, **fields: str) -> AwsError:
    """Return the error for an unknown name."""
    return AwsError("ResourceNotFoundException", message, status=HTTPStatus.NOT_FOUND, fields=fields)


def same_request(call: Call, before: dict[str, Any]) -> bool:
    """Return whether the call repeats an earlier one; InvalidRequestException if only its token does."""
    token = call.params.get("clientRequestToken")
    if not token or token != before.get("clientRequestToken"):
        return False
    if call.params != before:
        raise invalid_request("The client request token was used before with different parameters")
    return True


def _set_blocked(world: World, value: object) -> None:
    world.state(Wishes).eviction_blocked = bool(value)


setting("eviction_blocked", read=lambda world: world.state(Wishes).eviction_blocked, write=_set_blocked)
