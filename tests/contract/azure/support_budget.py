"""A cluster with a budget on linked stand-ins of Azure and Kubernetes, whose time passes by order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.graph import TAG_EXPIRES
from cloudrec.keeper.guard import Guard, halting, moving, pricing
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.azure.api import ids
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Cloud, until
from tests.contract.azure.support import Site
from tests.contract.support_time import same_time, take_over_guard
from tests.sandbox.azure.support import Azure

ROUND_S = 300.0  # the guard's rounds here; in a cluster they are two minutes apart
HOUR = 3600.0
NODES = 2
LONGEST = 60 * HOUR
CLUSTER = "cloudrec-t"


def guard_keys(azure: Azure, site: Site) -> dict[str, str]:
    """The environment of the guard's identity, with a secret in place of its pod's token."""
    identities = site.sdk.managedidentity.user_assigned_identities
    row: Any = identities.get(CLUSTER, f"{CLUSTER}-guard")
    azure.control(clients={row.client_id: {"secret": "guard", "object_id": row.principal_id}})
    environment = site.provider.guard(site.cluster).environment
    return {"AZURE_CLIENT_ID": row.client_id, "AZURE_CLIENT_SECRET": "guard", **environment}


def workflow_id(site: Site) -> str:
    return ids.resource(site.sdk.subscription, CLUSTER, "Microsoft.Logic/workflows", CLUSTER)


def kept_end(site: Site) -> str:
    """The end in the tag of the workflow."""
    found: Any = site.sdk.resources.tags.get_at_scope(workflow_id(site))
    return str(found.properties.tags[TAG_EXPIRES])


def definition(site: Site) -> dict[str, Any]:
    row = site.sdk.resources.resources.get_by_id(workflow_id(site), api_version="2019-05-01").as_dict()
    found: dict[str, Any] = row["properties"]["definition"]
    return found


def gpu_pools(site: Site) -> list[Any]:
    rows = site.sdk.containerservice.agent_pools.list(CLUSTER, CLUSTER)
    return [row for row in rows if row.name.startswith("gpu")]


def gpu_nodes(site: Site) -> int:
    """The nodes of the pools of GPU nodes."""
    return sum(row.count or 0 for row in gpu_pools(site))


@dataclass
class Trace:
    """A cluster with a budget, and what happens to it."""

    azure: Azure
    server: Cloud
    site: Site
    kube: Kube
    namespace: str
    guard: dict[str, str]  # the credentials of the guard's identity
    ahead: float  # seconds by which the stand-ins' clocks were ahead of the real time at the beginning
    passed: float = 0.0
    said: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead + self.passed)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.site.home, environment=self.azure.env, now=self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass in both stand-ins, and wait until the nodes are those that Azure has."""
        self.passed += seconds
        self.azure.control(advance_s=seconds)
        self.server.control(advance_s=seconds)
        until(lambda: len(self.nodes()) == gpu_nodes(self.site), "the nodes are Azure's")

    def nodes(self) -> list[dict[str, Any]]:
        return self.kube.list("Node", labels="cloudrec.io/nodes=gpu")

    def round(self) -> str:
        said: list[str] = []
        environment = {**self.azure.env, **self.guard}
        guard = Guard(
            kube=self.kube,
            namespace=self.namespace,
            halt=halting(self.site.home.root, environment),
            pricer=pricing(self.site.home.root, environment),
            mover=moving(self.site.home.root, environment),
            now=self.now,
            report=said.append,
        )
        self.azure.control(enforce_iam=True)
        guard.round()
        self.azure.control(enforce_iam=False)
        return "\n".join(said)

    def scale(self, count: int) -> None:
        """Let the pool have this many nodes, as Azure does when it takes them back and has them again."""
        (row,) = gpu_pools(self.site)
        until(self._is_idle, "the pool is idle")
        row.properties.count = count
        pools = self.site.sdk.containerservice.agent_pools
        pools.begin_create_or_update(CLUSTER, CLUSTER, row.name, row, polling=False)
        until(self._is_idle, "the pool is idle")
        until(lambda: len(self.nodes()) == count, f"{count} nodes")

    def _is_idle(self) -> bool:
        self.advance(1)  # nodes register soon after their start, not after a whole round
        return all(str(row.provisioning_state) == "Succeeded" for row in gpu_pools(self.site))

    def price(self, factor: float) -> None:
        """Let spot nodes cost this part of the on-demand price from now on."""
        self.azure.control(spot_price_factor={"*": factor})

    def billed(self) -> float:
        return float(self.azure.ask("GET", "/bill")["usd"])

    def end_in_azure(self) -> str:
        return kept_end(self.site)


@contextmanager
def begun(azure: Azure, server: Cloud, folder: Path, **cluster: Any) -> Iterator[Trace]:
    """Make a cluster with a budget; its time is virtual from its creation on."""
    site = Site(azure, folder, **{"nodes": NODES, "access": "auto", **cluster})
    azure.control(bill=True)
    ahead = same_time(azure, server)
    application = AppContext(
        home=site.home,
        environment=azure.env,
        now=lambda: datetime.now(UTC) + timedelta(seconds=ahead),
    )
    app.up(application, site.cluster, decide=lambda _plan: True)
    access = site.provider.access(site.cluster)
    assert isinstance(access, KubernetesAccess)
    with Kube.connect(access.target) as kube:
        trace = Trace(azure, server, site, kube, access.target.namespace, guard_keys(azure, site), ahead)
        take_over_guard(server, kube, access.target.namespace)
        trace.advance(60)  # role assignments have taken effect
        yield trace


def at(trace: Trace, events: dict[float, Callable[[], object]]) -> float:
    """Make the guard's rounds and what happens at certain hours, until there are neither nodes nor events."""
    waiting = sorted(events.items())
    while trace.passed < LONGEST:
        trace.advance(ROUND_S)
        while waiting and trace.passed >= waiting[0][0] * HOUR:
            waiting.pop(0)[1]()
        said = trace.round()
        assert "the cloud still ends" not in said
        assert "the spot prices are those of before" not in said
        if not waiting and "its nodes go" in said:
            trace.advance(60)
        if not waiting and not gpu_nodes(trace.site):
            billed, budget = trace.billed(), trace.site.cluster.budget_usd
            print(f"budget ${budget:g}: bill ${billed:.2f} after {trace.passed / HOUR:.2f} h")
            return billed
    raise AssertionError(f"{trace.passed / HOUR:.1f} h, ${trace.billed():.2f}")


def plan_changes(application: AppContext, cluster: Any) -> list[str]:
    """The keys that another `up` would change."""
    plan = app.up(application, cluster, decide=lambda _plan: False)
    return [action.key for action in plan.changes]
