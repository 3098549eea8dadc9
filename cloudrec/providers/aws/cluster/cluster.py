"""The EKS cluster: a control plane whose endpoint is private unless addresses are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import ClientError

from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_EXPIRES,
    Condition,
    Difference,
    ErrorVerdict,
    Observed,
    Properties,
)
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import AwsDriver
from cloudrec.providers.aws.cleanup import leftovers
from cloudrec.providers.aws.cluster import logs
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.aws.network import network
from cloudrec.providers.base.driver import all_needed, is_ours, name_of, needed
from cloudrec.providers.base.leftovers import LEFTOVERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_eks import EKSClient
    from types_boto3_eks.literals import LogTypeType
    from types_boto3_eks.type_defs import (
        ClusterTypeDef,
        LoggingTypeDef,
        LogSetupTypeDef,
        VpcConfigRequestTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

CLUSTER = "cluster"
KINDS: Mapping[str, AbstractSet[str]] = {
    # Orphaned resources are deleted after the cluster: its controllers would create them again.
    CLUSTER: frozenset(
        {"role", network.SUBNET, "security-group", encryption.KEY, logs.GROUP, *leftovers.KINDS}
    )
}
_LOG_TYPES: frozenset[LogTypeType] = frozenset(
    {"api", "audit", "authenticator", "controllerManager", "scheduler"}
)


@dataclass(frozen=True, kw_only=True)
class AwsClusterProperties(Properties):
    """The requested properties of an EKS cluster.

    Attributes:
        expires: the value of the tag `cloudrec-expires` (ISO 8601, UTC); empty if the cluster has no end.
        public_access: the blocks of addresses that reach its API from the internet, sorted; empty for none.
        log_types: the logs of the control plane that are kept, sorted.
        version: the version of Kubernetes; None to create the newest one and to keep the one that exists.
        own_key: the ARN of the user's KMS key; None if the cluster's own key encrypts its secrets.
    """

    expires: str
    public_access: list[str]
    log_types: list[LogTypeType]
    version: str | None = None
    own_key: str | None = None


class _ObservedCluster(TypedDict):
    """The observed properties of an EKS cluster, by the names of its requested ones."""

    expires: str
    public_access: list[str]
    log_types: list[LogTypeType]
    version: str


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the cluster."""
    settings = layout.settings
    return [
        layout.resource(
            CLUSTER,
            needs=(
                layout.key("role", "cluster"),
                *network.private(layout),
                layout.key(LEFTOVERS),
                *encryption.needs(layout),
                *(each.key for each in logs.resources(layout)),
            ),
            properties=AwsClusterProperties(
                public_access=sorted(layout.cluster.access_blocks),
                log_types=sorted(kind for kind in _LOG_TYPES if kind in settings.log_types),
                expires=layout.cluster.expires or "",
                version=layout.cluster.kubernetes_version,
                own_key=settings.kms_key or None,
            ),
            hourly_usd=layout.prices.service("eks-cluster"),
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver."""
    return {CLUSTER: AwsClusterDriver(aws)}


class BusyClusterError(Exception):
    """An update of the cluster is in progress; the next one can start after it."""


class AwsClusterDriver(AwsDriver[AwsClusterProperties]):
    """Handles EKS clusters. The identity is the name in EKS."""

    kind = CLUSTER
    changeable = frozenset({"public_access", "log_types", "version", "expires"})
    deadline_s = 3600.0  # an upgrade takes longer than a creation
    poll_s = 3.0

    @property
    def eks(self) -> EKSClient:
        """EKS's client."""
        return self.aws.eks

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Describe the cluster of this name; every cluster of cloudrec if None."""
        names = [f"{eks.PREFIX}{cluster}"] if cluster is not None else eks.names(self.aws)
        found = [seen for name in names if (seen := self._seen(name)) is not None]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def find(self, resource: Resource[AwsClusterProperties]) -> Observed | None:
        """Find the cluster by its name; the cluster found may not be cloudrec's, which its tags show."""
        return self._seen(_name(resource))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the cluster's condition, and its health issues."""
        row = eks.described(self.aws, identity)
        return eks.STATES.get(row["status"], Condition.PENDING), _issues(row)

    def make(
        self, resource: Resource[AwsClusterProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the cluster. The caller becomes its administrator."""
        name, asked = _name(resource), resource.properties
        try:
            self.eks.create_cluster(
                name=name,
                version=asked.version or self.newest_version(),
                roleArn=needed(resource, identities, "role"),
                resourcesVpcConfig={
                    "subnetIds": all_needed(resource, identities, network.SUBNET),
                    **_endpoint(asked),
                },
                accessConfig={
                    "authenticationMode": "API",
                    "bootstrapClusterCreatorAdminPermissions": True,
                },
                encryptionConfig=[
                    {
                        "resources": ["secrets"],
                        "provider": {"keyArn": asked.own_key or needed(resource, identities, encryption.KEY)},
                    }
                ],
                logging=_logging(asked.log_types),
                # With the default, EXTENDED, a cluster of an old version costs six times as much.
                upgradePolicy={"supportType": "STANDARD"},
                bootstrapSelfManagedAddons=False,  # the part `addons` creates them, as managed add-ons
                clientRequestToken=token,
                tags=dict(resource.tags),
            )
        except ClientError as error:
            if not eks.is_taken(error) or not self._is_ours_already(resource):
                raise
        return name

    def newest_version(self) -> str:
        """Return the newest version of Kubernetes in standard support ("1.34")."""
        return max(supported_versions(self.aws), key=_minor)

    def difference(self, resource: Resource[AwsClusterProperties], observed: Observed) -> Difference | None:
        """Compare the properties; a lower version is no change in place, since EKS cannot downgrade."""
        found = super().difference(resource, observed)
        wanted, there = resource.properties.version, str(observed.properties["version"])
        if found is not None and wanted and _minor(wanted) < _minor(there):
            return Difference(reason=found.reason, in_place=False)
        return found

    def change(
        self, resource: Resource[AwsClusterProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Start one update after the other.

        EKS runs one update at a time, and refuses the next one until it has ended. The engine then repeats
        this call, which compares again and starts what is left.
        """
        del identities
        name, asked = observed.identity, resource.properties
        row = eks.described(self.aws, name)
        # During an update EKS may report the state before or after it, so that a comparison is of no use.
        if row["status"] == "UPDATING":
            raise BusyClusterError(name)
        there = _properties(row)
        if asked.expires != there["expires"]:
            self.eks.tag_resource(resourceArn=row["arn"], tags={TAG_EXPIRES: asked.expires})
        if asked.log_types != there["log_types"]:
            self.eks.update_cluster_config(name=name, logging=_logging(asked.log_types))
        if asked.public_access != there["public_access"]:
            self.eks.update_cluster_config(name=name, resourcesVpcConfig=_endpoint(asked))
        if asked.version is not None:
            # EKS upgrades by one minor version at a time.
            for minor in range(_minor(there["version"]) + 1, _minor(asked.version) + 1):
                self._upgrade(name, f"1.{minor}")

    def _upgrade(self, name: str, version: str) -> None:
        """Update to this version, unless an earlier update, which EKS reports late, has done so already."""
        try:
            self.eks.update_cluster_version(name=name, version=version)
        except ClientError:
            if eks.described(self.aws, name)["version"] != version:
                raise

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return RETRY while an update is in progress."""
        return ErrorVerdict.RETRY if isinstance(error, BusyClusterError) else super().verdict(error)

    def remove(self, observed: Observed) -> None:
        """Delete the cluster; EKS refuses while it has node groups or an update is in progress."""
        self.eks.delete_cluster(name=observed.identity)

    def _seen(self, name: str) -> Observed | None:
        try:
            row = eks.described(self.aws, name)
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        tags = row.get("tags") or {}
        return Observed(
            kind=CLUSTER,
            name=name_of(tags, name),
            identity=name,
            condition=eks.STATES.get(row["status"], Condition.PENDING),
            properties=_properties(row),
            tags=tags,
            hourly_usd=self.aws.prices.service("eks-cluster"),
            reason=_issues(row),
            location=self.aws.region,
            created=row["createdAt"].timestamp() if "createdAt" in row else None,
        )

    def _is_ours_already(self, resource: Resource[AwsClusterProperties]) -> bool:
        seen = self.find(resource)
        return (
            seen is not None
            and seen.cluster == resource.tags[TAG_CLUSTER]
            and seen.condition in {Condition.PENDING, Condition.READY}
        )


def _name(resource: Resource) -> str:
    return f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}"


def supported_versions(aws: Aws) -> list[str]:
    """Return the versions of Kubernetes in standard support."""
    pages = aws.eks.get_paginator("describe_cluster_versions").paginate
    rows = aws.rows(pages, lambda page: page.get("clusterVersions"))
    return [row["clusterVersion"] for row in rows if row["versionStatus"] == "STANDARD_SUPPORT"]


def _issues(row: ClusterTypeDef) -> str:
    return eks.issues(row.get("health", {}).get("issues"))


def _properties(row: ClusterTypeDef) -> _ObservedCluster:
    network_config = row["resourcesVpcConfig"]
    public = network_config.get("endpointPublicAccess")
    setups = row.get("logging", {}).get("clusterLogging") or ()
    return {
        "expires": row.get("tags", {}).get(TAG_EXPIRES, ""),
        "version": row["version"],
        "public_access": sorted(network_config.get("publicAccessCidrs") or ()) if public else [],
        "log_types": sorted(kind for setup in setups if setup["enabled"] for kind in setup["types"]),
    }


def _endpoint(asked: AwsClusterProperties) -> VpcConfigRequestTypeDef:
    blocks = asked.public_access
    config: VpcConfigRequestTypeDef = {"endpointPrivateAccess": True, "endpointPublicAccess": bool(blocks)}
    if blocks:
        config["publicAccessCidrs"] = blocks
    return config


def _logging(wanted: Sequence[LogTypeType]) -> LoggingTypeDef:
    setups: list[LogSetupTypeDef] = [
        {"types": list(wanted), "enabled": True},
        {"types": sorted(_LOG_TYPES - set(wanted)), "enabled": False},
    ]
    return {"clusterLogging": [setup for setup in setups if setup["types"]]}


def _minor(version: str) -> int:
    return int(version.partition(".")[2])
