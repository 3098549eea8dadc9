"""The EKS cluster: a control plane whose endpoint is private unless addresses are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import all_needed, is_ours, name_of, needed
from cloudrec.cloud.leftovers import LEFTOVERS
from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, Condition, Difference, Observed, Verdict
from cloudrec.providers.aws import eks, encryption, errors, leftovers, network
from cloudrec.providers.aws.driver import AwsDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.eks import Row
    from cloudrec.providers.aws.layout import Layout

CLUSTER = "cluster"
KINDS: Mapping[str, AbstractSet[str]] = {
    # What its controllers left is swept once it is gone.
    CLUSTER: frozenset({"role", network.SUBNET, "security-group", encryption.KEY, *leftovers.KINDS})
}
_LOG_TYPES = frozenset({"api", "audit", "authenticator", "controllerManager", "scheduler"})


def resources(layout: Layout) -> list[Resource]:
    """Describe the cluster."""
    settings = layout.settings
    version = layout.cluster.kubernetes_version
    return [
        layout.resource(
            CLUSTER,
            needs=(
                layout.key("role", "cluster"),
                *network.private(layout),
                layout.key(LEFTOVERS),
                *encryption.needs(layout),
            ),
            properties={
                "public_access": sorted(settings.public_access_cidrs),
                "log_types": sorted(settings.log_types),
                "expires": layout.cluster.expires or "",
                **({"version": version} if version else {}),  # else whatever it was made with
                **({"own_key": settings.kms_key} if settings.kms_key else {}),
            },
            hourly_usd=layout.prices.service("eks-cluster"),
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver."""
    return {CLUSTER: ClusterDriver(aws)}


class BusyClusterError(Exception):
    """An update of the cluster is under way."""


