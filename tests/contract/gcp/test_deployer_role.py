"""The roles in infra/gcp allow every call of a deployer, and no way to other permissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.engine.clock import Clock
from cloudrec.home import Home
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.providers.gcp import access, preflight, provider
from cloudrec.providers.gcp.api import policies
from cloudrec.providers.gcp.cleanup import orphans, unmanaged
from cloudrec.providers.gcp.nodes import scale_to_zero
from cloudrec.providers.gcp.registry import registry
from cloudrec.providers.gcp.storage import lustre as lustre_part
from cloudrec_sandbox.gcp.services.iam import expressions
from tests.conformance.support_clouds import stand_in, until
from tests.contract.gcp.support import Site
from tests.contract.gcp.support_audit import APIS
from tests.contract.gcp.test_leftovers import claim, ingress, service
from tests.sandbox.gcp.support import PROJECT, refused
from tests.sandbox.gcp.support import Gcp as Cloud

FOLDER = Path(__file__).parents[3] / "infra" / "gcp"
CUSTOM = {
    name: yaml.safe_load((FOLDER / f"{name}-role.yaml").read_text())
    for name in ("deployer", "buckets", "binder", "firewalls", "guard", "end", "images", "sweep")
}
# The roles that README.md binds for a deployer in the project, each with its condition.
BOUND = {
    "cloudrecDeployer": "",
    "cloudrecBuckets": "buckets",
    "cloudrecBinder": "grants",
    "cloudrecFirewalls": "firewalls",
    "roles/container.admin": "clusters",
    "roles/storage.objectUser": "buckets",
}
OPTIONAL = {"cloudrecImages": "", "cloudrecSweep": ""}  # for a project without anything of others
OF_NODES = (
    "logging.logWriter",
    "monitoring.metricWriter",
    "monitoring.viewer",
    "stackdriver.resourceMetadata.writer",
    "artifactregistry.reader",
    "serviceusage.serviceUsageConsumer",
)
ME = f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"
OWNER = "user:owner@example.com"
NODES = f"cloudrec-nodes@{PROJECT}.iam.gserviceaccount.com"
END = f"cloudrec-end@{PROJECT}.iam.gserviceaccount.com"
# Each lets its holder act as another account, run code as one, or grant itself a role
# (https://github.com/RhinoSecurityLabs/GCP-IAM-Privilege-Escalation).
ESCALATES = (
    "cloudbuild.builds.create",
    "cloudfunctions.functions.create",
    "cloudscheduler.jobs.create",
    "compute.instances.create",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.projects.setCommonInstanceMetadata",
    "container.clusterRoleBindings.create",
    "container.pods.create",
    "container.secrets.get",
    "deploymentmanager.deployments.create",
    "iam.roles.create",
    "iam.roles.update",
    "iam.serviceAccountKeys.create",
    "iam.serviceAccounts.actAs",
    "iam.serviceAccounts.getAccessToken",
    "iam.serviceAccounts.implicitDelegation",
    "iam.serviceAccounts.signBlob",
    "iam.serviceAccounts.signJwt",
    "orgpolicy.policy.set",
    "run.services.create",
    "serviceusage.apiKeys.create",
    "storage.hmacKeys.create",
    "workflows.executions.create",
    "workflows.workflows.create",
    "workflows.workflows.update",
)
# These lead only to the accounts that a deployer may act as: cloudrec-nodes and cloudrec-end.
ACTS_AS = {"cloudscheduler.jobs.create", "workflows.workflows.create"}


def _front(client: str) -> str:
    """The name of a collection in permissions, from that of its client: regionUrlMaps."""
    name = client.removesuffix("Client")
    return name[0].lower() + name[1:]


# Permissions that the flow below does not show: of resources that a request names, of operations, of the
# peering with Google's services, and of collections in which this cluster's controllers leave nothing.
BESIDE = {
    "cloudscheduler.locations.list",  # in a region without Cloud Scheduler
    "artifactregistry.repositories.downloadArtifacts",  # `image push`, which calls the registry
    "artifactregistry.repositories.uploadArtifacts",
    "artifactregistry.repositories.update",  # tags that others made mutable
    "compute.instanceGroups.get",  # whether a pool with a problem has running nodes
    "compute.networks.addPeering",
    "compute.networks.removePeering",
    "compute.networks.updatePolicy",
    "compute.networks.use",
    "compute.resourcePolicies.use",
    "compute.subnetworks.use",
    "compute.zoneOperations.get",
    "container.operations.list",  # an operation whose answer was lost
    "lustre.instances.update",  # a larger file system
    "lustre.operations.get",
    "servicenetworking.operations.get",
    "servicenetworking.services.get",
    "serviceusage.services.use",
    "workflows.executions.create",  # a job of Cloud Scheduler does that
    *(
        f"compute.{name}.{verb}"
        for collection in orphans.COLLECTIONS.values()
        for client in (collection.somewhere, collection.everywhere)
        if client is not None
        for name in [_front(client().__name__)]
        for verb in ("get", "delete")
    ),
}


def listed() -> set[str]:
    return {permission for name in CUSTOM for permission in CUSTOM[name]["includedPermissions"]}


def test_the_roles_have_no_wildcard_and_no_duplicate_permission() -> None:
    for role in CUSTOM.values():
        permissions = role["includedPermissions"]
        assert not [permission for permission in permissions if "*" in permission]
        assert len(permissions) == len(set(permissions))


def test_no_role_without_a_condition_leads_to_other_permissions() -> None:
    free = [CUSTOM["deployer"], CUSTOM["guard"]]
    permissions = {permission for role in free for permission in role["includedPermissions"]}
    assert permissions & set(ESCALATES) == ACTS_AS
    assert not [permission for permission in permissions if permission.lower().endswith("setiampolicy")]
    assert [name for name, file in BOUND.items() if not file] == ["cloudrecDeployer"]


def test_the_deployer_can_grant_only_the_role_of_a_guard() -> None:
    assert CUSTOM["binder"]["includedPermissions"] == ["resourcemanager.projects.setIamPolicy"]
    expression = (FOLDER / "grants.condition").read_text().strip()
    for role, allowed in {"projects/PROJECT/roles/cloudrecGuard": True, "roles/owner": False}.items():
        assert expressions.holds(expression, name="", kind="", modified={role}) is allowed


def test_the_readme_has_a_command_for_each_role_and_file() -> None:
    told = (FOLDER / "README.md").read_text()
    for file in {*FOLDER.glob("*.yaml"), *FOLDER.glob("*.condition")}:
        assert file.name in told
    for name in (*BOUND, *OPTIONAL, *OF_NODES):
        assert name in told


@contextmanager
def unlimited(cloud: Cloud) -> Iterator[None]:
    """What happens here is done by others: permissions are not checked."""
    cloud.control(enforce_iam=False)
    yield
    cloud.control(enforce_iam=True)


def prepare(cloud: Cloud, *, optional: bool = True) -> None:
    """Do what README.md lists for the owner; `optional`: also the roles for a project of cloudrec alone."""
    for name, role in CUSTOM.items():
        wish = {"roleId": f"cloudrec{name.title()}", "role": role}
        assert cloud.rest("POST", f"/v1/projects/{PROJECT}/roles", wish)[0] == 200
    accounts = f"/v1/projects/{PROJECT}/serviceAccounts"
    user = {"bindings": [{"role": "roles/iam.serviceAccountUser", "members": [ME]}]}
    for email in (NODES, END):
        assert cloud.rest("POST", accounts, {"accountId": email.partition("@")[0]})[0] == 200
        cloud.advance(60)
        assert cloud.rest("POST", f"{accounts}/{email}:setIamPolicy", {"policy": user})[0] == 200
    of_nodes = [{"role": f"roles/{role}", "members": [f"serviceAccount:{NODES}"]} for role in OF_NODES]
    of_end = {"role": f"projects/{PROJECT}/roles/cloudrecEnd", "members": [f"serviceAccount:{END}"]}
    grant(cloud, *of_nodes, of_end, optional=optional)


def grant(cloud: Cloud, *more: dict[str, Any], limited: bool = True, optional: bool = True) -> None:
    """Set the caller's roles: those without a condition, and those with one if `limited`."""
    cloud.control(enforce_iam=False)
    bindings: list[dict[str, Any]] = [{"role": "roles/owner", "members": [OWNER]}, *more]
    for role, file in {**BOUND, **(OPTIONAL if optional else {})}.items():
        name = role if role.startswith("roles/") else f"projects/{PROJECT}/roles/{role}"
        binding: dict[str, Any] = {"role": name, "members": [ME]}
        if file:
            expression = (FOLDER / f"{file}.condition").read_text().strip().replace("PROJECT", PROJECT)
            binding["condition"] = {"title": f"cloudrec {file}", "expression": expression}
        if limited or not file:
            bindings.append(binding)
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    kept = [each for each in policy["bindings"] if not {ME, OWNER} & set(each["members"])]
    replace_policy(cloud, [*kept, *bindings])
    cloud.control(enforce_iam=True)


