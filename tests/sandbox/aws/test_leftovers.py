"""Resources of a cluster's controllers: they are found by tags and block the VPC."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.support import Aws
from tests.sandbox.aws.support_eks import active_cluster, ground

KINDS = ["load-balancer", "target-group", "network-interface", "volume", "log-group", "security-group"]


def test_orphaned_resources_survive_their_cluster_and_have_its_name(aws: Aws) -> None:
    base = ground(aws)
    before = aws.state()
    active_cluster(aws, base)
    aws.control(leave={"cluster": "one", "kinds": KINDS})
    aws.client("eks").delete_cluster(name="one")
    aws.advance(300)
    left = sorted(set(aws.state()) - set(before))
    assert [entry.rpartition(":")[0] for entry in left] == [
        "ec2:network-interface",
        "ec2:network-interface",
        "ec2:network-interface",
        "ec2:security-group",
        "ec2:security-group",
        "ec2:security-group",
        "ec2:volume",
        "elbv2:load-balancer",
        "elbv2:target-group",
        "logs:log-group",
    ]
    ec2, elb = aws.client("ec2"), aws.client("elbv2")
    owned = [{"Name": "tag:kubernetes.io/cluster/one", "Values": ["owned"]}]
    assert len(ec2.describe_volumes(Filters=owned)["Volumes"]) == 1
    balancer = elb.describe_load_balancers()["LoadBalancers"][0]["LoadBalancerArn"]
    tags = elb.describe_tags(ResourceArns=[balancer])["TagDescriptions"][0]["Tags"]
    assert {"Key": "elbv2.k8s.aws/cluster", "Value": "one"} in tags


def test_the_interfaces_of_a_load_balancer_are_deleted_some_time_after_it(aws: Aws) -> None:
    active_cluster(aws, ground(aws))
    before = aws.state()
    aws.control(leave={"cluster": "one", "kinds": ["load-balancer"]})
    ec2, elb = aws.client("ec2"), aws.client("elbv2")
    elb.delete_load_balancer(
        LoadBalancerArn=elb.describe_load_balancers()["LoadBalancers"][0]["LoadBalancerArn"]
    )
    mine = [{"Name": "description", "Values": ["ELB net/*"]}]
    assert len(ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]) == 2
    aws.advance(60)
    assert ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"] == []
    assert [entry.rpartition(":")[0] for entry in set(aws.state()) - set(before)] == ["ec2:security-group"]


def test_the_endpoint_of_guardduty_survives_its_cluster_and_holds_its_group(aws: Aws) -> None:
    base = ground(aws)
    before = aws.state()
    active_cluster(aws, base)
    aws.control(leave={"cluster": "one", "kinds": ["guardduty-endpoint"]})
    aws.client("eks").delete_cluster(name="one")
    aws.advance(300)
    left = sorted(set(aws.state()) - set(before))
    assert {entry.rpartition(":")[0] for entry in left} == {
        "ec2:network-interface",
        "ec2:security-group",
        "ec2:vpc-endpoint",
    }
    ec2, tagged = aws.client("ec2"), [{"Name": "tag:GuardDutyManaged", "Values": ["true"]}]
    (endpoint,) = ec2.describe_vpc_endpoints(Filters=tagged)["VpcEndpoints"]
    (group,) = ec2.describe_security_groups(Filters=tagged)["SecurityGroups"]
    assert endpoint["ServiceName"] == "com.amazonaws.us-east-1.guardduty-data"
    assert endpoint["VpcEndpointType"] == "Interface"
    assert group["GroupName"] == f"GuardDutyManagedSecurityGroup-{endpoint['VpcId']}"
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=group["GroupId"])
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpointId"]])
    aws.advance(60)
    ec2.delete_security_group(GroupId=group["GroupId"])
    assert aws.state() == before


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"cluster": "none", "kinds": []}, "no cluster 'none'"),
        ({"cluster": "none", "kinds": ["cat"]}, "nothing leaves a cat"),
    ],
)
def test_only_resources_of_controllers_can_be_created_as_orphaned(
    aws: Aws, wish: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        aws.control(leave=wish)
