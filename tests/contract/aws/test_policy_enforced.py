"""The deployer's policies are sufficient, and each of their actions is necessary."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import CloudrecError
from cloudrec.providers.aws.settings import ENDPOINTS
from tests.contract.aws.support import Site
from tests.contract.aws.support_policies import (
    ACCOUNT_ONLY,
    BOUNDARY,
    DEPLOYER,
    POLICIES,
    Deployer,
    allowed,
)
from tests.contract.aws.test_cluster_side import ADMIN, ZONES, admin
from tests.sandbox.aws.support import Aws, trust
from tests.tallies import Tally

# Without these, commands succeed, and report what is unknown: whether a quota is large enough.
ACCOUNT = "123456789012"
TOLERATED = {"servicequotas:GetServiceQuota": "quota"}
# Called once in an account, and once a day. `up` without the second one reports it; see test_ways_to_pay.py.
ONCE, DAILY = "iam:CreateServiceLinkedRole", "pricing:GetProducts"
SUFFIXES = ("cluster", "cni", "guard", "node", "pod")
# A sample of each service's create and delete calls; `make soak` covers every call of a cluster lifecycle.
SOME = (
    "ec2:CreateVpc",
    "iam:GetPolicy",
    "iam:PutRolePermissionsBoundary",
    "eks:CreateNodegroup",
    "s3:PutEncryptionConfiguration",
    "eks:DeleteCluster",
)


@pytest.fixture
def deployer(aws: Aws, tmp_path: Path) -> Deployer:
    return Deployer(aws, tmp_path, ttl="8h")


def boundaries(aws: Aws, cluster: str) -> dict[str, str]:
    """The permissions boundary of each of a cluster's roles, by name."""
    iam = aws.client("iam")
    names = [row["RoleName"] for row in iam.list_roles(PathPrefix=f"/cloudrec/{cluster}/")["Roles"]]
    rows = [iam.get_role(RoleName=name)["Role"] for name in names]
    return {
        row["RoleName"]: row.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", "") for row in rows
    }


def without(action: str) -> dict[str, dict[str, Any]]:
    policies = deepcopy(POLICIES)
    for name in DEPLOYER:
        for statement in policies[name]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            if statement["Effect"] == "Allow":
                statement["Action"] = [other for other in actions if other != action]
        kept = [each for each in policies[name]["Statement"] if each["Action"]]
        policies[name]["Statement"] = kept
    assert policies != POLICIES, f"the policies do not name {action}"
    return policies


def lacks(deployer: Deployer, action: str) -> str:
    """Return what is wrong if `up` and `down` without the action neither fail nor report it; else empty."""
    deployer.permit(without(action))
    try:
        deployer.come_and_go()
        told = "; ".join(deployer.site.unsearched)
    except CloudrecError as error:
        told = error.message
    deployer.permit(POLICIES)
    deployer.act("down")
    assert deployer.aws.state() == deployer.before
    return "" if action in told else f"{action}: {told or 'no command fails'}"


def drift(deployer: Deployer) -> None:
    """Change by hand what `up` can repair."""
    aws, found = deployer.aws, {key: seen.identity for key, seen in deployer.site.found().items()}
    role = found["role/t-pod"].rpartition("/")[2]
    deployer.iam.delete_role_permissions_boundary(RoleName=role)
    deployer.iam.put_role_policy(
        RoleName=role, PolicyName="other", PolicyDocument=json.dumps(POLICIES["pusher-policy"])
    )
    deployer.iam.update_assume_role_policy(RoleName=role, PolicyDocument=trust("ec2"))
    kms = aws.client("kms")
    kms.delete_alias(AliasName="alias/cloudrec-t")
    kms.put_key_policy(KeyId=found["key/t"], PolicyName="default", Policy=ACCOUNT_ONLY)
    aws.client("ecr").put_image_tag_mutability(repositoryName="cloudrec/t", imageTagMutability="MUTABLE")
    public = found["route-table/t-public"]
    aws.client("ec2").delete_route(RouteTableId=public, DestinationCidrBlock="0.0.0.0/0")
    aws.client("s3").delete_bucket_policy(Bucket=found["bucket/t"])


