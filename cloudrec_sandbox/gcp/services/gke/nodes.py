"""The machines of a node pool: what GKE makes in Compute for it, and why that can fail."""

from __future__ import annotations

import secrets
import zlib
from typing import TYPE_CHECKING, Any

from google.cloud.container_v1.types import NodePool

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.registry import durations
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute.capacity import catalogue, machines
from cloudrec_sandbox.gcp.services.gke import machine, network
from cloudrec_sandbox.gcp.services.gke.machine import Zone
from cloudrec_sandbox.gcp.services.gke.operations import Trouble
from cloudrec_sandbox.gcp.services.gke.state import Gke
from cloudrec_sandbox.gcp.services.iam import accounts

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource
    from cloudrec_sandbox.gcp.services.compute.capacity.machines import Shortage
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState, PoolState

# A managed instance group never stops trying; this is how often it tries again.
durations({"gke-group-retry": 300})

_DISK_GB = 100
_CODES = {"GCE_STOCKOUT": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "GCE_QUOTA_EXCEEDED": "QUOTA_EXCEEDED"}
_SSD_RESERVED_GIB = {1: 50.0, 2: 75.0}  # by the number of local SSDs; 100 for three and more


def zones(cluster: ClusterState, pool: PoolState) -> list[str]:
    """Return the zones of a pool's machines."""
    return list(pool.message.locations) or list(cluster.message.locations)


def make_groups(world: World, cluster: ClusterState, pool: PoolState) -> None:
    """Make an instance template, and an empty managed group in each of the pool's zones that has none yet."""
    for zone in zones(cluster, pool):
        if zone in pool.groups:
            continue
        mark = f"{zlib.crc32(f'{cluster.message.id}/{pool.name}/{zone}'.encode()):08x}"
        base = f"gke-{cluster.name[:20].rstrip('-')}-{pool.name[:18].rstrip('-')}-{mark}"
        front = f"projects/{cluster.project}/zones/{zone}"
        place = Zone(cluster, pool, zone, f"{front}/instanceGroupManagers/{base}-grp")
        pool.groups[zone] = place.group
        template = f"projects/{cluster.project}/global/instanceTemplates/{base}"
        _put(world, "instanceTemplates", template, {"properties": machine.document(world, place)})
        group = {"zone": store.link(front), "network": store.link(cluster.network), "size": 0}
        _put(world, "instanceGroups", f"{front}/instanceGroups/{base}-grp", group)
        manager = {
            "baseInstanceName": base,
            "instanceTemplate": store.link(template),
            "instanceGroup": store.link(f"{front}/instanceGroups/{base}-grp"),
            "zone": store.link(front),
        }
        _put(world, "instanceGroupManagers", place.group, manager)
        _show(world, place, None)
    pool.message.instance_group_urls = [store.link(pool.groups[zone]) for zone in sorted(pool.groups)]


def _put(world: World, kind: str, path: str, document: dict[str, Any]) -> Resource:
    singular = kind.removesuffix("s")
    document = store.identify(world, document, path, f"compute#{singular}")
    return store.add(world, "compute", kind, path, document)


def machines_of(world: World, pool: PoolState) -> list[Resource]:
    """Return the machines that exist."""
    return [each for group in pool.groups.values() for each in _machines(world, group)]


def _machines(world: World, group: str) -> list[Resource]:
    front, _, name = group.partition("/instanceGroupManagers/")
    return store.within(world, "compute", f"{front}/instances/{name.removesuffix('-grp')}-", "instances")


def fill(world: World, cluster: ClusterState, pool: PoolState) -> Trouble | None:
    """Bring each zone to the wanted number of machines, or close to it; return the trouble, if any."""
    trouble = None
    for zone in sorted(pool.groups):
        place = Zone(cluster, pool, zone, pool.groups[zone])
        trouble = _fill_zone(world, place) or trouble
    return trouble


def _fill_zone(world: World, place: Zone) -> Trouble | None:
    have, want = len(_machines(world, place.group)), place.pool.wanted
    trouble = _obstacle(world, place, want - have) if want > have else None
    if not trouble and want != have:
        trouble = _claim(world, place, have)
    _show(world, place, trouble)
    return trouble


def announce(world: World, cluster: ClusterState, pool: PoolState) -> None:
    """Show the wanted number of machines in the groups, before any machine comes or goes."""
    for zone, group in pool.groups.items():
        _show(world, Zone(cluster, pool, zone, group), None)


