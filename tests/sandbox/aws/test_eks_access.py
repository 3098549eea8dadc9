"""Add-ons, access entries and pod identity of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.aws.support import Aws, refused
from tests.sandbox.aws.support_eks import (
    Ground,
    active_cluster,
    create_cluster,
    create_nodegroup,
    ground,
    pod_role,
    role,
)

VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"


@pytest.fixture
def base(aws: Aws) -> Ground:
    base = ground(aws)
    active_cluster(aws, base)
    return base


def addon(aws: Aws, name: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = aws.client("eks").create_addon(clusterName="one", addonName=name, **more)["addon"]
    return made


def state_of(aws: Aws, name: str) -> tuple[str, list[str]]:
    found = aws.client("eks").describe_addon(clusterName="one", addonName=name)["addon"]
    return found["status"], [issue["code"] for issue in found["health"]["issues"]]


@pytest.mark.usefixtures("base")
def test_an_addon_takes_a_minute_to_create_and_half_a_minute_to_delete(aws: Aws) -> None:
    assert addon(aws, "eks-pod-identity-agent")["status"] == "CREATING"
    aws.advance(60)
    assert state_of(aws, "eks-pod-identity-agent") == ("ACTIVE", [])
    aws.client("eks").delete_addon(clusterName="one", addonName="eks-pod-identity-agent")
    assert state_of(aws, "eks-pod-identity-agent")[0] == "DELETING"
    aws.advance(30)
    with refused("ResourceNotFoundException"):
        state_of(aws, "eks-pod-identity-agent")


@pytest.mark.usefixtures("base")
def test_an_addon_with_a_conflicting_copy_fails_late_unless_it_overwrites(aws: Aws) -> None:
    addon(aws, "vpc-cni")
    addon(aws, "kube-proxy", resolveConflicts="OVERWRITE")
    aws.advance(60)
    assert state_of(aws, "vpc-cni") == ("CREATE_FAILED", ["ConfigurationConflict"])
    assert state_of(aws, "kube-proxy") == ("ACTIVE", [])
    with refused("InvalidParameterException", "CREATE_FAILED"):
        addon(aws, "vpc-cni", resolveConflicts="OVERWRITE")
    aws.client("eks").update_addon(clusterName="one", addonName="vpc-cni", resolveConflicts="OVERWRITE")
    aws.advance(30)
    assert state_of(aws, "vpc-cni") == ("ACTIVE", [])


def test_coredns_is_degraded_until_there_are_nodes(aws: Aws, base: Ground) -> None:
    addon(aws, "coredns", resolveConflicts="OVERWRITE")
    aws.advance(60)
    assert state_of(aws, "coredns") == ("DEGRADED", ["InsufficientNumberOfReplicas"])
    create_nodegroup(aws, base)
    aws.advance(180)
    assert state_of(aws, "coredns") == ("ACTIVE", [])


@pytest.mark.parametrize(
    ("name", "wish", "message"),
    [
        ("moon-dns", {}, "not supported"),
        ("coredns", {"addonVersion": "v0"}, "not supported: v0"),
        (
            "vpc-cni",
            {"serviceAccountRoleArn": "arn:aws:iam::123456789012:role/x"},
            "does not",
        ),
        ("vpc-cni", {"resolveConflicts": "MAYBE"}, "'MAYBE' is none of"),
    ],
)
@pytest.mark.usefixtures("base")
def test_an_invalid_addon_is_refused(aws: Aws, name: str, wish: dict[str, str], message: str) -> None:
    with refused("InvalidParameterException", message):
        addon(aws, name, **wish)


def test_an_addon_is_unique_and_needs_an_active_cluster(aws: Aws, base: Ground) -> None:
    addon(aws, "eks-pod-identity-agent")
    with refused("ResourceInUseException", "already exists"):
        addon(aws, "eks-pod-identity-agent")
    create_cluster(aws, base, "two")
    with refused("InvalidRequestException", "not in ACTIVE status"):
        aws.client("eks").create_addon(clusterName="two", addonName="vpc-cni")


@pytest.mark.usefixtures("base")
def test_addon_versions_are_reported_by_kubernetes_version(aws: Aws) -> None:
    rows = aws.client("eks").describe_addon_versions(kubernetesVersion="1.35", addonName="kube-proxy")[
        "addons"
    ]
    versions = rows[0]["addonVersions"]
    defaults = [row["addonVersion"] for row in versions if row["compatibilities"][0]["defaultVersion"]]
    assert defaults == ["v1.35.0-eksbuild.2"]
    addon(aws, "kube-proxy", addonVersion=versions[1]["addonVersion"], resolveConflicts="OVERWRITE")


def test_an_addon_owns_its_pod_identity_association(aws: Aws, base: Ground) -> None:
    arn = pod_role(aws)
    aws.advance(10)
    wish = [{"serviceAccount": "fsx-csi-controller-sa", "roleArn": arn}]
    addon(aws, "aws-fsx-csi-driver", podIdentityAssociations=wish)
    eks = aws.client("eks")
    owned = eks.list_pod_identity_associations(clusterName="one")["associations"]
    assert [(entry["namespace"], entry["serviceAccount"]) for entry in owned] == [
        ("kube-system", "fsx-csi-controller-sa")
    ]
    with refused("ResourceInUseException", "owned by"):
        eks.delete_pod_identity_association(clusterName="one", associationId=owned[0]["associationId"])
    create_nodegroup(aws, base)
    aws.advance(180)
    assert state_of(aws, "aws-fsx-csi-driver") == ("DEGRADED", ["AddonPermissionFailure"])
    addon(aws, "eks-pod-identity-agent")
    aws.advance(60)
    assert state_of(aws, "aws-fsx-csi-driver") == ("ACTIVE", [])


def test_the_creator_has_an_access_entry_and_entries_are_unique(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    me = aws.client("sts").get_caller_identity()["Arn"]
    assert eks.list_access_entries(clusterName="one")["accessEntries"] == [me]
    policies = eks.list_associated_access_policies(clusterName="one", principalArn=me)
    assert policies["associatedAccessPolicies"][0]["policyArn"].endswith("AmazonEKSClusterAdminPolicy")
    with refused("ResourceInUseException", "already in use"):
        eks.create_access_entry(clusterName="one", principalArn=me)
    create_nodegroup(aws, base)
    with refused("ResourceInUseException", "already in use"):
        eks.create_access_entry(clusterName="one", principalArn=base.node_role, type="EC2_LINUX")


@pytest.mark.usefixtures("base")
def test_an_access_entry_needs_a_visible_principal(aws: Aws) -> None:
    eks = aws.client("eks")
    fresh = role(aws, "people", "ec2")
    with refused("InvalidParameterException", "invalid principal"):
        eks.create_access_entry(clusterName="one", principalArn=fresh)
    with refused("ResourceNotFoundException", "could not be found"):
        eks.associate_access_policy(
            clusterName="one", principalArn=fresh, policyArn=VIEW, accessScope={"type": "cluster"}
        )
    aws.advance(8)
    eks.create_access_entry(clusterName="one", principalArn=fresh, kubernetesGroups=["readers"])
    eks.associate_access_policy(
        clusterName="one", principalArn=fresh, policyArn=VIEW, accessScope={"type": "cluster"}
    )
    with refused("InvalidParameterException", "policyArn"):
        eks.associate_access_policy(
            clusterName="one", principalArn=fresh, policyArn=f"{VIEW}X", accessScope={"type": "cluster"}
        )
    eks.disassociate_access_policy(clusterName="one", principalArn=fresh, policyArn=VIEW)
    eks.delete_access_entry(clusterName="one", principalArn=fresh)
    with refused("ResourceNotFoundException"):
        eks.describe_access_entry(clusterName="one", principalArn=fresh)


def test_a_config_map_cluster_has_no_access_entries_until_it_is_changed(aws: Aws, base: Ground) -> None:
    eks = aws.client("eks")
    active_cluster(aws, base, "two", accessConfig={"authenticationMode": "CONFIG_MAP"})
    with refused("InvalidRequestException", "API_AND_CONFIG_MAP"):
        eks.list_access_entries(clusterName="two")
    eks.update_cluster_config(name="two", accessConfig={"authenticationMode": "API"})
    aws.advance(60)
    eks.list_access_entries(clusterName="two")
    with refused("InvalidParameterException", "from API to CONFIG_MAP"):
        eks.update_cluster_config(name="two", accessConfig={"authenticationMode": "CONFIG_MAP"})


@pytest.mark.usefixtures("base")
def test_a_service_account_has_one_association_with_a_role_that_trusts_pod_identity(aws: Aws) -> None:
    eks = aws.client("eks")
    wish = {"clusterName": "one", "namespace": "train", "serviceAccount": "main"}
    bare = role(aws, "bare", "pods.eks")
    good = pod_role(aws)
    with refused("InvalidParameterException", "does not exist"):
        eks.create_pod_identity_association(**wish, roleArn=good)
    aws.advance(8)
    with refused("InvalidParameterException", "sts:TagSession"):
        eks.create_pod_identity_association(**wish, roleArn=bare)
    made = eks.create_pod_identity_association(**wish, roleArn=good, tags={"run": "1"})["association"]
    with refused("ResourceInUseException", "Association already exists"):
        eks.create_pod_identity_association(**wish, roleArn=good)
    names = {"clusterName": "one", "associationId": made["associationId"]}
    assert eks.describe_pod_identity_association(**names)["association"]["roleArn"] == good
    eks.update_pod_identity_association(**names, disableSessionTags=True)
    assert eks.list_pod_identity_associations(clusterName="one", namespace="other")["associations"] == []
    eks.delete_pod_identity_association(**names)
    with refused("ResourceNotFoundException"):
        eks.describe_pod_identity_association(**names)