def test_the_policies_suffice_to_create_change_and_delete_a_cluster(aws: Aws, tmp_path: Path) -> None:
    deployer = Deployer(aws, tmp_path, settings={"lustre_gib": 1200}, ttl="8h")
    deployer.act("up")
    assert len(aws.state()) > len(deployer.before) + 40
    since = len(aws.calls())
    deployer.act("up")
    assert deployer.site.changes(since) == []
    changes = {"lustre_gib": 1200, "gpu_root_gib": 300, "log_days": 7}
    deployer.site = Site(aws, tmp_path, nodes=2, settings=changes, ttl="9h")
    deployer.act("up")
    deployer.act("down")
    assert aws.state() == deployer.before


def test_the_policies_suffice_to_repair_drift(deployer: Deployer) -> None:
    deployer.act("up")
    drift(deployer)
    changed = {"role/t-pod", "key/t", "repository/t", "route-table/t-public", "bucket/t"}
    assert deployer.site.planned().keys() == changed
    deployer.act("up")
    assert deployer.site.planned() == {}
    deployer.act("down")


def test_the_policies_suffice_to_delete_resources_of_controllers(deployer: Deployer) -> None:
    deployer.act("up")
    kinds = ["load-balancer", "target-group", "network-interface", "volume", "log-group", "security-group"]
    kinds += ["guardduty-endpoint"]
    deployer.aws.control(leave={"cluster": "cloudrec-t", "kinds": kinds})
    deployer.act("down")
    assert deployer.aws.state() == deployer.before


def test_every_role_has_the_boundary_even_if_created_without_it(aws: Aws, tmp_path: Path) -> None:
    aws.control(quotas={"ec2/L-1216C47A": 100})  # vCPUs of the nodes of two clusters
    administered = Site(aws, tmp_path / "first", name="u")
    administered.up()
    assert set(boundaries(aws, "u").values()) == {""}
    deployer = Deployer(aws, tmp_path / "second")
    deployer.act("up")
    assert set(boundaries(aws, "t").values()) == {deployer.boundary}
    assert administered.planned().keys() == {f"role/u-{each}" for each in SUFFIXES}
    deployer.site = administered
    deployer.act("up")
    assert set(boundaries(aws, "u").values()) == {deployer.boundary}


def test_the_boundary_can_have_another_name(aws: Aws, tmp_path: Path) -> None:
    document = json.dumps(POLICIES[BOUNDARY])
    arn = aws.client("iam").create_policy(PolicyName="ours", PolicyDocument=document)["Policy"]["Arn"]
    site = Site(aws, tmp_path, settings={"permissions_boundary": arn})
    site.up()
    assert set(boundaries(aws, "t").values()) == {arn}


@pytest.mark.soak
def test_a_missing_action_fails_a_command_that_names_it(deployer: Deployer) -> None:
    assert list(filter(None, (lacks(deployer, action) for action in SOME))) == []


@pytest.mark.soak
def test_each_missing_action_fails_a_command_that_names_it(deployer: Deployer, tally: Tally) -> None:
    deployer.come_and_go()
    used = set(deployer.aws.ask("GET", "")["permissions_used"]) - TOLERATED.keys() - {ONCE, DAILY}
    assert list(filter(None, (lacks(deployer, action) for action in sorted(used)))) == []
    tally(f"each of {len(used)} actions is needed")


@pytest.mark.parametrize("action", TOLERATED)
def test_what_is_unknown_without_an_action_is_a_finding_that_names_it(
    deployer: Deployer, action: str
) -> None:
    deployer.permit(without(action))
    deployer.aws.env.update(deployer.keys)
    try:
        found = app.doctor(deployer.site.application, deployer.site.cluster)
    finally:
        deployer.aws.env.update(deployer.root)
    told = [finding for finding in found if action in finding.remedy]
    assert told
    assert all(TOLERATED[action] in finding.check and not finding.ok for finding in told)