def used(cloud: Cloud) -> set[str]:
    return {call["iam_action"] for call in cloud.calls() if call["iam_action"]}


def test_the_roles_suffice_for_every_flow_and_have_no_unused_permission(cloud: Cloud, tmp_path: Path) -> None:
    """Create, use, damage, repair, change, lose the journal of, and delete a complete cluster."""
    prepare(cloud)
    parts = provider.GcpProvider.parts
    given: dict[str, Any] = {
        "zones": ("us-central1-a",),
        "capacity": "spot-first",
        "expires": later(cloud, 20),
        "budget_usd": 1e6,
    }
    lustre = {"lustre_gib": 36000}
    site = Site(cloud, tmp_path, parts=parts, **given, nodes=2, settings=lustre)
    cloud.control(apis={**APIS, "lustre.googleapis.com": False})
    reserved = {**given, "instance_types": ("a3-highgpu-8g",), "settings": {"reservation": "ours"}}
    preflight.findings(site.gcp, Site(cloud, tmp_path, parts=parts, **reserved).layout())
    rdma = {**given, "instance_types": ("a3-ultragpu-8g",), "zones": ("us-central1-b",)}
    preflight.findings(site.gcp, Site(cloud, tmp_path, parts=parts, **rdma).layout())
    assert not [found for found in preflight.credentials(site.gcp) if not found.ok]
    found = preflight.findings(site.gcp, site.layout())
    assert not [
        each
        for each in found
        if not each.ok and (each.blocks or each.check in {"node account", "end account"})
    ]
    site.up()
    told = access.of(site.layout(), site.gcp, Home(root=tmp_path / "home"), cloud.env).target
    (volume,) = [each for each in told.volumes if each["name"] == "lustre"]
    assert volume["handle"].split("/")[1] == "us-central1-a"
    assert volume["attributes"]["filesystem"] == "data"
    source = f"{site.layout().storage}/data/"
    lustre_part.fill(site.layout(), site.gcp, source, Clock.of(cloud.env))
    assert cloud.control()["lustre"]["imported"] == {lustre_part.instances(site.gcp)[0].name: [source]}
    with unlimited(cloud):
        damage(cloud, site)
    assert site.planned()
    site.up()
    assert not site.planned()
    given |= {"expires": later(cloud, 30)}
    changed = Site(cloud, tmp_path, parts=parts, **given, nodes=3, settings={**lustre, "cpu_nodes": 3})
    changed.up()
    with unlimited(cloud):
        service(cloud)
        ingress(cloud)
        claim(cloud)
    registry.login(changed.layout(), changed.gcp)
    assert unmanaged.audit(changed.gcp, None, changed.search()).unsearched == ()
    halt_as_guard(cloud, changed)
    # Another machine without the journal finds everything, and removes it.
    other = Site(cloud, tmp_path / "other", parts=parts, **given, nodes=3, settings=changed.cluster.settings)
    assert put(cloud, other.layout().bucket) == 200
    other.down()
    for driver in other.drivers.values():
        assert not driver.search(None)
    assert listed() - used(cloud) - BESIDE == set()


