"""FSx for Lustre: a fast file system in front of the bucket, in the GPUs' zone, and the link of the two.

What is written to it goes to the bucket by itself; so it is a cache, and `down --keep-data` does not keep it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.driver import all_needed, is_ours, name_of, needed
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.aws import charges, encryption, firewall, network, storage
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

FILE_SYSTEM, LINK = "lustre", "data-link"
GPU_NODES = "gpu-nodes"  # nodes.GPU, which knows nothing of this file
KINDS: Mapping[str, AbstractSet[str]] = {
    FILE_SYSTEM: frozenset({network.SUBNET, firewall.GROUP, encryption.KEY, GPU_NODES}),
    LINK: frozenset({FILE_SYSTEM, storage.BUCKET}),
}

_VERSION = "2.15"  # the default cannot be linked to a bucket as we do
_EVENTS = ["NEW", "CHANGED", "DELETED"]
_STATES: Mapping[str, Condition] = {
    "AVAILABLE": Condition.READY,
    "UPDATING": Condition.READY,
    "CREATING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "FAILED": Condition.FAILED,
    "MISCONFIGURED": Condition.FAILED,
    "MISCONFIGURED_UNAVAILABLE": Condition.FAILED,
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the file system and its link, if the settings ask for them."""
    settings = layout.settings
    if not settings.lustre_gib:
        return []
    # It lives in one zone. Which one is known from the start, or once GPUs were had in one of several.
    after = [layout.key(GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    files = layout.resource(
        FILE_SYSTEM,
        needs=(
            *network.private(layout, layout.gpu_zones),
            layout.key(firewall.GROUP, "lustre"),
            *encryption.needs(layout),
            *after,
        ),
        properties={
            "capacity_gib": settings.lustre_gib,
            "throughput": settings.lustre_throughput,
            "kms_key": settings.kms_key,
            "cluster": layout.name,
        },
        hourly_usd=charges.lustre(settings.lustre_gib, settings.lustre_throughput),
    )
    link = layout.resource(
        LINK,
        needs=(files.key, layout.key(storage.BUCKET)),
        properties={"source": layout.storage},
    )
    return [files, link]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {FILE_SYSTEM: LustreDriver(aws), LINK: LinkDriver(aws)}


class _FsxDriver(AwsDriver):
    """What both share: FSx describes them alike, and filters by no tag."""

    operation: ClassVar[str]
    rows: ClassVar[str]
    id_field: ClassVar[str]
    ids: ClassVar[str]
    deadline_s = 3600.0
    poll_s = 10.0

    @property
    def fsx(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """FSx's client."""
        return self.aws.client("fsx")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List all of the region, and keep those with the cluster's tag."""
        found = []
        for row in self.aws.read("fsx", self.operation, self.rows):
            tags = as_map(row.get("Tags"))
            if is_ours(tags, cluster):
                found.append(self._observe(row, tags))
        return found

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it by its identity."""
        for row in self.aws.read("fsx", self.operation, self.rows, **{self.ids: [identity]}):
            return _STATES.get(row["Lifecycle"], Condition.PENDING), _reason(row)
        return Condition.GONE, ""

    @abstractmethod
    def properties(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell what drift is told from."""

    def hourly_usd(self, row: Mapping[str, Any]) -> float:
        """Tell what it costs an hour."""
        del row
        return 0.0

    def _observe(self, row: Mapping[str, Any], tags: Mapping[str, str]) -> Observed:
        return Observed(
            kind=self.kind,
            name=name_of(tags, row[self.id_field]),
            identity=row[self.id_field],
            condition=_STATES.get(row["Lifecycle"], Condition.PENDING),
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            reason=_reason(row),
            location=self.aws.region,
            created=row["CreationTime"].timestamp(),
        )


class LustreDriver(_FsxDriver):
    """Handles file systems."""

    kind = FILE_SYSTEM
    operation, rows = "describe_file_systems", "FileSystems"
    id_field, ids = "FileSystemId", "FileSystemIds"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the file system where the GPUs are."""
        wanted = resource.properties
        answer = self.fsx.create_file_system(
            ClientRequestToken=token,
            FileSystemType="LUSTRE",
            FileSystemTypeVersion=_VERSION,
            StorageCapacity=wanted["capacity_gib"],
            StorageType="SSD",
            SubnetIds=[self._subnet(resource, identities)],
            SecurityGroupIds=all_needed(resource, identities, firewall.GROUP),
            KmsKeyId=encryption.key_of(resource, identities),
            LustreConfiguration={
                "DeploymentType": "PERSISTENT_2",
                "PerUnitStorageThroughput": wanted["throughput"],
                "DataCompressionType": "LZ4",
                "AutomaticBackupRetentionDays": 0,
            },
            Tags=as_list(resource.tags),
        )
        return str(answer["FileSystem"]["FileSystemId"])

    def properties(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell its size and speed."""
        throughput = row.get("LustreConfiguration", {}).get("PerUnitStorageThroughput")
        return {"capacity_gib": row["StorageCapacity"], "throughput": throughput}

    def hourly_usd(self, row: Mapping[str, Any]) -> float:
        """Tell what it costs."""
        there = self.properties(row)
        return charges.lustre(there["capacity_gib"], there["throughput"])

    def remove(self, observed: Observed) -> None:
        """Delete the file system, with what the bucket does not have."""
        self.fsx.delete_file_system(
            FileSystemId=observed.identity, LustreConfiguration={"SkipFinalBackup": True}
        )

    def _subnet(self, resource: Resource, identities: Mapping[str, str]) -> str:
        """Return the subnet of the GPU nodes, or the only one."""
        subnets = all_needed(resource, identities, network.SUBNET)
        for group in all_needed(resource, identities, GPU_NODES):
            answer = self.aws.read(
                "eks",
                "describe_nodegroup",
                clusterName=resource.properties["cluster"],
                nodegroupName=group.rpartition("/")[2],
            )
            subnets = [one for one in answer["nodegroup"]["subnets"] if one in subnets] or subnets
        return subnets[0]


class LinkDriver(_FsxDriver):
    """Handles data repository associations: what is in the bucket is in the file system, and the reverse."""

    kind = LINK
    operation, rows = "describe_data_repository_associations", "Associations"
    id_field, ids = "AssociationId", "AssociationIds"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Link the bucket's part to the file system's root."""
        answer = self.fsx.create_data_repository_association(
            ClientRequestToken=token,
            FileSystemId=needed(resource, identities, FILE_SYSTEM),
            FileSystemPath="/",
            DataRepositoryPath=resource.properties["source"],
            BatchImportMetaDataOnCreate=True,
            S3={"AutoImportPolicy": {"Events": _EVENTS}, "AutoExportPolicy": {"Events": _EVENTS}},
            Tags=as_list(resource.tags),
        )
        return str(answer["Association"]["AssociationId"])

    def properties(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell which part of which bucket it links."""
        return {"source": str(row["DataRepositoryPath"]).rstrip("/")}

    def remove(self, observed: Observed) -> None:
        """End the link; the bucket keeps what is in it."""
        self.fsx.delete_data_repository_association(
            AssociationId=observed.identity, DeleteDataInFileSystem=False
        )


def _reason(row: Mapping[str, Any]) -> str:
    return str((row.get("FailureDetails") or {}).get("Message", ""))
