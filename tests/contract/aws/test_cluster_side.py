"""The cluster, its nodes and add-ons on AWS: placement, changes in place, cleanup and reporting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.engine.journal import JournalEvent
from cloudrec.engine.plan import PlanStep
from cloudrec.errors import CloudrecError, NoCapacityError, PreflightError, SpecError
from tests.contract.aws.support import Site
from tests.sandbox.aws.support import Aws

ZONES = ("us-east-1a", "us-east-1b")
CLUSTER = "cloudrec-t"
GPUS = "gpu-nodes/t"


def none_left(*places: str) -> dict[str, int]:
    """The faults for missing capacity at each TYPE/ZONE/MARKET."""
    return dict.fromkeys(places, 0)


def events_of(site: Site) -> list[JournalEvent]:
    return list(site.application.journal.events("t"))


def gpu_groups(site: Site) -> list[str]:
    return [key for key in site.found() if key.startswith("gpu-nodes/")]


def test_spot_is_tried_in_every_zone_before_the_first_on_demand_node(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES, capacity="spot-first")
    aws.control(capacity=none_left(*(f"p4d.24xlarge/{zone}/spot" for zone in ZONES)))
    site.up()
    assert gpu_groups(site) == ["gpu-nodes/t-p4d.24xlarge-us-east-1a-on-demand"]
    tried = [event for event in site.application.journal.events("t") if event.event == "unavailable"]
    assert [event.key for event in tried] == [f"gpu-nodes/t-p4d.24xlarge-{zone}-spot" for zone in ZONES]
    assert all("UnfulfillableCapacity" in event.detail for event in tried)
    assert site.planned() == {}
    site.down()
    assert aws.state() == []


def test_up_without_capacity_keeps_other_resources_and_a_later_up_continues(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES)
    places = [f"p4d.24xlarge/{zone}/on-demand" for zone in ZONES]
    aws.control(capacity=none_left(*places))
    with pytest.raises(NoCapacityError, match="none of 2 candidates") as caught:
        site.up()
    assert all(f"p4d.24xlarge-{zone}-on-demand" in caught.value.message for zone in ZONES)
    assert "cluster/t" in site.found()
    assert gpu_groups(site) == []
    aws.control(capacity=dict.fromkeys(places))
    since = len(aws.calls())
    site.up()
    assert "eks:CreateCluster" not in site.changes(since)
    assert len(gpu_groups(site)) == 1


def test_a_half_filled_group_is_removed_before_the_next_zone_is_tried(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES, nodes=2)
    left = {f"p4d.24xlarge/{zone}/on-demand": count for zone, count in zip(ZONES, (1, 8), strict=True)}
    aws.control(capacity=left, quotas={"ec2/L-417A185B": 192})  # vCPUs of exactly two nodes
    site.up()
    assert gpu_groups(site) == ["gpu-nodes/t-p4d.24xlarge-us-east-1b-on-demand"]
    events = [(event.event, event.key[-len("us-east-1a-on-demand") :]) for event in events_of(site)]
    of_nodes = [
        each for each in events if each[0] in {"unavailable", "gone", "ready"} and "-on-demand" in each[1]
    ]
    assert of_nodes == [
        ("unavailable", "us-east-1a-on-demand"),
        ("gone", "us-east-1a-on-demand"),
        ("ready", "us-east-1b-on-demand"),
    ]


def test_insufficient_capacity_is_detected_before_the_eks_timeout(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=("us-east-1a",))
    aws.control(capacity=none_left("p4d.24xlarge/us-east-1a/on-demand"))
    aws.control(durations={"eks-nodegroup-fail": 100_000})
    with pytest.raises(NoCapacityError, match="InsufficientInstanceCapacity"):
        site.up()


def test_spot_offers_above_the_maximum_price_are_skipped(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=("us-east-1a",), capacity="spot", settings={"max_price": 0.01})
    with pytest.raises(NoCapacityError, match=r"the limit is \$0\.01/h"):
        site.up()
    assert gpu_groups(site) == []
    dearer = Site(aws, tmp_path, zones=("us-east-1a",), capacity="spot", settings={"max_price": 1000.0})
    dearer.up()
    assert len(gpu_groups(dearer)) == 1


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ({"nodes": 2}, "eks:UpdateNodegroupConfig"),
        ({"settings": {"labels": {"team": "ads"}}}, "eks:UpdateNodegroupConfig"),
        ({"settings": {"gpu_root_gib": 300}}, "eks:UpdateNodegroupVersion"),
        ({"settings": {"image_pull": "sequential"}}, "eks:UpdateNodegroupVersion"),
        ({"access": "203.0.113.0/24"}, "eks:UpdateClusterConfig"),
        ({"settings": {"log_types": ["audit"]}}, "eks:UpdateClusterConfig"),
    ],
)
def test_mutable_eks_settings_are_changed_in_place(
    aws: Aws, tmp_path: Path, change: dict[str, Any], call: str
) -> None:
    before = Site(aws, tmp_path, zones=("us-east-1a",))
    before.up()
    since = len(aws.calls())
    after = Site(aws, tmp_path, zones=("us-east-1a",), **change)
    assert {action.step for action in after.planned().values()} == {PlanStep.CHANGE}
    after.up()
    assert call in after.changes(since)
    assert not [name for name in after.changes(since) if "Delete" in name]
    assert after.planned() == {}


def test_kubernetes_and_its_nodes_are_upgraded_one_minor_version_at_a_time(aws: Aws, tmp_path: Path) -> None:
    first, *_, last = ("1.34", "1.35", "1.36")
    # Whatever the day, and however far the virtual time is: cloudrec takes versions in standard support.
    aws.control(kubernetes_support={first: ["2025-10-02", "2099-01-01", "2100-01-01"]})
    Site(aws, tmp_path, zones=("us-east-1a",), kubernetes_version=first).up()
    site = Site(aws, tmp_path, zones=("us-east-1a",), kubernetes_version=last)
    site.up()
    eks = aws.client("eks")
    assert eks.describe_cluster(name=CLUSTER)["cluster"]["version"] == last
    for name in eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"]:
        group = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)["nodegroup"]
        assert group["version"] == last
    assert site.planned() == {}
    with pytest.raises(SpecError, match="cannot change that in place"):
        Site(aws, tmp_path, zones=("us-east-1a",), kubernetes_version=first).up()


CREATIONS = [
    ("eks", "CreateCluster"),
    ("eks", "CreateNodegroup"),
    ("eks", "CreateAddon"),
    ("eks", "CreateAccessEntry"),
    ("eks", "AssociateAccessPolicy"),
    ("eks", "CreatePodIdentityAssociation"),
    ("ec2", "CreateLaunchTemplate"),
    ("ec2", "CreatePlacementGroup"),
]
ADMIN = "arn:aws:iam::123456789012:role/admin"


def admin(aws: Aws) -> None:
    trust = '{"Version": "2012-10-17", "Statement": []}'
    aws.client("iam").create_role(RoleName="admin", AssumeRolePolicyDocument=trust)
    aws.advance(60)


@pytest.mark.soak  # the conformance suite covers each kind of call
@pytest.mark.parametrize("kind", ["lost", "5xx", "throttle", "drop"])
def test_a_lost_response_creates_no_duplicate(aws: Aws, tmp_path: Path, kind: str) -> None:
    admin(aws)
    untouched = aws.state()
    site = Site(aws, tmp_path, zones=("us-east-1a",), settings={"admins": [ADMIN]})
    faults = [{"service": where, "action": what, "kind": kind, "times": 1} for where, what in CREATIONS]
    aws.control(faults=faults)
    plan = site.up()
    assert all(fault["times"] == 0 for fault in aws.ask("GET", "")["faults"])
    assert len(site.found()) == len(plan.actions)
    assert site.planned() == {}
    site.down()
    assert aws.state() == untouched


def test_a_configured_administrator_is_granted_access(aws: Aws, tmp_path: Path) -> None:
    admin(aws)
    Site(aws, tmp_path, zones=("us-east-1a",), settings={"admins": [ADMIN]}).up()
    listed = aws.client("eks").list_associated_access_policies(clusterName=CLUSTER, principalArn=ADMIN)
    (policy,) = listed["associatedAccessPolicies"]
    assert policy["policyArn"].endswith("AmazonEKSClusterAdminPolicy")
    site = Site(aws, tmp_path, zones=("us-east-1a",))
    site.up()
    assert ADMIN not in aws.client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]


def test_the_cluster_is_private_encrypted_and_logged(site: Site) -> None:
    site.up()
    cluster = site.aws.client("eks").describe_cluster(name=CLUSTER)["cluster"]
    assert not cluster["resourcesVpcConfig"]["endpointPublicAccess"]
    assert cluster["resourcesVpcConfig"]["endpointPrivateAccess"]
    assert cluster["accessConfig"]["authenticationMode"] == "API"
    assert cluster["encryptionConfig"][0]["provider"]["keyArn"] == site.found()["key/t"].identity
    assert cluster["upgradePolicy"] == {"supportType": "STANDARD"}
    (logged,) = [setup for setup in cluster["logging"]["clusterLogging"] if setup["enabled"]]
    assert len(logged["types"]) == 5


def test_network_policies_are_enforced_and_only_the_network_plugin_changes_interfaces(site: Site) -> None:
    site.up()
    eks, iam = site.aws.client("eks"), site.aws.client("iam")
    addon = eks.describe_addon(clusterName=CLUSTER, addonName="vpc-cni")["addon"]
    assert json.loads(addon["configurationValues"]) == {"enableNetworkPolicy": "true"}
    rows = eks.list_pod_identity_associations(clusterName=CLUSTER, serviceAccount="aws-node")["associations"]
    (row,) = rows
    association = eks.describe_pod_identity_association(
        clusterName=CLUSTER, associationId=row["associationId"]
    )["association"]
    plugin = association["roleArn"].rpartition("/")[2]
    node = site.found()["role/t-node"].identity.rpartition("/")[2]

    def policies(role: str) -> set[str]:
        listed = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        return {each["PolicyName"] for each in listed}

    assert policies(plugin) == set()
    written = iam.get_role_policy(RoleName=plugin, PolicyName="cloudrec")["PolicyDocument"]["Statement"]
    assert {row["Sid"] for row in written if not row.get("Condition")} == {"Look", "Protect"}
    assert policies(node) == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}


def test_gpu_nodes_are_watched_repaired_one_at_a_time_and_updated_without_a_spare_one(site: Site) -> None:
    site.up()
    eks = site.aws.client("eks")
    addon = eks.describe_addon(clusterName=CLUSTER, addonName="eks-node-monitoring-agent")["addon"]
    # DCGM's pods tolerate no taint by default, and the GPU nodes have one.
    assert json.loads(addon["configurationValues"])["dcgmAgent"]["tolerations"] == [{"operator": "Exists"}]
    found = {}
    for name in eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"]:
        group = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)["nodegroup"]
        found[name.partition("-")[0]] = group["updateConfig"]["updateStrategy"]
        assert group["nodeRepairConfig"] == {"enabled": True, "maxParallelNodesRepairedCount": 1}
    assert found == {"cpu": "DEFAULT", "gpu": "MINIMAL"}


def test_groups_of_an_earlier_version_get_the_settings_of_health(site: Site) -> None:
    site.up()
    eks = site.aws.client("eks")
    (gpu,) = [name for name in eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"] if name != "cpu"]
    eks.update_nodegroup_config(
        clusterName=CLUSTER,
        nodegroupName=gpu,
        updateConfig={"maxUnavailable": 1},
        nodeRepairConfig={"enabled": False},
    )
    site.aws.advance(60)
    assert {key.partition("/")[0] for key in site.planned()} == {"gpu-nodes"}
    site.up()
    group = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=gpu)["nodegroup"]
    assert (group["updateConfig"]["updateStrategy"], group["nodeRepairConfig"]["enabled"]) == (
        "MINIMAL",
        True,
    )
    assert site.planned() == {}


def test_the_control_planes_logs_have_an_end_and_a_key(aws: Aws, tmp_path: Path) -> None:
    logs, name = aws.client("logs"), f"/aws/eks/{CLUSTER}/cluster"
    logs.create_log_group(logGroupName=name)  # as EKS left it after an earlier cluster
    site = Site(aws, tmp_path, zones=("us-east-1a",), settings={"log_days": 7})
    site.up()
    groups = logs.describe_log_groups()["logGroups"]
    assert [(row["logGroupName"], row["retentionInDays"]) for row in groups] == [(name, 7)]
    assert groups[0]["kmsKeyId"] == site.found()["key/t"].identity
    called = [f"{call['service']}:{call['action']}" for call in aws.calls()]
    assert called.index("logs:PutRetentionPolicy") < called.index("eks:CreateCluster")
    without = Site(aws, tmp_path, zones=("us-east-1a",), settings={"log_types": []})
    without.up()
    assert logs.describe_log_groups()["logGroups"] == []
    without.down()
    assert aws.state() == []


def stray(aws: Aws, site: Site) -> list[str]:
    """Create the resources that controllers in the cluster create; return their names in the inventory."""
    before = set(aws.state())
    found, ec2 = site.found(), aws.client("ec2")
    subnets = [found[f"subnet/t-public-{zone}"].identity for zone in ZONES]
    group = ec2.create_security_group(GroupName="k8s-elb-x", Description="x", VpcId=found["vpc/t"].identity)[
        "GroupId"
    ]
    pair = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(
        GroupId=found["security-group/t-nodes"].identity, IpPermissions=[pair]
    )
    balancers = aws.client("elbv2")
    balancers.create_load_balancer(Name="k8s-x", Subnets=subnets, SecurityGroups=[group])
    balancers.create_target_group(Name="k8s-x", Protocol="TCP", Port=80, VpcId=found["vpc/t"].identity)
    classic = [{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 80}]
    aws.client("elb").create_load_balancer(LoadBalancerName="classic", Listeners=classic, Subnets=subnets)
    owned = [{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}]
    ec2.create_volume(
        AvailabilityZone=ZONES[0],
        Size=100,
        VolumeType="gp3",
        TagSpecifications=[{"ResourceType": "volume", "Tags": owned}],
    )
    ec2.create_network_interface(SubnetId=subnets[0], Groups=[group])
    return sorted(set(aws.state()) - before)


def test_up_keeps_resources_of_controllers_and_down_deletes_them(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES)
    site.up()
    made = stray(aws, site)
    assert len({line.rsplit(":", 1)[0] for line in made}) >= 5
    assert site.planned() == {}
    site.down()
    assert aws.state() == []


def test_orphaned_resources_of_a_deleted_cluster_are_listed_with_their_cost(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES)
    site.up()
    stray(aws, site)
    drivers = site.provider.drivers(site.cluster)
    for key, seen in site.found().items():
        if key.partition("/")[0] in {"cpu-nodes", "gpu-nodes"}:
            drivers[seen.kind].delete(seen)
    aws.advance(3600)
    drivers["cluster"].delete(site.found()["cluster/t"])
    aws.advance(3600)
    left = {leak.found.kind: leak.found for leak in app.leaks(site.application, "aws").leaks}
    assert {
        "load-balancer",
        "target-group",
        "network-interface",
        "volume",
        "stray-security-group",
    } <= left.keys()
    assert left["load-balancer"].hourly_usd in {0.0225, 0.025}  # of either generation
    assert left["volume"].hourly_usd == pytest.approx(100 * 0.08 / 730)
    assert "leftovers" in {
        finding.check for finding in app.doctor(site.application, site.cluster) if not finding.ok
    }
    site.down()
    assert aws.state() == []


def test_access_writes_a_private_kubeconfig_without_a_secret(site: Site) -> None:
    with pytest.raises(PreflightError, match="is not up: there is no cloudrec-t"):
        site.provider.access(site.cluster)
    site.up()
    access = site.provider.access(site.cluster)
    path = Path(access.target.kubeconfig)
    assert path.is_relative_to(site.home.root)
    assert path.stat().st_mode & 0o777 == 0o600
    assert site.aws.env["AWS_SECRET_ACCESS_KEY"] not in path.read_text()
    assert (access.nodes, access.gpus_per_node, access.target.fabric) == (1, 8, "efa")
    assert access.target.resources["vpc.amazonaws.com/efa"] == "4"
    target = access.target
    # Pods do not reach the metadata service: EKS evicts them.
    assert (target.notices, target.drains, target.is_preempted) == ("", True, False)
    assert target.instance_type == "p4d.24xlarge"
    assert target.image_repository.endswith("/cloudrec/t")
    assert [volume["name"] for volume in target.volumes] == ["bucket"]
    written = path.stat().st_mtime_ns
    site.provider.access(site.cluster)
    assert path.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("control", "cluster", "told"),
    [
        (
            {"quotas": {"ec2/L-417A185B": 50}},
            {},
            "quota: on-demand vCPUs .*: 50, of which 0 are used; needed: 96",
        ),
        ({"quotas": {"vpc/L-F678F1CE": 1}}, {}, "quota: VPCs: 1, of which 1 are used"),
        ({}, {"kubernetes_version": "1.20"}, "Kubernetes version: EKS offers .* needed: 1.20"),
    ],
)
def test_preflight_reports_blocking_problems_before_any_change(
    aws: Aws, tmp_path: Path, control: dict[str, Any], cluster: dict[str, Any], told: str
) -> None:
    aws.control(**control)
    with pytest.raises(PreflightError, match=told):
        Site(aws, tmp_path, **cluster).up()
    assert aws.state() == []


def test_a_cluster_of_the_same_name_without_cloudrec_tags_is_left_alone(site: Site) -> None:
    site.up()
    eks = site.aws.client("eks")
    arn = eks.describe_cluster(name=CLUSTER)["cluster"]["arn"]
    eks.untag_resource(resourceArn=arn, tagKeys=["cloudrec-cluster"])
    with pytest.raises(PreflightError, match="taken by a cluster that is not of cloudrec"):
        site.up()
    with pytest.raises(PreflightError, match="is not of cloudrec"):
        site.provider.access(site.cluster)


def test_offers_list_the_candidates_and_their_prices(aws: Aws, tmp_path: Path) -> None:
    site = Site(aws, tmp_path, zones=ZONES, capacity="spot-first")
    offers = site.provider.offers(site.cluster)
    assert [(offer.capacity, offer.location) for offer in offers] == [
        (capacity, zone) for capacity in ("spot", "on-demand") for zone in ZONES
    ]
    assert offers[0].hourly_usd is not None
    assert offers[-1].hourly_usd is not None
    assert 0 < offers[0].hourly_usd < offers[-1].hourly_usd


def test_deletion_errors_name_the_remaining_resources(site: Site) -> None:
    site.up()
    denied = {"service": "eks", "action": "DeleteCluster", "kind": "error", "times": 99}
    site.aws.control(faults=[{**denied, "code": "AccessDeniedException", "status": 403, "message": "no"}])
    with pytest.raises(CloudrecError, match=r"cluster/t +cloudrec-t +\$0\.10/h.*eks:DeleteCluster"):
        site.down()
    site.aws.control(faults=[])
    site.down()
    assert site.aws.state() == []