def later(cloud: Cloud, days: float) -> str:
    """An end in some days of the stand-in's clock."""
    moment = datetime.fromtimestamp(cloud.control()["virtual_time"], UTC) + timedelta(days=days)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def halt_as_guard(cloud: Cloud, site: Site) -> None:
    """Scale the GPU nodes to zero with the permissions of the cluster's guard, and with no others."""
    path = site.layout().cluster_path
    with unlimited(cloud):
        (binding,) = [
            each
            for each in policies.grants(site.gcp, f"projects/{PROJECT}")
            if each.title.startswith("cloudrec guard")
        ]
    assert binding.role == f"projects/{PROJECT}/roles/cloudrecGuard"
    bindings: list[dict[str, Any]] = [
        {"role": "roles/owner", "members": [OWNER]},
        {
            "role": binding.role,
            "members": [ME],
            "condition": {"title": "guard", "expression": binding.expression},
        },
    ]
    with unlimited(cloud):
        before = replace_policy(cloud, bindings)
    done = scale_to_zero.halt(site.gcp, site.title, cluster=path)
    assert (len(done.pools), done.left) == (1, ())
    with refused("PERMISSION_DENIED", "container.clusters.delete"):
        cloud.gke.delete_cluster(name=path)
    with unlimited(cloud):
        replace_policy(cloud, before)


