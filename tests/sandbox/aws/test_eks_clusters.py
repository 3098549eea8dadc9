"""Clusters: what CreateCluster, UpdateClusterConfig and DeleteCluster refuse, and how long they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_eks import (
    Ground,
    active_cluster,
    create_cluster,
    create_nodegroup,
    ground,
    role,
)


@pytest.fixture
def base(aws: Aws) -> Ground:
    return ground(aws)


def status(aws: Aws) -> str:
    return str(aws.client("eks").describe_cluster(name="one")["cluster"]["status"])


def test_a_cluster_takes_ten_minutes_until_it_has_an_endpoint(aws: Aws, base: Ground) -> None:
    made = create_cluster(aws, base)
    assert (made["status"], "endpoint" in made, "certificateAuthority" in made) == ("CREATING", False, False)
    aws.advance(590)
    assert status(aws) == "CREATING"
    aws.advance(10)
    cluster = aws.client("eks").describe_cluster(name="one")["cluster"]
    assert cluster["status"] == "ACTIVE"
    assert cluster["endpoint"].startswith("https://")
    aws.client("eks").get_waiter("cluster_active").wait(name="one")


def test_a_cluster_returns_its_requested_settings(aws: Aws, base: Ground) -> None:
    made = create_cluster(
        aws,
        base,
        upgradePolicy={"supportType": "STANDARD"},
        deletionProtection=True,
        tags={"run": "1"},
        version="1.35",
    )
    assert made["accessConfig"]["authenticationMode"] == "API"
    assert made["upgradePolicy"] == {"supportType": "STANDARD"}
    assert (made["deletionProtection"], made["tags"], made["version"]) == (True, {"run": "1"}, "1.35")
    assert made["resourcesVpcConfig"]["vpcId"] == base.vpc


def test_a_cluster_without_duration_is_active_at_the_next_call(aws: Aws, base: Ground) -> None:
    aws.control(durations={"*": 0})
    assert create_cluster(aws, base)["status"] == "CREATING"
    assert status(aws) == "ACTIVE"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"version": "1.19"}, "unsupported Kubernetes version 1.19"),
        ({"version": "1.33", "upgradePolicy": {"supportType": "STANDARD"}}, "is in extended support"),
        ({"roleArn": "arn:aws:iam::123456789012:role/nobody"}, "does not exist"),
        ({"roleArn": "arn:aws:iam::123456789012:role/node"}, "trusted entity is not correct"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-1", "subnet-2"]}}, "does not exist"),
        ({"resourcesVpcConfig": {"securityGroupIds": ["sg-1"]}}, "'sg-1' does not exist"),
        ({"resourcesVpcConfig": {"endpointPublicAccess": False}}, "cannot be false"),
        ({"resourcesVpcConfig": {"publicAccessCidrs": ["home"]}}, "CIDRs are invalid"),
        ({"name": "-dash"}, "does not match"),
        ({"name": "n" * 101}, "at most 100"),
        ({"accessConfig": {"authenticationMode": "NONE"}}, "'NONE' is none of"),
        (
            {
                "encryptionConfig": [
                    {"resources": ["secrets"], "provider": {"keyArn": "arn:aws:kms:us-east-1:1:key/x"}}
                ]
            },
            "keyArn",
        ),
    ],
)
def test_invalid_parameters_are_refused_at_once(
    aws: Aws, base: Ground, wish: dict[str, Any], message: str
) -> None:
    config = {"subnetIds": base.subnets} | wish.pop("resourcesVpcConfig", {})
    params = {"name": "one", "roleArn": base.cluster_role, "resourcesVpcConfig": config} | wish
    before = aws.state()
    with refused("InvalidParameterException", message):
        aws.client("eks").create_cluster(**params)
    assert aws.state() == before


def test_subnets_must_be_in_two_supported_zones(aws: Aws, base: Ground) -> None:
    with refused("InvalidParameterException", "at least two different AZs"):
        create_cluster(aws, base, resourcesVpcConfig={"subnetIds": base.subnets[:1]})
    bad = aws.client("ec2").create_subnet(
        VpcId=base.vpc, CidrBlock="10.0.9.0/24", AvailabilityZone="us-east-1e"
    )
    with refused("UnsupportedAvailabilityZoneException", "us-east-1a, us-east-1b"):
        create_cluster(
            aws, base, resourcesVpcConfig={"subnetIds": [*base.subnets, bad["Subnet"]["SubnetId"]]}
        )


def test_a_new_role_can_be_read_and_used_after_some_seconds(aws: Aws, base: Ground) -> None:
    fresh = role(aws, "fresh", "eks", "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    with refused("NoSuchEntity"):
        aws.client("iam").get_role(RoleName="fresh")
    aws.advance(3)
    aws.client("iam").get_role(RoleName="fresh")
    with refused("InvalidParameterException", "does not exist"):
        create_cluster(aws, replace(base, cluster_role=fresh))
    aws.advance(5)
    create_cluster(aws, replace(base, cluster_role=fresh))


def test_the_first_cluster_of_an_account_waits_for_the_service_linked_role(aws: Aws, base: Ground) -> None:
    aws.control(durations={"eks-service-role": 5})
    with refused("InvalidParameterException", "AWSServiceRoleForAmazonEKS"):
        create_cluster(aws, base)
    aws.advance(5)
    create_cluster(aws, base)


def test_a_name_is_in_use_from_the_request_until_some_time_after_deletion(aws: Aws, base: Ground) -> None:
    active_cluster(aws, base)
    with refused("ResourceInUseException", "already exists"):
        create_cluster(aws, base)
    aws.client("eks").delete_cluster(name="one")
    aws.advance(300)
    with refused("ResourceNotFoundException", "No cluster found for name: one"):
        status(aws)
    with refused("ResourceInUseException", "already exists"):
        create_cluster(aws, base)
    aws.advance(20)
    create_cluster(aws, base)


def test_a_client_token_returns_the_same_cluster_only_for_the_same_request(aws: Aws, base: Ground) -> None:
    first = create_cluster(aws, base, clientRequestToken="t")
    assert create_cluster(aws, base, clientRequestToken="t")["arn"] == first["arn"]
    with refused("InvalidRequestException", "different parameters"):
        create_cluster(aws, base, clientRequestToken="t", tags={"a": "b"})


def test_an_inactive_cluster_accepts_no_node_group_or_addon(aws: Aws, base: Ground) -> None:
    create_cluster(aws, base)
    with refused("InvalidRequestException", "not in ACTIVE status"):
        create_nodegroup(aws, base)


def test_a_cluster_creates_and_deletes_its_security_group_and_interfaces(aws: Aws, base: Ground) -> None:
    before = aws.state()
    active_cluster(aws, base, logging={"clusterLogging": [{"types": ["api"], "enabled": True}]})
    ec2 = aws.client("ec2")
    filters = [{"Name": "tag:kubernetes.io/cluster/one", "Values": ["owned"]}]
    group = ec2.describe_security_groups(Filters=filters)["SecurityGroups"][0]
    interfaces = ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    assert group["GroupName"].startswith("eks-cluster-sg-one-")
    assert {interface["Description"] for interface in interfaces} == {"Amazon EKS one"}
    aws.client("eks").delete_cluster(name="one")
    aws.advance(300)
    assert sorted(set(aws.state()) - set(before)) == ["logs:log-group:/aws/eks/one/cluster"]


def test_a_cluster_with_node_groups_updates_or_protection_is_not_deleted(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    active_cluster(aws, base, deletionProtection=True)
    with refused("InvalidRequestException", "deletion protection"):
        eks.delete_cluster(name="one")
    eks.update_cluster_config(name="one", deletionProtection=False)
    with refused("ResourceInUseException", "in progress"):
        eks.delete_cluster(name="one")
    aws.advance(60)
    create_nodegroup(aws, base)
    aws.advance(180)
    eks.delete_nodegroup(clusterName="one", nodegroupName="cpu")
    with refused("ResourceInUseException", "nodegroups attached"):
        eks.delete_cluster(name="one")
    aws.advance(240)
    assert eks.delete_cluster(name="one")["cluster"]["status"] == "DELETING"


def test_an_update_has_one_kind_and_runs_alone(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    active_cluster(aws, base)
    with refused("InvalidParameterException", "Only one type of update"):
        eks.update_cluster_config(
            name="one", deletionProtection=True, upgradePolicy={"supportType": "STANDARD"}
        )
    update = eks.update_cluster_config(
        name="one", resourcesVpcConfig={"publicAccessCidrs": ["203.0.113.0/24"]}
    )
    assert (update["update"]["status"], update["update"]["type"]) == ("InProgress", "EndpointAccessUpdate")
    assert status(aws) == "ACTIVE"
    aws.advance(2)
    assert status(aws) == "UPDATING"
    with refused("ResourceInUseException", "update in progress"):
        eks.update_cluster_config(name="one", deletionProtection=True)
    aws.advance(58)
    assert eks.list_updates(name="one")["updateIds"] == [update["update"]["id"]]
    done = eks.describe_update(name="one", updateId=update["update"]["id"])["update"]
    cluster = eks.describe_cluster(name="one")["cluster"]
    assert (done["status"], cluster["status"]) == ("Successful", "ACTIVE")
    assert cluster["resourcesVpcConfig"]["publicAccessCidrs"] == ["203.0.113.0/24"]
    with refused("InvalidParameterException", "No changes needed"):
        eks.update_cluster_config(name="one", resourcesVpcConfig={"publicAccessCidrs": ["203.0.113.0/24"]})


def test_secrets_can_be_encrypted_later_and_once(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    active_cluster(aws, base)
    key = aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    config = [{"resources": ["secrets"], "provider": {"keyArn": key}}]
    eks.associate_encryption_config(clusterName="one", encryptionConfig=config)
    aws.advance(60)
    assert eks.describe_cluster(name="one")["cluster"]["encryptionConfig"] == config
    with refused("ResourceInUseException"):
        eks.associate_encryption_config(clusterName="one", encryptionConfig=config)


def test_versions_are_upgraded_one_minor_version_at_a_time(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    offered = {row["clusterVersion"]: row for row in eks.describe_cluster_versions()["clusterVersions"]}
    assert [name for name, row in offered.items() if row["defaultVersion"]] == ["1.35"]
    assert offered["1.33"]["versionStatus"] == "EXTENDED_SUPPORT"
    active_cluster(aws, base, version="1.34")
    with refused("InvalidParameterException", "from 1.34 to 1.36"):
        eks.update_cluster_version(name="one", version="1.36")
    eks.update_cluster_version(name="one", version="1.35")
    aws.advance(60)
    assert eks.describe_cluster(name="one")["cluster"]["version"] == "1.35"


def test_tags_can_be_read_and_changed_by_arn(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    arn = create_cluster(aws, base, tags={"a": "1"})["arn"]
    eks.tag_resource(resourceArn=arn, tags={"b": "2"})
    eks.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert eks.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}


def test_the_api_server_can_be_another_stand_in(aws: Aws, base: Ground) -> None:
    aws.control(kubernetes={"endpoint": "http://127.0.0.1:1", "certificate_authority": "Q0E="})
    active_cluster(aws, base)
    cluster = aws.client("eks").describe_cluster(name="one")["cluster"]
    assert (cluster["endpoint"], cluster["certificateAuthority"]["data"]) == ("http://127.0.0.1:1", "Q0E=")