def test_the_first_cluster_of_an_account_needs_service_linked_roles(deployer: Deployer) -> None:
    deployer.permit(without(ONCE))
    with pytest.raises(CloudrecError, match=ONCE):
        deployer.act("up")
    deployer.permit(POLICIES)
    deployer.act("down")
    assert deployer.aws.state() == deployer.before


def test_a_missing_permission_is_not_taken_for_a_foreign_bucket(deployer: Deployer) -> None:
    name = f"cloudrec-t-{ACCOUNT}-us-east-1"
    deployer.aws.control(foreign_buckets=[name])
    with pytest.raises(CloudrecError, match=f"{name} belongs to another account"):
        deployer.act("up")
    deployer.aws.control(foreign_buckets=[])
    deployer.permit(without("s3:GetBucketTagging"))
    with pytest.raises(CloudrecError, match="may not do s3:GetBucketTagging"):
        deployer.act("up")


def objects(deployer: Deployer) -> None:
    """What `data push`, `fetch` and `down` do in the bucket."""
    bucket, s3 = deployer.site.found()["bucket/t"].identity, deployer.client("s3")
    s3.put_object(Bucket=bucket, Key="a", Body=b"1")
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"1"
    s3.delete_object(Bucket=bucket, Key="a")
    s3.create_multipart_upload(Bucket=bucket, Key="b")


def more_drift(deployer: Deployer) -> None:
    """Change by hand what `drift` does not."""
    aws, found = deployer.aws, {key: seen.identity for key, seen in deployer.site.found().items()}
    ec2 = aws.client("ec2")
    table = found["route-table/t-private"]
    igw = found["internet-gateway/t"]
    ec2.replace_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=igw)
    group = found["security-group/t-nodes"]
    ssh: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    ec2.authorize_security_group_ingress(GroupId=group, CidrIp="0.0.0.0/0", **ssh)
    eks = aws.client("eks")
    eks.update_addon(clusterName="cloudrec-t", addonName="vpc-cni", configurationValues="{}")
    eks.associate_access_policy(
        clusterName="cloudrec-t",
        principalArn=ADMIN,
        policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
        accessScope={"type": "cluster"},
    )
    aws.advance(120)


# Needed in situations that this life does not have.
ELSEWHERE = {
    "iam:RemoveRoleFromInstanceProfile": "a profile that an incomplete node group has left",
    "kms:UpdateAlias": "an alias of a key that is being deleted",
}


@pytest.mark.soak
def test_each_action_of_the_policies_is_used_by_some_command(aws: Aws, tmp_path: Path) -> None:
    """A life with options, changes, drift, data, controllers' resources and a stock-out uses each action."""
    admin(aws)
    aws.control(capacity={f"p4d.24xlarge/{ZONES[0]}/spot": 0})
    first = {"zones": ZONES[:1], "capacity": "spot-first", "kubernetes_version": "1.35"}
    same = {"lustre_gib": 1200, "admins": [ADMIN], "endpoints": list(ENDPOINTS)}
    deployer = Deployer(aws, tmp_path, **first, settings=same, ttl="8h")
    deployer.act("up")
    changes = {**same, "max_price": 99.0, "gpu_root_gib": 300}
    then = {"zones": (ZONES[0], "us-east-1c"), "capacity": "spot-first", "kubernetes_version": "1.36"}
    logged = {**changes, "log_types": ["audit"]}
    deployer.site = Site(aws, tmp_path, **then, nodes=2, settings=logged, ttl="9h")
    deployer.act("up")
    drift(deployer)
    more_drift(deployer)
    deployer.act("up")
    objects(deployer)
    kinds = ["load-balancer", "target-group", "network-interface", "volume", "log-group", "security-group"]
    kinds += ["guardduty-endpoint"]
    aws.control(leave={"cluster": "cloudrec-t", "kinds": kinds})
    deployer.act("down")
    aws.env.update(deployer.keys)
    app.leaks(deployer.site.application, "aws", everywhere=True)
    aws.env.update(deployer.root)
    used = set(aws.ask("GET", "")["permissions_used"])
    assert sorted(allowed(*DEPLOYER) - used - ELSEWHERE.keys()) == []