def replace_policy(cloud: Cloud, bindings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the project's bindings; return the previous ones."""
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    wanted = {**policy, "version": 3, "bindings": bindings}
    assert cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": wanted})[0] == 200
    cloud.advance(600)
    previous: list[dict[str, Any]] = policy["bindings"]
    return previous


def damage(cloud: Cloud, site: Site) -> None:
    """Change what others can change by mistake: a firewall rule, the NAT, the bucket, its policy."""
    layout, compute = site.layout(), cloud.compute
    rule = layout.global_path("firewalls", "internal").rpartition("/")[2]
    compute("Firewalls").patch_unary(project=PROJECT, firewall=rule, firewall_resource={"disabled": True})
    router = layout.regional_path("routers").rpartition("/")[2]
    compute("Routers").patch_unary(
        project=PROJECT, region="us-central1", router=router, router_resource={"nats": []}
    )
    name = layout.regional_path("subnetworks").rpartition("/")[2]
    closed = {"private_ip_google_access": False}
    compute("Subnetworks").set_private_ip_google_access_unary(
        project=PROJECT,
        region="us-central1",
        subnetwork=name,
        subnetworks_set_private_ip_google_access_request_resource=closed,
    )
    weak = {"iamConfiguration": {"publicAccessPrevention": "inherited"}}
    assert cloud.rest("PATCH", f"/storage/v1/b/{layout.bucket}", weak)[0] == 200
    assert cloud.rest("PUT", f"/storage/v1/b/{layout.bucket}/iam", {"bindings": []})[0] == 200
    cloud.advance(60)


def put(cloud: Cloud, bucket: str) -> int:
    return cloud.rest("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=x", {})[0]


def test_the_roles_suffice_to_use_the_cluster_and_the_bucket(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server:
        announced = server._announcement
        monkeypatch.setenv("SSL_CERT_FILE", announced["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        cloud.control(kubernetes=announced)
        assert cloud.rest("POST", f"/storage/v1/b?project={PROJECT}", {"name": "theirs"})[0] == 200
        prepare(cloud)
        site = Site(cloud, tmp_path, parts=provider.GcpProvider.parts, zones=("us-central1-a",))
        site.up()
        target = access.of(site.layout(), site.gcp, Home(root=tmp_path / "home"), cloud.env).target
        with Kube.connect(target) as kube:
            until(lambda: bool(kube.list("Node")), "nodes")
            kube.list("ClusterRoleBinding")
            assert put(cloud, site.layout().bucket) == 200
            assert put(cloud, "theirs") == 403
            refuse_escalation(cloud, site)
            grant(cloud, limited=False)
            until(lambda: is_denied(kube), "the cluster refuses")
            assert put(cloud, site.layout().bucket) == 403
        grant(cloud)
        site.down()


def refuse_escalation(cloud: Cloud, site: Site) -> None:
    """What a deployer could try to get the permissions of others."""
    assert cloud.rest("PUT", "/storage/v1/b/theirs/iam", {"bindings": []})[0] == 403
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
    policy["bindings"].append({"role": "roles/editor", "members": [ME]})
    assert cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0] == 403
    config = {"machine_type": "e2-standard-4", "service_account": ME.partition(":")[2]}
    pool = {"name": "mine", "initial_node_count": 1, "config": config}
    with refused("PERMISSION_DENIED", "iam.serviceAccountUser"):
        cloud.gke.create_node_pool(parent=site.layout().cluster_path, node_pool=pool)
    theirs = f"projects/{PROJECT}/locations/us-central1-a/clusters/theirs"
    with refused("PERMISSION_DENIED", "container.clusters.delete"):
        cloud.gke.delete_cluster(name=theirs)


def is_denied(kube: Kube) -> bool:
    try:
        kube.list("Node")
    except DeniedError:
        return True
    return False


@pytest.mark.parametrize(
    ("file", "name", "holds"),
    [
        ("clusters", "projects/p/locations/l/clusters/cloudrec-t", True),
        ("clusters", "projects/p/locations/l/clusters/theirs", False),
        ("clusters", "projects/p/locations/l", False),
        ("buckets", "projects/_/buckets/cloudrec-t/objects/x", True),
        ("buckets", "projects/_/buckets/theirs/objects/cloudrec-t", False),
    ],
)
def test_role_conditions_match_only_resources_of_cloudrec(file: str, name: str, *, holds: bool) -> None:
    expression = (FOLDER / f"{file}.condition").read_text().strip()
    assert expressions.holds(expression, name=name, kind="") is holds
