"""Shared helpers of the Google Cloud provider's tests, which run against the stand-in.

The tests of the network side run the engine without the cluster's resources, so that no test waits for GKE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudrec.engine.apply import apply
from cloudrec.engine.clock import Clock
from cloudrec.engine.context import Context
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Graph, Observed, Resource
from cloudrec.engine.journal import Journal
from cloudrec.engine.plan import Action, Plan, merge
from cloudrec.engine.plan import plan as make_plan
from cloudrec.providers.base.cloud import ProviderPart
from cloudrec.providers.base.driver import CloudDriver, search_all
from cloudrec.providers.gcp import offers, prices, zones
from cloudrec.providers.gcp.api import apis
from cloudrec.providers.gcp.api.client import Gcp
from cloudrec.providers.gcp.cleanup import leftovers
from cloudrec.providers.gcp.cluster import cluster
from cloudrec.providers.gcp.identity import ending, identity, prepared
from cloudrec.providers.gcp.layout import GcpLayout
from cloudrec.providers.gcp.network import firewall, nat, network, placement
from cloudrec.providers.gcp.nodes import end_schedule, nodes
from cloudrec.providers.gcp.settings import settings_of
from cloudrec.providers.gcp.storage import storage
from cloudrec.spec.models import ClusterSpec
from tests.sandbox.gcp.support import Gcp as Cloud
from tests.unit.providers_gcp.support import PARTS

SPEED = 600.0  # of the stand-in's clock; a wait takes a tenth of a second
SETTLE_S = 5.0
# The cluster's resources, and the network resources that they need.
WHOLE = (
    apis,
    network,
    nat,
    firewall,
    identity,
    leftovers,
    cluster,
    ending,
    end_schedule,
    placement,
    nodes,
)


def fresh(cloud: Cloud, **control: Any) -> None:
    """Reset to an empty project, where operations take seconds."""
    cloud.control(reset=True)
    cloud.env["CLOUDREC_SANDBOX_SPEED"] = str(SPEED)
    cloud.control(speed=SPEED, durations={"*": 5}, **control, quotas={"global/GPUS_ALL_REGIONS": 500})


def whole(cloud: Cloud, folder: Path, **given: Any) -> Site:
    """A cluster with its nodes and its network."""
    return Site(cloud, folder, parts=WHOLE, **given)


class Site:
    """One home, one project on the stand-in, and a cluster with some of its resources."""

    def __init__(
        self,
        cloud: Cloud,
        folder: Path,
        *,
        parts: Sequence[ProviderPart[Gcp, GcpLayout]] = PARTS,
        **spec: Any,
    ) -> None:
        self.cloud = cloud
        self.parts = parts
        given: dict[str, Any] = {"name": "t", "provider": "gcp", "owner": "tester", "nodes": 1, **spec}
        self.cluster = ClusterSpec.model_validate(given)
        self.title = self.cluster.title
        self.gcp = Gcp(cloud.env)
        self.gcp.prices = prices.shipped().within(self.gcp.given_region)  # as the provider does
        self.journal = Journal(folder / "home" / "journal.sqlite")
        self.drivers: Mapping[str, CloudDriver] = {
            kind: driver for part in parts for kind, driver in part.drivers(self.gcp).items()
        }

    def layout(self) -> GcpLayout:
        types = offers.types_of(self.cluster)
        chosen = zones.choose(self.gcp, self.cluster, types)
        has = prepared.find(self.gcp, self.title)
        return GcpLayout(
            cluster=self.cluster,
            settings=settings_of(self.cluster),
            region=self.gcp.region,
            project=self.gcp.project,
            number=self.gcp.number,
            home_zone=chosen.home,
            gpu_zones=chosen.gpu,
            instance_types=types,
            hardware=offers.with_ssds(
                offers.hardware_of(types, self.gcp.region, self.gcp.machine_type),
                settings_of(self.cluster).local_ssds,
            ),
            offered=zones.offering(self.gcp, types),
            prices=prices.shipped(),
            shared_account=has.node_account,
            guard_role=has.guard_role,
            shared_end=prepared.end_account(self.gcp, self.title) if self.cluster.expires else "",
            starter_role=prepared.starter_role(self.gcp) if self.cluster.has_movable_end else "",
        )

    def graph(self) -> Graph:
        layout = self.layout()
        described = [resource for part in self.parts for resource in part.resources(layout)]
        # The workload identity pool exists only once the project has a cluster.
        resources = [one for one in described if cluster in self.parts or one.kind != storage.BINDING]
        keys = {resource.key for resource in resources}

        def within(one: Resource) -> Resource:
            kept = tuple(need for need in one.needs if need in keys)
            return replace(one, needs=kept, candidates=tuple(within(each) for each in one.candidates))

        return Graph.of(within(resource) for resource in resources)

    def context(self) -> Context:
        return Context(journal=self.journal, drivers=self.drivers, clock=Clock.of(self.cloud.env))

    def plan(self) -> Plan:
        return make_plan(
            self.title,
            self.graph(),
            self.context(),
            known=self.journal.known(self.title),
            searched=self.search(),
            settle_s=SETTLE_S,
        )

    def up(self) -> Plan:
        plan = self.plan()
        apply(plan, self.graph(), self.context(), settle_s=SETTLE_S)
        return plan

    def planned(self) -> dict[str, Action]:
        """The changes that `up` plans, by key."""
        return {action.key: action for action in self.plan().changes}

    def down(self, *, keep_data: bool = False) -> None:
        existing = merge(self.journal.known(self.title), self.search())
        destroy(
            plan_removal(self.title, existing, keep_data=keep_data),
            self.graph(),
            self.context(),
            self.search,
            kinds={kind: needs for part in self.parts for kind, needs in part.KINDS.items()},
            settle_s=SETTLE_S,
        )

    def search(self) -> Sequence[Observed]:
        return search_all(self.drivers.values(), self.title)

    def found(self) -> dict[str, Observed]:
        """The resources that a search by label, description and name finds, by key."""
        return {seen.key: seen for seen in self.search()}

    def changes(self, since: int = 0) -> list[str]:
        """The changing calls that the stand-in received."""
        return [f"{call['service']}:{call['action']}" for call in self.cloud.changing(since)]
