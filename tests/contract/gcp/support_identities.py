"""The identities of a cluster on Google Cloud, beside what others have in the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloudrec.providers.gcp import provider
from tests.contract.gcp.support import Site
from tests.contract.gcp.support_audit import APIS, Planter
from tests.contract.gcp.test_deployer_role import (
    END,
    ME,
    NODES,
    OWNER,
    later,
    prepare,
    replace_policy,
    unlimited,
)
from tests.sandbox.gcp import support_gke
from tests.sandbox.gcp.support import PROJECT, REGION, ZONE
from tests.sandbox.gcp.support import Gcp as Cloud

THEIRS = f"theirs@{PROJECT}.iam.gserviceaccount.com"
IDENTITIES = ("deployer", "nodes", "end", "guard", "pod")
_LATEST = {"options": {"requestedPolicyVersion": 3}}


class Estate:
    """A deployer's cluster in a project with resources of others; the caller can be each identity."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        cloud.control(apis={**APIS, "workflows.googleapis.com": True})
        prepare(cloud, optional=False)
        with unlimited(cloud):
            self.planted = self._plant()
            self.state = set(cloud.state())
        given: dict[str, Any] = {"zones": (ZONE,), "expires": later(cloud, 20), "budget_usd": 1e6}
        self.site = Site(cloud, folder, parts=provider.GcpProvider.parts, **given)
        self.site.up()
        self.cluster = self.site.layout().cluster_path
        with unlimited(cloud):
            policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", _LATEST)[1]
        self.bindings: list[dict[str, Any]] = policy["bindings"]

    def _plant(self) -> dict[str, str]:
        """What another team has, path by kind."""
        cloud, front = self.cloud, f"projects/{PROJECT}"
        planter = Planter(cloud=cloud, region=REGION, title="theirs")
        planter.gke, planter.own = "gke-theirs-pool", "theirs"
        planter.own_network()
        planter.planted |= {"network": planter.network, "subnetwork of the network": planter.subnet}
        planter.all()
        planter.everywhere()
        there = f"{front}/locations/{REGION}"
        allow = [{"I_p_protocol": "tcp", "ports": ["22"]}]
        planter.insert("Firewalls", "firewall", "firewall rule", f"{front}/global",
                       network=planter.network, source_ranges=["10.0.0.0/8"], allowed=allow)  # fmt: skip
        planter.post("image repository", f"{there}/repositories/theirs",
                     f"/v1/{there}/repositories?repositoryId=theirs", format="DOCKER")  # fmt: skip
        planter.post("service account", f"{front}/serviceAccounts/{THEIRS}", f"/v1/{front}/serviceAccounts",
                     accountId="theirs")  # fmt: skip
        planter.post("role", f"{front}/roles/theirs", f"/v1/{front}/roles", roleId="theirs",
                     role={"title": "theirs", "includedPermissions": ["compute.zones.list"]})  # fmt: skip
        steps = "main:\n  steps:\n    - done:\n        return: 1\n"
        planter.post("workflow", f"{there}/workflows/theirs", f"/v1/{there}/workflows?workflowId=theirs",
                     sourceContents=steps, serviceAccount=THEIRS)  # fmt: skip
        status, _ = cloud.rest("POST", f"/upload/storage/v1/b/{planter.name}/o?uploadType=media&name=x", {})
        assert status == 200
        planter.planted["object"] = f"{planter.name}/o/x"
        support_gke.network(cloud)
        support_gke.subnetwork(cloud)
        cloud.gke.create_cluster(parent=support_gke.PARENT, cluster=support_gke.wish())
        cloud.advance(900)
        planter.planted["cluster"] = f"{support_gke.PARENT}/clusters/one"
        return planter.planted

    def become(self, who: str, *more: dict[str, Any]) -> None:
        """Give the caller the bindings of an identity in the project, and no others."""
        members = {"deployer": ME, "nodes": f"serviceAccount:{NODES}", "end": f"serviceAccount:{END}"}
        mine = [
            {**each, "members": [ME]}
            for each in self.bindings
            if (members[who] in each["members"] if who in members else _is_of(who, each))
        ]
        owner = {"role": "roles/owner", "members": [OWNER]}
        with unlimited(self.cloud):
            replace_policy(self.cloud, [owner, *mine, *more])

    def holding(self, permission: str) -> dict[str, Any]:
        """The binding of a role with one permission, which is made for it."""
        name = f"mutant{''.join(each.title() for each in permission.split('.'))}"
        role = {"title": name, "includedPermissions": [permission]}
        with unlimited(self.cloud):
            status, answer = self.cloud.rest(
                "POST", f"/v1/projects/{PROJECT}/roles", {"roleId": name, "role": role}
            )
        assert status in (200, 409), answer
        return {"role": f"projects/{PROJECT}/roles/{name}", "members": [ME]}

    def held(self, asked: list[str], resource: str = f"projects/{PROJECT}") -> set[str]:
        """Which of these permissions the caller has on a resource, by testIamPermissions."""
        version = "v3" if resource == f"projects/{PROJECT}" else "v1"
        status, answer = self.cloud.rest(
            "POST", f"/{version}/{resource}:testIamPermissions", {"permissions": asked}
        )
        assert status == 200, answer
        return set(answer.get("permissions", []))


def _is_of(who: str, binding: dict[str, Any]) -> bool:
    title = str(binding.get("condition", {}).get("title", ""))
    return who == "guard" and title.startswith("cloudrec guard")
