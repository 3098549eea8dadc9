"""The settings that only this provider understands: where the cluster is, and what of it may be used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from cloudrec.errors import SpecError
from cloudrec.spec.load import validated
from cloudrec.spec.models import Model

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec

_SCHEMES = {"s3", "abfs", "abfss", "gs"}
_LABEL_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _storage(value: str) -> str:
    scheme, found, rest = value.partition("://")
    if not found or scheme not in _SCHEMES or not rest.strip("/"):
        raise ValueError(
            "is no storage: give s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or abfs://CONTAINER@HOST"
        )
    return value.rstrip("/")


def _selector(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"has {name}={value}, which no label of a node can be")
    return values


class KubernetesSettings(Model):
    """`cluster.settings` for a cluster that others made."""

    context: str | None = Field(
        None, description="the kubeconfig's context; its only one, or the one adopted before, when absent"
    )
    kubeconfig: str | None = Field(
        None, description="path of the kubeconfig; KUBECONFIG or ~/.kube/config when absent. It is only read"
    )
    identity: str | None = Field(
        None, description="uid of the namespace kube-system, to say that a cluster made anew is meant"
    )
    storage: Annotated[str, AfterValidator(_storage)] | None = Field(
        None, description="URI for data and checkpoints: s3://, abfs:// or gs://; pods must be allowed there"
    )
    namespace: str | None = Field(
        None, pattern=_DNS_LABEL, description="where runs live; cloudrec-NAME, made for it, when absent"
    )
    service_account: str = Field(
        "cloudrec", pattern=_DNS_LABEL, description="what pods run as; made where it is missing"
    )
    service_account_annotations: dict[str, str] = Field(
        default_factory=dict, description="what makes that account an identity of a cloud"
    )
    pod_labels: dict[str, str] = Field(
        default_factory=dict, description="labels with which pods use that identity"
    )
    image_repository: str | None = Field(
        None, description="where `cloudrec image push` puts the image: registry.example/team/trainer"
    )
    node_selector: Annotated[dict[str, str], AfterValidator(_selector)] = Field(
        default_factory=dict, description="labels of the nodes that may train; every node that can when empty"
    )
    fabric: Literal["efa", "infiniband", "tcpx", "tcpxo", "tcp", "none"] | None = Field(
        None, description="how GPUs of different nodes talk; told by what the nodes have when absent"
    )
    instance_type: str | None = Field(
        None, description="the cloud's name of the nodes' machine; told by their labels when absent"
    )
    node_hourly_usd: Annotated[float, Field(ge=0)] = Field(
        0.0, description="what one node costs an hour, for --budget and what runs are said to cost"
    )

    def namespace_of(self, title: str) -> str:
        """Return the namespace of a cluster of this name."""
        return self.namespace or f"cloudrec-{title}"


def settings_of(cluster: ClusterSpec) -> KubernetesSettings:
    """Validate and return the cluster's settings; SpecError when they do not fit."""
    return validated(KubernetesSettings, cluster.settings, {})


def check(cluster: ClusterSpec) -> None:
    """Refuse what an adopted cluster cannot do, and what is missing; SpecError with the remedy."""
    settings = settings_of(cluster)
    for key in ("zones", "instance_types", "kubernetes_version"):
        if value := getattr(cluster, key):
            raise SpecError(
                f"cluster.{key} is {value!r}: provider 'kubernetes' makes no nodes, it takes those there are",
                remedy=f"leave cluster.{key} out; cluster.settings.node_selector chooses among the nodes",
            )
    if settings.storage is None:
        raise SpecError(
            "cluster.settings.storage is missing: runs need a place for checkpoints that outlives pods",
            remedy="--set cluster.settings.storage=s3://BUCKET/PREFIX (or gs://, abfs://)",
        )
    if cluster.budget_usd is not None and not settings.node_hourly_usd:
        raise SpecError(
            f"cluster.budget_usd is {cluster.budget_usd:g}, and nobody knows what the nodes cost",
            remedy="--set cluster.settings.node_hourly_usd=PRICE, or take --ttl",
        )
