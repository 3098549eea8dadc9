"""GKE's pools of nodes. Asking for one succeeds at once; whether there is capacity shows later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours, name_of, needed
from cloudrec.cloud.offers import ON_DEMAND, SPOT
from cloudrec.engine.graph import TAG_KEY, Condition, Difference, Observed, Verdict
from cloudrec.errors import NoCapacityError
from cloudrec.providers.gcp import cpu_nodes, gke, ids, labels, network, pool_model, prices
from cloudrec.providers.gcp.cpu_nodes import CPU
from cloudrec.providers.gcp.gke import CLUSTER
from cloudrec.providers.gcp.identity import ACCOUNT
from cloudrec.providers.gcp.offers import FLEX, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.gke import Step

GPU = "gpu-nodes"
_OURS = "cloud.google.com/"  # what labels and taints begin with that GKE gives by itself
_LACKING = frozenset({Condition.FAILED, Condition.UNAVAILABLE})


class _PoolDriver(gke.GkeDriver):
    """Handles pools, of one of the two kinds."""

    changeable = frozenset({"state", "nodes", "labels", "taints", "version"})
    deadline_s = 3600.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List those of this kind, in our clusters."""
        return [
            self.observe(f"{self.path(row)}/nodePools/{pool.name}", pool)
            for row in self.clusters(cluster)
            for pool in row.node_pools
            if self._is_of_this_kind(pool, cluster)
        ]

    def _is_of_this_kind(self, pool: Any, cluster: str | None) -> bool:  # noqa: ANN401 - the SDK's message
        tags = labels.decode(pool.config.resource_labels)
        return is_ours(tags, cluster) and tags.get(TAG_KEY, "").partition("/")[0] == self.kind

    def fetch(self, resource: Resource) -> Observed | None:
        """Look the name up."""
        path = resource.properties["path"]
        row = self.gcp.get(self.gke.get_node_pool, name=path)
        return None if row is None else self.observe(path, row)

    def find(self, resource: Resource) -> Observed | None:
        """Look it up; one with nodes that run is put right in place, and never replaced."""
        seen = self.fetch(resource)
        if seen is not None and seen.identity in self._changes:
            condition, reason = gke.GkeDriver.condition(self, self.kind, seen.identity)
            if condition is Condition.GONE:
                return None
            seen = replace(seen, condition=condition, reason=reason)
        if seen is None or seen.condition not in _LACKING or not self.is_of_use(seen.identity):
            return seen
        self.forget(seen.identity)  # what a change that failed should have led to is seen to differ
        return replace(seen, condition=Condition.READY)

    def is_of_use(self, identity: str) -> bool:
        """Tell whether a pool with a problem has nodes that run."""
        read = self.gcp.compute("instance_groups").get
        groups = [
            self.gcp.get(read, **ids.arguments(group.instance_group))
            for group in self.groups(self.row(identity))
        ]
        return any(group is not None and group.size for group in groups)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Describe it."""
        return self.told_by(self.row(identity))

    def row(self, identity: str) -> Any:  # noqa: ANN401 - the SDK's message
        """Describe a pool; Google's own error where it is not there."""
        return self.gcp.read(self.gke.get_node_pool, name=identity)

    def groups(self, row: Any) -> list[Any]:  # noqa: ANN401 - the SDK's messages
        """Return the groups of machines that a pool consists of, one a zone: they alone know its size."""
        read = self.gcp.compute("instance_group_managers").get
        found = [self.gcp.get(read, **ids.arguments(url)) for url in row.instance_group_urls]
        return [group for group in found if group is not None]

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare; a version that is later than the wanted one is as wanted."""
        wanted, there = resource.properties.get("version"), observed.properties
        if wanted and gke.agrees(there["version"], wanted):
            observed = replace(observed, properties={**there, "version": wanted})
        return super().difference(resource, observed)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Begin the changes that are missing, one after another: GKE makes one at a time."""
        del identities
        asked, identity = resource.properties, observed.identity
        there = self.properties(self.row(identity))
        update = self.gke.update_node_pool
        steps: list[Step] = []
        if asked["labels"] != there["labels"]:
            steps.append(self.asked(update, name=identity, labels={"labels": dict(asked["labels"])}))
        if asked["taints"] != there["taints"]:
            taints = pool_model.taints(asked["taints"])
            steps.append(self.asked(update, name=identity, taints={"taints": taints}))
        if "version" in asked and not gke.agrees(there["version"], asked["version"]):
            steps.append(self.asked(update, name=identity, node_version=asked["version"]))
        # Asked for its size once more, GKE looks again for the nodes that it did not find.
        if asked["nodes"] != there["nodes"] or (not steps and there["state"] != gke.RUNNING):
            steps.append(self.resized(identity, asked))
        if steps:
            self.begin_all(identity, steps)

    def resized(self, identity: str, asked: Mapping[str, Any]) -> Step:
        """Return the step that brings a pool to its size."""
        return self.asked(self.gke.set_node_pool_size, name=identity, node_count=asked["nodes"])

    def remove(self, observed: Observed) -> None:
        """Delete it, whatever runs there."""
        if not self.is_leaving(observed.identity):
            self.withdraw(observed.identity)

    def withdraw(self, identity: str) -> None:
        """Begin its removal."""
        self._steps.pop(identity, None)
        self.begin(identity, self.asked(self.gke.delete_node_pool, name=identity), is_removal=True)

    def properties(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell what it is like."""
        config = row.config
        return {
            "pool": row.name,
            "state": row.status.name if row.status.name in gke.IMPAIRED | {"ERROR"} else gke.RUNNING,
            "instance_type": config.machine_type,
            "nodes": self.size(row),
            "labels": {name: value for name, value in config.labels.items() if not name.startswith(_OURS)},
            "taints": [
                f"{taint.key}={taint.value}:{taint.effect.name}"
                for taint in config.taints
                if not taint.key.startswith(_OURS)
            ],
            "version": row.version,
        }

    def size(self, row: Any) -> int:  # noqa: ANN401 - the SDK's message
        """Tell how many nodes it has, or is to have, in each zone."""
        sizes = [int(group.target_size) for group in self.groups(row)]
        return sum(sizes) // max(len(row.instance_group_urls), 1)

    def hourly_usd(self, of: Mapping[str, Any], row: Any) -> float:  # noqa: ANN401 - the SDK's message
        """Tell what its nodes cost."""
        return prices.nodes(
            self.gcp.prices,
            of["instance_type"],
            of.get("market", ON_DEMAND),
            of["nodes"] * len(row.locations),
        )

    def observe(self, identity: str, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        """Tell of a pool what the engine wants to know."""
        tags = labels.decode(row.config.resource_labels)
        condition, reason = self.told_by(row)
        of = self.properties(row)
        return Observed(
            kind=self.kind,
            name=name_of(tags, row.name),
            identity=identity,
            condition=condition,
            properties=of,
            tags=tags,
            hourly_usd=self.hourly_usd(of, row),
            reason=reason,
            location=gke.region_of(ids.location(identity)),
        )


class CpuNodesDriver(_PoolDriver):
    """Handles the pool for what is no training, which the cluster is born with."""

    kind = CPU

    def is_of_use(self, identity: str) -> bool:
        """Tell whether it has nodes that run, or GPU nodes stand beside it: those must not lose it."""
        listed = self.gcp.read(self.gke.list_node_pools, parent=identity.rpartition("/nodePools/")[0])
        return len(listed.node_pools) > 1 or super().is_of_use(identity)

    def fetch(self, resource: Resource) -> Observed | None:
        """Look the name up; where the cluster is elsewhere than it should be, so is the pool."""
        return super().fetch(resource) or gke.GkeDriver.fetch(self, resource)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come; there is no other place to try."""
        condition, reason = super().condition(kind, identity)
        return (Condition.FAILED if condition is Condition.UNAVAILABLE else condition), reason

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Take the pool that the cluster was born with; ask for one where it has gone."""
        del token
        asked = resource.properties
        path = asked["path"]
        if self.fetch(resource) is not None:
            return str(path)
        account = ids.name(needed(resource, identities, ACCOUNT))
        given = {"properties": asked, "labels": labels.encode(resource.tags)}
        pool = cpu_nodes.body_of(given, account)
        parent = needed(resource, identities, CLUSTER)
        return self.begin_once(path, self.asked(self.gke.create_node_pool, parent=parent, node_pool=pool))


class GpuNodesDriver(_PoolDriver):
    """Handles the pools that train.

    One is made without nodes and then resized. Where that finds no capacity, or takes longer than the way of
    having nodes is worth waiting for, it is removed at once: its machines would be looked for on and on, and
    found when others serve.
    """

    kind = GPU

    def __init__(self, gcp: Gcp) -> None:
        super().__init__(gcp)
        self._until: dict[str, float] = {}  # until when what is tried is waited for, by identity

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Ask for the pool."""
        del token
        asked, path = resource.properties, resource.properties["path"]
        parent = needed(resource, identities, CLUSTER)
        pool = pool_model.gpu(
            asked,
            labels=labels.encode(resource.tags),
            service_account=ids.name(needed(resource, identities, ACCOUNT)),
            networks=_networks(resource, identities),
            version=self.gcp.read(self.gke.get_cluster, name=parent).current_master_version,
        )
        self.begin_once(path, self.asked(self.gke.create_node_pool, parent=parent, node_pool=pool))
        if asked["market"] != FLEX:
            self._steps[path] = [self.resized(path, asked)]
            self._until[path] = self.gcp.clock.now() + self.gcp.clock.limit(asked["patience_s"])
        return str(path)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell how far it has come; what is tried in vain goes, so that the next can be tried.

        Raises:
            NoCapacityError: it was to grow, and cannot; the nodes that it has are kept.
        """
        condition, reason = super().condition(kind, identity)
        until = self._until.get(identity)
        if until is None:
            if condition is Condition.UNAVAILABLE and self.is_of_use(identity):
                raise NoCapacityError(
                    f"{ids.name(identity)} keeps the nodes that it has, and no more can be had: {reason}",
                    remedy="`cloudrec up` again once there are more; or ask for as many as there were",
                )
            return condition, reason
        if condition is Condition.PENDING:
            condition, reason = self._patience(identity, until)
        if condition is Condition.UNAVAILABLE:
            self._give_up(identity)
        if condition is not Condition.PENDING:
            self._until.pop(identity, None)
        return condition, reason

    def _patience(self, identity: str, until: float) -> tuple[Condition, str]:
        """Tell whether to wait on for nodes, or that it is of no use."""
        is_late = self.gcp.clock.now() >= until
        row = self.gcp.get(self.gke.get_node_pool, name=identity)
        if row is not None and (lacking := gke.shortage(row)):
            return Condition.UNAVAILABLE, lacking
        if is_late:
            return Condition.UNAVAILABLE, "Google has not found the nodes in the time that is allowed for it"
        return Condition.PENDING, ""

    def _give_up(self, identity: str) -> None:
        """Remove it, if GKE does not refuse since it still looks for the nodes; then it goes later."""
        try:
            self.withdraw(identity)
        except self.refusals as error:
            if self.verdict(error) not in {Verdict.RETRY, Verdict.LOST} and not self.is_absent(error):
                raise

    def resized(self, identity: str, asked: Mapping[str, Any]) -> Step:
        """Return the step that brings a pool to its size; of flex-start, to its largest."""
        if asked["market"] != FLEX:
            return super().resized(identity, asked)
        scaling = pool_model.autoscaling(asked["nodes"])
        return self.asked(self.gke.set_node_pool_autoscaling, name=identity, autoscaling=scaling)

    def size(self, row: Any) -> int:  # noqa: ANN401 - the SDK's message
        """Tell how many nodes it is to have; of flex-start, at most."""
        return int(row.autoscaling.total_max_node_count) if row.config.flex_start else super().size(row)

    def properties(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell its market and zone too."""
        return {**super().properties(row), "market": _market(row), "zone": "".join(row.locations)}

    def hourly_usd(self, of: Mapping[str, Any], row: Any) -> float:  # noqa: ANN401 - the SDK's message
        """Tell what its nodes cost; of flex-start, those that are there."""
        there = {**of, "nodes": super().size(row)} if of["market"] == FLEX else of
        return super().hourly_usd(there, row)


def _networks(resource: Resource, identities: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return network and subnetwork of each card for the GPUs alone, in the cards' order."""
    of_kind = {
        kind: {key: identities[key] for key in resource.needs if key.startswith(f"{kind}/") and "-gpu" in key}
        for kind in (network.NETWORK, network.SUBNET)
    }
    networks, subnetworks = of_kind[network.NETWORK], of_kind[network.SUBNET]
    return list(zip(networks.values(), subnetworks.values(), strict=True))


def _market(row: Any) -> str:  # noqa: ANN401 - the SDK's message
    config = row.config
    if config.flex_start:
        return FLEX
    if config.spot:
        return SPOT
    return RESERVED if list(config.reservation_affinity.values) else ON_DEMAND