def _show(world: World, place: Zone, trouble: Trouble | None) -> None:
    """Let the group report its size, what it still tries to do, and why that failed."""
    manager = store.need(world, "compute", place.group)
    size, want = len(_machines(world, place.group)), place.pool.wanted
    manager.document |= {
        "targetSize": want,
        "status": {"isStable": size == want},
        "currentActions": {"none": size, "creating": max(want - size, 0), "deleting": 0, "recreating": 0},
    }
    manager.hidden["errors"] = [_error(world, place, trouble)] if trouble else []
    group = store.need(world, "compute", store.path_of(manager.document["instanceGroup"]))
    group.document["size"] = size


def _error(world: World, place: Zone, trouble: Trouble) -> dict[str, Any]:
    """Return an error of the group by google-cloud-compute's InstanceManagedByIgmError."""
    front = f"projects/{place.cluster.project}/zones/{place.zone}"
    name = trouble.message.split("'")[1]
    return {
        "error": {"code": _CODES.get(trouble.condition, "UNKNOWN"), "message": trouble.message},
        "instanceActionDetails": {
            "action": "CREATING",
            "instance": store.link(f"{front}/instances/{name}"),
        },
        "timestamp": as_datetime(world.now()).isoformat(timespec="milliseconds"),
    }


def _claim(world: World, place: Zone, have: int) -> Trouble | None:
    """Claim as many machines as are available, or with compact placement all or none."""
    want, trouble = place.pool.wanted, None
    compact = place.pool.message.placement_policy.type_ == NodePool.PlacementPolicy.Type.COMPACT
    # A managed group takes what is available; with compact placement Compute starts all machines or none.
    for count in (want,) if compact or want < have else range(want, have, -1):
        shortage = _ask(world, place, count)
        if shortage is None:
            _resize(world, place, count)
            return trouble
        trouble = trouble or _trouble(place, shortage)
    return trouble


def _ask(world: World, place: Zone, count: int) -> Shortage | None:
    config = place.pool.message.config
    affinity = config.reservation_affinity
    return machines.claim(
        world,
        place.group,
        project=place.cluster.project,
        zone=place.zone,
        machine_type=config.machine_type,
        spot=machine.market(place.pool.message) == "spot",
        count=count,
        local_ssds=local_ssds(place.pool.message),
        disk_type=config.disk_type or "pd-balanced",
        disk_gb=config.disk_size_gb or _DISK_GB,
        reservation=affinity.values[0] if affinity.values else "",
        flex_start=machine.market(place.pool.message) == "flex-start",
    )


def local_ssds(pool: NodePool) -> int:
    """Return how many local SSDs a machine is to have."""
    config = pool.config
    return int(
        config.local_ssd_count
        or config.ephemeral_storage_local_ssd_config.local_ssd_count
        or config.local_nvme_ssd_block_config.local_ssd_count
    )


def ephemeral_gib(pool: NodePool) -> int:
    """Return the GiB of ephemeral storage that pods can request on a node of a pool.

    GKE keeps 10% of it for evictions, and a reservation: for local SSDs 50, 75 or 100 GiB by their number,
    for a boot disk the least of its half, of 6 GiB and 35% of it, and of 100 GiB ("Ephemeral storage on local
    SSDs" and "... on the boot disk" of "Plan GKE Standard node sizes", GKE's documentation).
    """
    count = int(pool.config.ephemeral_storage_local_ssd_config.local_ssd_count)
    machine_type = catalogue.MACHINES.get(pool.config.machine_type)
    if not count and machine_type is not None and machine_type.accelerator:
        count = 0 if pool.config.local_nvme_ssd_block_config.local_ssd_count else machine_type.local_ssds
    if count:
        total, reserved = 375.0 * count, _SSD_RESERVED_GIB.get(count, 100.0)
    else:
        total = float(pool.config.disk_size_gb or _DISK_GB)
        reserved = min(total / 2, 6 + 0.35 * total, 100.0)
    return int(total - reserved - total / 10)


def _trouble(place: Zone, shortage: Shortage) -> Trouble:
    condition = "GCE_QUOTA_EXCEEDED" if shortage.kind == "quota" else "GCE_STOCKOUT"
    return _not_created(place, condition, shortage.message)


