"""FSx for Lustre refuses, delays and forgets as the cloud does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_ec2 import Net, make_net

CREATE_S, DELETE_S = 480, 300


@pytest.fixture
def net(aws: Aws) -> Net:
    return make_net(aws)


@pytest.fixture
def group(net: Net) -> str:
    group = net.group("lustre")
    net.let_in(group, protocol="tcp", port=988)
    net.aws.advance(2)
    return group


def wanted(net: Net, group: str, **more: Any) -> dict[str, Any]:
    return {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "StorageCapacity": 1200,
        "SubnetIds": [net.subnets[0]],
        "SecurityGroupIds": [group],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        **more,
    }


def make(net: Net, group: str, **more: Any) -> str:
    made = net.aws.client("fsx").create_file_system(**wanted(net, group, **more))
    name: str = made["FileSystem"]["FileSystemId"]
    return name


def row(net: Net, name: str) -> dict[str, Any]:
    found: dict[str, Any] = net.aws.client("fsx").describe_file_systems(FileSystemIds=[name])["FileSystems"][
        0
    ]
    return found


def test_fsx_lustre_lifecycle_a_file_system_is_available_only_after_its_time(net: Net, group: str) -> None:
    name = make(net, group, Tags=[{"Key": "run", "Value": "a"}])
    assert row(net, name)["Lifecycle"] == "CREATING"
    assert row(net, name)["LustreConfiguration"]["MountName"]
    net.aws.advance(CREATE_S)
    assert row(net, name)["Lifecycle"] == "AVAILABLE"
    assert f"fsx:file-system:{name}" in net.aws.state()


@pytest.mark.parametrize("outcome", ["FAILED", "MISCONFIGURED"])
def test_fsx_lustre_lifecycle_a_file_system_can_fail(net: Net, group: str, outcome: str) -> None:
    net.aws.control(fsx_outcome=outcome)
    name = make(net, group)
    net.aws.advance(CREATE_S)
    assert row(net, name)["Lifecycle"] == outcome
    assert row(net, name)["FailureDetails"]["Message"]


def test_fsx_lustre_delete_blocks_subnet_and_group_until_it_is_done(net: Net, group: str) -> None:
    fsx = net.aws.client("fsx")
    name = make(net, group)
    fsx.delete_file_system(FileSystemId=name)
    assert row(net, name)["Lifecycle"] == "DELETING"
    with refused("DependencyViolation"):
        net.ec2.delete_security_group(GroupId=group)
    with refused("DependencyViolation"):
        net.ec2.delete_subnet(SubnetId=net.subnets[0])
    net.aws.advance(DELETE_S)
    with refused("FileSystemNotFound"):
        fsx.describe_file_systems(FileSystemIds=[name])
    net.ec2.delete_security_group(GroupId=group)
    net.ec2.delete_subnet(SubnetId=net.subnets[0])


def test_fsx_lustre_group_without_port_988_is_refused(net: Net) -> None:
    with refused("InvalidNetworkSettings", "port 988"):
        make(net, net.group())


def test_fsx_lustre_group_with_new_rules_is_refused(net: Net) -> None:
    group = net.group()
    net.let_in(group, protocol="tcp", port=988)
    with refused("InvalidNetworkSettings", "port 988"):
        make(net, group)
    net.aws.advance(1)
    make(net, group)


def test_fsx_lustre_client_token_creates_one_file_system_with_fixed_parameters(net: Net, group: str) -> None:
    name = make(net, group, ClientRequestToken="once")
    assert make(net, group, ClientRequestToken="once") == name
    with refused("IncompatibleParameterError"):
        make(net, group, ClientRequestToken="once", StorageCapacity=2400)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        pytest.param("BadRequest", {"StorageCapacity": 1300}, id="capacity"),
        pytest.param("BadRequest", {"FileSystemTypeVersion": "2.11"}, id="version"),
        pytest.param(
            "InvalidPerUnitStorageThroughput",
            {"LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 200}},
            id="throughput",
        ),
        pytest.param(
            "InvalidPerUnitStorageThroughput",
            {"LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}},
            id="no throughput",
        ),
    ],
)
def test_fsx_lustre_validation(net: Net, group: str, code: str, change: dict[str, Any]) -> None:
    with refused(code):
        make(net, group, **change)


def test_fsx_lustre_two_subnets_are_refused(net: Net, group: str) -> None:
    with refused("BadRequest", "Exactly 1"):
        make(net, group, SubnetIds=net.subnets)


def test_fsx_lustre_efa_needs_a_group_that_allows_all_traffic(net: Net, group: str) -> None:
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125, "EfaEnabled": True}
    with refused("InvalidNetworkSettings", "EFA"):
        make(net, group, LustreConfiguration=lustre)


def test_fsx_lustre_quota_is_enforced(net: Net, group: str) -> None:
    net.aws.control(quotas={"fsx/L-EE52B0AE": 1})
    make(net, group)
    with refused("ServiceLimitExceeded"):
        make(net, group)


def test_fsx_lustre_tags_can_be_changed(net: Net, group: str) -> None:
    fsx = net.aws.client("fsx")
    arn = row(net, make(net, group, Tags=[{"Key": "a", "Value": "1"}]))["ResourceARN"]
    fsx.tag_resource(ResourceARN=arn, Tags=[{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}])
    fsx.untag_resource(ResourceARN=arn, TagKeys=["b"])
    assert fsx.list_tags_for_resource(ResourceARN=arn)["Tags"] == [{"Key": "a", "Value": "2"}]
    tagged = net.aws.client("resourcegroupstaggingapi").get_resources(
        TagFilters=[{"Key": "a", "Values": ["2"]}]
    )
    assert [thing["ResourceARN"] for thing in tagged["ResourceTagMappingList"]] == [arn]


class Link:
    """A file system ready for associations, and a bucket."""

    def __init__(self, net: Net, group: str, **more: Any) -> None:
        self.aws, self.net = net.aws, net
        self.fsx = net.aws.client("fsx")
        self.fs = make(net, group, **more)
        net.aws.advance(CREATE_S)
        net.aws.client("s3").create_bucket(Bucket="training-data")

    def make(self, folder: str = "/data", address: str = "s3://training-data/", **more: Any) -> str:
        made = self.fsx.create_data_repository_association(
            FileSystemId=self.fs, FileSystemPath=folder, DataRepositoryPath=address, **more
        )
        name: str = made["Association"]["AssociationId"]
        return name

    def row(self, name: str) -> dict[str, Any]:
        rows = self.fsx.describe_data_repository_associations(AssociationIds=[name])["Associations"]
        found: dict[str, Any] = rows[0]
        return found


def test_fsx_dra_lifecycle(net: Net, group: str) -> None:
    link = Link(net, group)
    name = link.make()
    assert link.row(name)["Lifecycle"] == "CREATING"
    net.aws.advance(120)
    assert link.row(name)["Lifecycle"] == "AVAILABLE"
    assert link.fsx.delete_data_repository_association(AssociationId=name)["Lifecycle"] == "DELETING"
    assert link.row(name)["Lifecycle"] == "DELETING"
    net.aws.advance(60)
    with refused("DataRepositoryAssociationNotFound"):
        link.row(name)


def test_fsx_dra_to_a_bucket_of_another_account_is_misconfigured_later(net: Net, group: str) -> None:
    link = Link(net, group)
    net.aws.control(foreign_buckets=["theirs"])
    name = link.make(address="s3://theirs/")
    net.aws.advance(120)
    assert link.row(name)["Lifecycle"] == "MISCONFIGURED"
    assert "theirs" in link.row(name)["FailureDetails"]["Message"]


def test_fsx_dra_overlaps_are_refused(net: Net, group: str) -> None:
    link = Link(net, group)
    link.make("/data", "s3://training-data/one/")
    with refused("BadRequest", "FileSystemPath"):
        link.make("/data/deep", "s3://training-data/two/")
    with refused("BadRequest", "DataRepositoryPath"):
        link.make("/other", "s3://training-data/one/deep/")


def test_a_ninth_fsx_dra_is_refused(net: Net, group: str) -> None:
    link = Link(net, group)
    for number in range(8):
        link.make(f"/data{number}", f"s3://training-data/{number}/")
    with refused("ServiceLimitExceeded"):
        link.make("/data8", "s3://training-data/8/")


def test_fsx_dra_of_scratch_1_is_refused(net: Net, group: str) -> None:
    link = Link(net, group, LustreConfiguration={"DeploymentType": "SCRATCH_1"})
    with refused("UnsupportedOperation"):
        link.make()


def test_fsx_dra_client_token_creates_one_association(net: Net, group: str) -> None:
    link = Link(net, group)
    name = link.make(ClientRequestToken="once")
    assert link.make(ClientRequestToken="once") == name
    with refused("IncompatibleParameterError"):
        link.make("/else", ClientRequestToken="once")


def test_fsx_dra_needs_an_available_file_system(net: Net, group: str) -> None:
    link = Link(net, group)
    link.fs = make(net, group)
    with refused("BadRequest", "CREATING"):
        link.make()
