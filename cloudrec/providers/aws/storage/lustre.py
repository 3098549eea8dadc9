"""FSx for Lustre: a file system in the zone of the GPU nodes, and its link to the bucket.

FSx copies what is written to the file system into the bucket. So the file system is a cache, and
`down --keep-data` deletes it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Observed, P_contra, Properties
from cloudrec.providers.aws import charges
from cloudrec.providers.aws.api.driver import AwsDriver, as_list, as_map
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.aws.network import firewall, network
from cloudrec.providers.aws.storage import storage
from cloudrec.providers.base.driver import all_needed, is_ours, name_of, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from types_boto3_fsx import FSxClient
    from types_boto3_fsx.literals import EventTypeType
    from types_boto3_fsx.type_defs import (
        DataRepositoryAssociationTypeDef,
        DescribeDataRepositoryAssociationsRequestTypeDef,
        DescribeFileSystemsRequestPaginateTypeDef,
        FileSystemTypeDef,
        TagTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

FILE_SYSTEM, LINK = "lustre", "data-link"
GPU_NODES = "gpu-nodes"  # nodes.GPU; storage does not import nodes
KINDS: Mapping[str, AbstractSet[str]] = {
    FILE_SYSTEM: frozenset({network.SUBNET, firewall.GROUP, encryption.KEY, GPU_NODES}),
    LINK: frozenset({FILE_SYSTEM, storage.BUCKET}),
}

Row = TypeVar("Row")  # a file system or link in FSx's response
_VERSION = "2.15"  # of Lustre; FSx's default version cannot be linked to a bucket
_EVENTS: list[EventTypeType] = ["NEW", "CHANGED", "DELETED"]
_STATES: Mapping[str, Condition] = {
    "AVAILABLE": Condition.READY,
    "UPDATING": Condition.READY,
    "CREATING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "FAILED": Condition.FAILED,
    "MISCONFIGURED": Condition.FAILED,
    "MISCONFIGURED_UNAVAILABLE": Condition.FAILED,
}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the file system and its link; nothing if the setting lustre_gib is 0."""
    settings = layout.settings
    if not settings.lustre_gib:
        return []
    # The file system is in one zone, that of the GPU nodes. With several zones to try, the zone is not known
    # before the GPU nodes exist.
    after = [layout.key(GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    files = layout.resource(
        FILE_SYSTEM,
        needs=(
            *network.private(layout, layout.gpu_zones),
            layout.key(firewall.GROUP, "lustre"),
            *encryption.needs(layout),
            *after,
        ),
        properties=AwsLustreProperties(
            capacity_gib=settings.lustre_gib,
            throughput=settings.lustre_throughput,
            kms_key=settings.kms_key,
            cluster=layout.name,
        ),
        hourly_usd=charges.lustre(layout.prices, settings.lustre_gib, settings.lustre_throughput),
    )
    link = layout.resource(
        LINK,
        needs=(files.key, layout.key(storage.BUCKET)),
        properties=LinkProperties(source=layout.storage),
        hourly_usd=FREE,
    )
    return [files, link]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {FILE_SYSTEM: AwsLustreDriver(aws), LINK: LinkDriver(aws)}


@dataclass(frozen=True, kw_only=True)
class FsxFacts:
    """What FSx reports about file systems and links.

    Attributes:
        identity: FSx's ID.
        tags: the tags, as FSx lists them.
        lifecycle: the state.
        created: when it was created.
        reason: FSx's message if it failed.
    """

    identity: str
    tags: Sequence[TagTypeDef] | None
    lifecycle: str
    created: datetime
    reason: str


class _FsxDriver(AwsDriver[P_contra], Generic[Row, P_contra]):
    """Base class of both drivers. FSx cannot filter by tag, so that `search` lists everything."""

    charge: ClassVar[float | None] = None  # USD an hour of each; None if `hourly_usd` computes it
    deadline_s = 3600.0
    poll_s = 10.0

    @property
    def fsx(self) -> FSxClient:
        """FSx's client."""
        return self.aws.fsx

    @abstractmethod
    def rows(self, ids: Sequence[str] = ()) -> list[Row]:
        """Return the rows with these IDs; without IDs, all of the region."""

    @abstractmethod
    def facts(self, row: Row) -> FsxFacts:
        """Return the fields that both kinds have."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List all of the region, and keep those with the cluster's tag."""
        found = []
        for row in self.rows():
            tags = as_map(self.facts(row).tags)
            if is_ours(tags, cluster):
                found.append(self._observe(row, tags))
        return found

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition of the resource with this ID; GONE if FSx does not list it."""
        for row in self.rows([identity]):
            facts = self.facts(row)
            return _STATES.get(facts.lifecycle, Condition.PENDING), facts.reason
        return Condition.GONE, ""

    @abstractmethod
    def properties(self, row: Row) -> Mapping[str, object]:
        """Return the observed properties, by the names of the kind's requested ones."""

    def hourly_usd(self, row: Row) -> float | None:
        """Return the USD an hour; None if the price is not known."""
        del row
        return self.charge

    def _observe(self, row: Row, tags: Mapping[str, str]) -> Observed:
        facts = self.facts(row)
        return Observed(
            kind=self.kind,
            name=name_of(tags, facts.identity),
            identity=facts.identity,
            condition=_STATES.get(facts.lifecycle, Condition.PENDING),
            properties=self.properties(row),
            tags=tags,
            hourly_usd=self.hourly_usd(row),
            reason=facts.reason,
            location=self.aws.region,
            created=facts.created.timestamp(),
        )


@dataclass(frozen=True, kw_only=True)
class AwsLustreProperties(encryption.EncryptedProperties):
    """The requested properties of a file system.

    Attributes:
        capacity_gib: its size.
        throughput: MB/s for each TiB of its size.
        cluster: the cluster's name in EKS, by which the zone of the GPU nodes is read.
    """

    capacity_gib: int
    throughput: int
    cluster: str


class AwsLustreDriver(_FsxDriver["FileSystemTypeDef", AwsLustreProperties]):
    """Handles file systems. The identity is FSx's ID."""

    kind = FILE_SYSTEM

    def rows(self, ids: Sequence[str] = ()) -> list[FileSystemTypeDef]:
        """Return file systems by ID, or all of the region."""
        asked: DescribeFileSystemsRequestPaginateTypeDef = {"FileSystemIds": ids} if ids else {}
        pages = self.fsx.get_paginator("describe_file_systems").paginate
        return self.aws.rows(pages, lambda page: page.get("FileSystems"), **asked)

    def facts(self, row: FileSystemTypeDef) -> FsxFacts:
        """Return ID, tags, state, creation time and failure."""
        return FsxFacts(
            identity=row["FileSystemId"],
            tags=row.get("Tags"),
            lifecycle=row["Lifecycle"],
            created=row["CreationTime"],
            reason=row.get("FailureDetails", {}).get("Message", ""),
        )

    def make(
        self, resource: Resource[AwsLustreProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the file system in the zone of the GPU nodes."""
        wanted = resource.properties
        answer = self.fsx.create_file_system(
            ClientRequestToken=token,
            FileSystemType="LUSTRE",
            FileSystemTypeVersion=_VERSION,
            StorageCapacity=wanted.capacity_gib,
            StorageType="SSD",
            SubnetIds=[self._subnet(resource, identities)],
            SecurityGroupIds=all_needed(resource, identities, firewall.GROUP),
            KmsKeyId=encryption.key_of(resource, identities),
            LustreConfiguration={
                "DeploymentType": "PERSISTENT_2",
                "PerUnitStorageThroughput": wanted.throughput,
                "DataCompressionType": "LZ4",
                "AutomaticBackupRetentionDays": 0,  # the bucket has the data
            },
            Tags=as_list(resource.tags),
        )
        return str(answer["FileSystem"]["FileSystemId"])

    def properties(self, row: FileSystemTypeDef) -> Mapping[str, object]:
        """Return size and throughput."""
        return {"capacity_gib": row["StorageCapacity"], "throughput": _throughput(row)}

    def hourly_usd(self, row: FileSystemTypeDef) -> float | None:
        """Return the USD an hour; None if the price is not known."""
        return charges.lustre(self.aws.prices, row["StorageCapacity"], _throughput(row))

    def remove(self, observed: Observed) -> None:
        """Delete the file system, with changes that are not in the bucket yet."""
        self.fsx.delete_file_system(
            FileSystemId=observed.identity, LustreConfiguration={"SkipFinalBackup": True}
        )

    def _subnet(self, resource: Resource[AwsLustreProperties], identities: Mapping[str, str]) -> str:
        """Return the ID of the GPU nodes' subnet, or of the only subnet."""
        subnets = all_needed(resource, identities, network.SUBNET)
        for group in all_needed(resource, identities, GPU_NODES):
            # The candidate that was created decides the zone; EKS reports its subnets.
            answer = self.aws.read(
                self.aws.eks.describe_nodegroup,
                clusterName=resource.properties.cluster,
                nodegroupName=group.rpartition("/")[2],
            )
            subnets = [one for one in answer["nodegroup"]["subnets"] if one in subnets] or subnets
        return subnets[0]


@dataclass(frozen=True, kw_only=True)
class LinkProperties(Properties):
    """The requested properties of a data repository association.

    Attributes:
        source: URI of the bucket's part that it links.
    """

    source: str


class LinkDriver(_FsxDriver["DataRepositoryAssociationTypeDef", LinkProperties]):
    """Handles data repository associations, by which FSx copies files from and to the bucket."""

    kind = LINK
    charge = FREE

    def rows(self, ids: Sequence[str] = ()) -> list[DataRepositoryAssociationTypeDef]:
        """Return associations by ID, or all of the region."""
        asked: DescribeDataRepositoryAssociationsRequestTypeDef = {"AssociationIds": ids} if ids else {}
        answer = self.aws.read(self.fsx.describe_data_repository_associations, **asked)
        return list(answer.get("Associations") or ())

    def facts(self, row: DataRepositoryAssociationTypeDef) -> FsxFacts:
        """Return ID, tags, state, creation time and failure."""
        return FsxFacts(
            identity=row["AssociationId"],
            tags=row.get("Tags"),
            lifecycle=row["Lifecycle"],
            created=row["CreationTime"],
            reason=row.get("FailureDetails", {}).get("Message", ""),
        )

    def make(self, resource: Resource[LinkProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Link the bucket's prefix to the root of the file system."""
        answer = self.fsx.create_data_repository_association(
            ClientRequestToken=token,
            FileSystemId=needed(resource, identities, FILE_SYSTEM),
            FileSystemPath="/",
            DataRepositoryPath=resource.properties.source,
            BatchImportMetaDataOnCreate=True,
            S3={"AutoImportPolicy": {"Events": _EVENTS}, "AutoExportPolicy": {"Events": _EVENTS}},
            Tags=as_list(resource.tags),
        )
        return str(answer["Association"]["AssociationId"])

    def properties(self, row: DataRepositoryAssociationTypeDef) -> Mapping[str, object]:
        """Return the URI of the linked bucket and prefix."""
        return {"source": row["DataRepositoryPath"].rstrip("/")}

    def remove(self, observed: Observed) -> None:
        """Delete the association; the bucket keeps its objects."""
        self.fsx.delete_data_repository_association(
            AssociationId=observed.identity, DeleteDataInFileSystem=False
        )


def _throughput(row: FileSystemTypeDef) -> int | None:
    return row.get("LustreConfiguration", {}).get("PerUnitStorageThroughput")