def _obstacle(world: World, place: Zone, more: int) -> Trouble | None:
    """Return what prevents that many more machines, besides capacity: addresses or the service account."""
    pool, cluster = place.pool.message, place.cluster
    email = pool.config.service_account
    if email not in ("", "default") and not accounts.usable(world, email):
        text = f"The resource 'projects/{cluster.project}/serviceAccounts/{email}' was not found."
        return _not_created(place, "UNKNOWN", text, "NOT_FOUND")
    nodes = more + sum(len(machines_of(world, each)) for each in cluster.pools.values())
    if not network.pods_fit(world, cluster, nodes, pool.max_pods_constraint.max_pods_per_node):
        name = cluster.message.ip_allocation_policy.cluster_secondary_range_name
        text = f"[IP_SPACE_EXHAUSTED_WITH_DETAILS]: IP space of '{cluster.subnetwork}-{name}' is exhausted."
        return _not_created(place, "UNKNOWN", f"{text} The secondary range is '{name}'.")
    for _, subnet in machine.networks(place):
        if not network.fits(world, subnet, more):
            text = f"[IP_SPACE_EXHAUSTED]: IP space of '{subnet}' is exhausted."
            return _not_created(place, "UNKNOWN", text)
    return None


def _not_created(place: Zone, condition: str, why: str, code: str = "RESOURCE_EXHAUSTED") -> Trouble:
    name = f"{place.base}-{secrets.token_hex(2)}"
    return Trouble(condition, f"Instance '{name}' creation failed: {why}", code)


def lose(world: World, place: Zone, gone: Resource) -> None:
    """End a machine of a group that wants it, and keep its name for the one that replaces it."""
    _forget(world, gone)
    place.pool.lost.setdefault(place.group, []).append(gone.path.rpartition("/")[2])
    _ask(world, place, len(_machines(world, place.group)))
    _show(world, place, None)


def _resize(world: World, place: Zone, count: int) -> None:
    known = _machines(world, place.group)
    for surplus in known[count:]:
        _forget(world, surplus)
    for _ in range(count - len(known)):
        _start(world, place)


def _start(world: World, place: Zone) -> None:
    front = f"projects/{place.cluster.project}/zones/{place.zone}"
    lost = place.pool.lost.get(place.group)
    name = lost.pop(0) if lost else f"{place.base}-{secrets.token_hex(2)}"
    config = place.pool.message.config
    document = machine.document(world, place, addresses=True)
    disk = {
        "sizeGb": str(config.disk_size_gb or _DISK_GB),
        "type": store.link(f"{front}/diskTypes/{config.disk_type or 'pd-balanced'}"),
        "zone": store.link(front),
        "status": "READY",
        "labels": dict(document["labels"]),
        "users": [store.link(f"{front}/instances/{name}")],
    }
    _put(world, "disks", f"{front}/disks/{name}", disk)
    boot = {"source": store.link(f"{front}/disks/{name}"), "boot": True, "autoDelete": True}
    document |= {
        "zone": store.link(front),
        "machineType": store.link(f"{front}/machineTypes/{document['machineType']}"),
        "status": "RUNNING",
        "disks": [{**boot, "type": "PERSISTENT", "mode": "READ_WRITE", "deviceName": "persistent-disk-0"}],
    }
    document["metadata"]["items"].append({"key": "created-by", "value": place.group})
    _put(world, "instances", f"{front}/instances/{name}", document)


def _forget(world: World, gone: Resource) -> None:
    store.remove(world, "compute", gone.path.replace("/instances/", "/disks/"))
    store.remove(world, "compute", gone.path)


def empty(world: World, pool: PoolState) -> None:
    """Remove everything that was made for a pool."""
    for each in machines_of(world, pool):
        _forget(world, each)
    for group in pool.groups.values():
        machines.release(world, group)
        front, _, name = group.partition("/instanceGroupManagers/")
        project = "/".join(front.split("/")[:2])
        for path in (
            group,
            f"{front}/instanceGroups/{name}",
            f"{project}/global/instanceTemplates/{name.removesuffix('-grp')}",
        ):
            store.remove(world, "compute", path)
    pool.groups.clear()


def keep_trying(world: World, cluster: str, pool: str) -> None:
    """Try again to fill the groups of a pool that has too few machines; this never ends by itself."""
    found = world.state(Gke).clusters.get(cluster)
    mine = found.pools.get(pool) if found else None
    if found is None or mine is None or mine.message.status != NodePool.Status.RUNNING_WITH_ERROR:
        return
    if fill(world, found, mine) is None:
        mine.message.status = NodePool.Status.RUNNING
        mine.message.conditions = []
        mine.message.status_message = ""
    else:
        world.after(world.duration("gke-group-retry"), keep_trying, cluster, pool)