class ClusterDriver(AwsDriver):
    """Handles EKS clusters. The identity is EKS's name."""

    kind = CLUSTER
    changeable = frozenset({"public_access", "log_types", "version", "expires"})
    deadline_s = 3600.0  # an upgrade takes longer than a creation
    poll_s = 3.0

    @property
    def eks(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """EKS's client."""
        return self.aws.client("eks")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Look the name up, or all names of ours."""
        names = [f"{eks.PREFIX}{cluster}"] if cluster is not None else self._names()
        found = [seen for name in names if (seen := self._seen(name)) is not None]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up; what bears it may be another's."""
        return self._seen(_name(resource))

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        row = self.described(identity)
        return eks.STATES.get(row["status"], Condition.PENDING), eks.issues(row)

    def described(self, name: str) -> Row:
        """Describe a cluster by its name; EKS's own error where it is not there."""
        row: Row = self.aws.read("eks", "describe_cluster", name=name)["cluster"]
        return row

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the cluster; who creates it is its administrator."""
        name, properties = _name(resource), resource.properties
        version = properties.get("version") or self.newest_version()
        try:
            self.eks.create_cluster(
                name=name,
                version=version,
                roleArn=needed(resource, identities, "role"),
                resourcesVpcConfig={
                    "subnetIds": all_needed(resource, identities, network.SUBNET),
                    **_endpoint(properties),
                },
                accessConfig={
                    "authenticationMode": "API",
                    "bootstrapClusterCreatorAdminPermissions": True,
                },
                encryptionConfig=[
                    {
                        "resources": ["secrets"],
                        "provider": {
                            "keyArn": properties.get("own_key")
                            or needed(resource, identities, encryption.KEY)
                        },
                    }
                ],
                logging=_logging(properties["log_types"]),
                upgradePolicy={"supportType": "STANDARD"},  # the default costs six times as much in the end
                bootstrapSelfManagedAddons=False,  # they are add-ons of their own here
                clientRequestToken=token,
                tags=dict(resource.tags),
            )
        except ClientError as error:
            if not eks.is_taken(error) or not self._is_ours_already(resource):
                raise
        return name

    def newest_version(self) -> str:
        """Return the newest version of Kubernetes that is in standard support."""
        rows = self.aws.read("eks", "describe_cluster_versions", "clusterVersions")
        supported: list[str] = [
            row["clusterVersion"] for row in rows if row["versionStatus"] == "STANDARD_SUPPORT"
        ]
        return max(supported, key=_minor)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare; versions go only upwards."""
        found = super().difference(resource, observed)
        wanted, there = resource.properties.get("version"), observed.properties["version"]
        if found is not None and wanted and _minor(wanted) < _minor(there):
            return Difference(reason=found.reason, in_place=False)
        return found

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Make one kind of update after the other.

        EKS makes one at a time, and refuses the next as long as it does: what is left to do is then worked
        out anew at the next attempt.
        """
        del identities
        name, asked = observed.identity, resource.properties
        row = self.described(name)
        if row["status"] == "UPDATING":  # what it shows may be past by the next call
            raise BusyClusterError(name)
        there = _properties(row)
        if asked["expires"] != there["expires"]:
            self.eks.tag_resource(resourceArn=row["arn"], tags={TAG_EXPIRES: asked["expires"]})
        if asked["log_types"] != there["log_types"]:
            self.eks.update_cluster_config(name=name, logging=_logging(asked["log_types"]))
        if asked["public_access"] != there["public_access"]:
            self.eks.update_cluster_config(name=name, resourcesVpcConfig=_endpoint(asked))
        if "version" in asked:
            for minor in range(_minor(there["version"]) + 1, _minor(asked["version"]) + 1):
                self._upgrade(name, f"1.{minor}")

    def _upgrade(self, name: str, version: str) -> None:
        """Update to the next version, unless the update before, which shows late, has led there."""
        try:
            self.eks.update_cluster_version(name=name, version=version)
        except ClientError:
            if self.described(name)["version"] != version:
                raise

    def verdict(self, error: Exception) -> Verdict:
        """An update under way ends."""
        return Verdict.RETRY if isinstance(error, BusyClusterError) else super().verdict(error)

    def remove(self, observed: Observed) -> None:
        """Delete the cluster; refused while it has node groups or is being updated."""
        self.eks.delete_cluster(name=observed.identity)

    def _names(self) -> list[str]:
        listed = self.aws.read("eks", "list_clusters", "clusters")
        return [name for name in listed if name.startswith(eks.PREFIX)]

    def _seen(self, name: str) -> Observed | None:
        try:
            row = self.described(name)
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
            reason=eks.issues(row),
            location=self.aws.region,
            created=row["createdAt"].timestamp() if "createdAt" in row else None,
        )

    def _is_ours_already(self, resource: Resource) -> bool:
        seen = self.find(resource)
        return (
            seen is not None
            and seen.cluster == resource.tags[TAG_CLUSTER]
            and seen.condition in {Condition.PENDING, Condition.READY}
        )


def _name(resource: Resource) -> str:
    return f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}"


def _properties(row: Row) -> dict[str, Any]:
    network_config = row["resourcesVpcConfig"]
    public = network_config.get("endpointPublicAccess")
    logs = row.get("logging", {}).get("clusterLogging") or ()
    return {
        "expires": row.get("tags", {}).get(TAG_EXPIRES, ""),
        "version": row["version"],
        "public_access": sorted(network_config.get("publicAccessCidrs") or ()) if public else [],
        "log_types": sorted(kind for setup in logs if setup["enabled"] for kind in setup["types"]),
    }


def _endpoint(properties: Mapping[str, Any]) -> dict[str, Any]:
    blocks = list(properties["public_access"])
    return {
        "endpointPrivateAccess": True,
        "endpointPublicAccess": bool(blocks),
        **({"publicAccessCidrs": blocks} if blocks else {}),
    }


def _logging(wanted: Sequence[str]) -> dict[str, Any]:
    unwanted = sorted(_LOG_TYPES - set(wanted))
    setups = [(list(wanted), True), (unwanted, False)]
    return {"clusterLogging": [{"types": types, "enabled": enabled} for types, enabled in setups if types]}


def _minor(version: str) -> int:
    return int(version.partition(".")[2])
