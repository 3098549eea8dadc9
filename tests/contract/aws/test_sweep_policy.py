"""The policy for what EKS's built-in controller leaves: each of its actions is needed, and they suffice.

That controller gives its load balancers, groups and volumes the tag kubernetes.io/cluster/NAME alone
(cloud-provider-aws, pkg/providers/v1/tags.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloudrec.errors import CloudrecError
from tests.contract.aws.support import fresh
from tests.contract.aws.support_policies import POLICIES, Deployer, allowed
from tests.contract.support_least import Found, Grant, differences, unneeded
from tests.sandbox.aws.support import Aws
from tests.tallies import Tally

NAME, POLICY = "cloudrec-t", "sweep-policy"
HELD = sorted(Grant(action=each) for each in allowed(POLICY))
SOME = ("elasticloadbalancing:DeleteTargetGroup",)


@pytest.fixture(scope="module")
def left(process: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """A deployer's cluster with what the controller made."""
    fresh(process)
    deployer = Deployer(process, tmp_path_factory.mktemp("left"))
    deployer.act("up")
    process.control(enforce_iam=False)
    plant(deployer)
    process.ask("POST", "/save", {"name": "left"})
    yield deployer
    process.control(enforce_iam=False)


def plant(deployer: Deployer) -> None:
    found = {key: seen.identity for key, seen in deployer.site.found().items()}
    network = found["vpc/t"]
    own = [{"Key": f"kubernetes.io/cluster/{NAME}", "Value": "owned"}]
    ec2, balancers = deployer.aws.client("ec2"), deployer.aws.client("elbv2")
    within = [{"Name": "vpc-id", "Values": [network]}]
    subnets = [each["SubnetId"] for each in ec2.describe_subnets(Filters=within)["Subnets"]]
    zone = ec2.describe_subnets(Filters=within)["Subnets"][0]["AvailabilityZone"]

    def specified(kind: str) -> dict[str, Any]:
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": own}]}

    group = ec2.create_security_group(
        GroupName="k8s-elb-a", Description="x", VpcId=network, **specified("security-group")
    )["GroupId"]
    web: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    other = ec2.create_security_group(
        GroupName="k8s-elb-b", Description="x", VpcId=network, **specified("security-group")
    )["GroupId"]
    pair = {**web, "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[pair])
    ec2.authorize_security_group_egress(GroupId=other, IpPermissions=[pair])
    ec2.create_volume(AvailabilityZone=zone, Size=8, **specified("volume"))
    balancers.create_load_balancer(Name="k8s-a", Type="network", Subnets=subnets[:1], Tags=own)
    balancers.create_target_group(Name="k8s-a", Protocol="TCP", Port=80, VpcId=network, Tags=own)


def down(deployer: Deployer, actions: set[str]) -> Found:
    """`down` by a deployer who has these actions of the policy, too."""
    aws = deployer.aws
    aws.ask("POST", "/restore", {"name": "left"})
    document = json.loads(json.dumps(POLICIES[POLICY]).replace("cloudrec-NAME", NAME))
    document["Statement"][0]["Action"] = sorted(actions) or ["ec2:DescribeVpcs"]
    deployer.iam.put_user_policy(UserName="deployer", PolicyName=POLICY, PolicyDocument=json.dumps(document))
    who = deployer.iam.get_user(UserName="deployer")["User"]["Arn"]
    aws.control(enforce_iam=True, decisions={})
    try:
        deployer.act("down")
        said = "; ".join(deployer.site.unsearched)
    except CloudrecError as error:
        said = error.message
    finally:
        aws.control(enforce_iam=False)
    noted = aws.ask("GET", "")["decisions"][who]
    return Found(used=frozenset(noted["used"]), refused=frozenset(noted["refused"]), said=said)


def test_the_policy_suffices_and_is_used(left: Deployer) -> None:
    held = allowed(POLICY)
    found = down(left, held)
    assert found.said == ""
    assert left.aws.state() == left.before
    assert differences(held, found.used & held, {}) == []


def test_a_missing_action_is_named(left: Deployer) -> None:
    for action in SOME:
        assert action in down(left, allowed(POLICY) - {action}).said


@pytest.mark.soak
def test_each_action_is_needed(left: Deployer, tally: Tally) -> None:
    held = allowed(POLICY)
    assert unneeded(HELD, lambda grant: down(left, held - {grant.action})) == []
    tally(f"each of {len(held)} actions of AWS's {POLICY} is needed")
