"""The settings of the Kubernetes provider: which cluster, and which of its nodes and namespaces to use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from cloudrec.errors import SpecError
from cloudrec.providers.base.offers import check_capacity
from cloudrec.spec.load import validated
from cloudrec.spec.models import Model
from cloudrec.transport import fabrics
from cloudrec_contract.objectstore.schemes import shared_kinds

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec

_LABEL_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _storage(value: str) -> str:
    scheme, found, rest = value.partition("://")
    known = {each for kind in shared_kinds() for each in kind.schemes}
    if not found or scheme not in known or not rest.strip("/"):
        raise ValueError(f"is not a storage URI: give {_storage_examples()}")
    return value.rstrip("/")


def _storage_examples() -> str:
    *first, last = [kind.example for kind in shared_kinds()]
    return f"{', '.join(first)} or {last}"


def _fabric(value: str) -> str:
    if value not in fabrics():
        raise ValueError(f"is not a known fabric: give one of {', '.join(fabrics())}")
    return value


def _selector(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"has {name}={value}, which no label of a node can be")
    return values


class KubernetesSettings(Model):
    """`cluster.settings` for an existing cluster."""

    context: str | None = Field(
        None, description="the kubeconfig's context; its only one, or the one adopted before, when absent"
    )
    kubeconfig: str | None = Field(
        None, description="path of the kubeconfig; KUBECONFIG or ~/.kube/config when absent. It is only read"
    )
    identity: str | None = Field(
        None, description="uid of the namespace kube-system, to say that a cluster created again is meant"
    )
    storage: Annotated[str, AfterValidator(_storage)] | None = Field(
        None, description="URI in an object store for data and checkpoints; pods must be allowed there"
    )
    probe_storage: bool = Field(
        default=True,
        description="whether `up` checks the storage from this machine; false where only pods reach it",
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
    fabric: Annotated[str, AfterValidator(_fabric)] | None = Field(
        None, description="fabric between GPUs of different nodes; detected from the nodes when absent"
    )
    instance_type: str | None = Field(
        None, description="the nodes' instance type; read from their labels when absent"
    )
    node_hourly_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None,
        description="what one node costs an hour, for --budget and the cost of runs; unknown when absent",
    )

    def namespace_of(self, title: str) -> str:
        """Return the namespace of a cluster of this name."""
        return self.namespace or f"cloudrec-{title}"


def settings_of(cluster: ClusterSpec) -> KubernetesSettings:
    """Return the cluster's validated settings; SpecError if they are invalid."""
    return validated(KubernetesSettings, cluster.settings, {})


def check(cluster: ClusterSpec) -> None:
    """Validate a spec for an adopted cluster.

    Raises:
        SpecError: a setting needs a provider that creates nodes, or a required setting is missing.
    """
    settings = settings_of(cluster)
    check_capacity(cluster)
    for key in ("zones", "instance_types", "kubernetes_version"):
        if value := getattr(cluster, key):
            raise SpecError(
                f"cluster.{key} is {value!r}: provider 'kubernetes' makes no nodes, it takes those there are",
                remedy=f"leave cluster.{key} out; cluster.settings.node_selector chooses among the nodes",
            )
    if settings.storage is None:
        raise SpecError(
            "cluster.settings.storage is missing: runs need a place for checkpoints that outlives pods",
            remedy=f"--set cluster.settings.storage=URI, as {_storage_examples()}",
        )
    if cluster.budget_usd is not None and not settings.node_hourly_usd:
        raise SpecError(
            f"cluster.budget_usd is {cluster.budget_usd:g}, and the price of the nodes is not known",
            remedy="--set cluster.settings.node_hourly_usd=PRICE, or use --ttl instead of --budget",
        )
