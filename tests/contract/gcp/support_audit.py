"""Resources beside cloudrec's clusters that it did not make, created with Google's clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sandbox.gcp.support import PROJECT
from tests.sandbox.gcp.support import Gcp as Cloud

# The APIs of the services in which something is planted; a new project has not enabled them.
APIS = {
    f"{name}.googleapis.com": True
    for name in ("cloudasset", "cloudscheduler", "file", "secretmanager", "tpu")
}
GLOBAL = f"projects/{PROJECT}/global"
UNIFORM = {"uniformBucketLevelAccess": {"enabled": True}}
TYPE, GIB = "e2-standard-4", 100
REMOVED = frozenset(  # what `down` removes itself, as the work of the cluster's controllers or as its own
    {"disk", "regional disk", "forwarding rule", "resource policy", "bucket"}
)


@dataclass(kw_only=True)
class Planter:
    """Plants in one region for one cluster.

    Attributes:
        cloud: the stand-in.
        region: the region.
        title: the cluster's name.
        network: the path of a network of the cluster.
        subnet: the path of a subnetwork in it.
        planted: the identities, by kind.
    """

    cloud: Cloud
    region: str
    title: str
    network: str = ""
    subnet: str = ""
    planted: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zone = f"{self.region}-c"
        self.name = f"planted-{self.region}"
        self.labels = {"cloudrec-cluster": self.title}
        self.gke = f"gke-cloudrec-{self.title}-{self.region}"
        self.own = f"cloudrec-{self.title}-{self.region}"
        self.front = f"projects/{PROJECT}/regions/{self.region}"
        self.there = f"projects/{PROJECT}/zones/{self.zone}"

    def insert(self, client: str, noun: str, kind: str, place: str, **body: Any) -> str:
        """Create one resource of Compute Engine, and return its path."""
        where = {"zone": self.zone} if place == self.there else {"region": self.region}
        request = {**({} if place == GLOBAL else where), f"{noun}_resource": {"name": self.name, **body}}
        self.cloud.compute(client).insert_unary(project=PROJECT, **request)
        self.cloud.advance(60)  # until it exists
        collection = client[0].lower() + client[1:]
        collection = {"regionDisks": "disks"}.get(collection, collection)
        path = f"{place}/{collection}/{body.get('name', self.name)}"
        self.planted[kind] = path
        return path

    def post(self, kind: str, path: str, url: str, **body: Any) -> None:
        """Create one resource of another service."""
        status, told = self.cloud.rest("POST", url, body)
        assert status == 200, told
        self.cloud.advance(300)
        self.planted[kind] = path

    def own_network(self) -> None:
        """Create a network and a subnetwork as a killed `up` leaves them, with cloudrec's description."""
        said = f'cloudrec:{{"cluster":"{self.title}","key":"KIND/{self.title}","region":"{self.region}"}}'
        kept = dict(self.planted)
        self.network = self.insert(
            "Networks",
            "network",
            "",
            GLOBAL,
            name=self.own,
            auto_create_subnetworks=False,
            description=said.replace("KIND", "network"),
        )
        self.subnet = self.insert(
            "Subnetworks",
            "subnetwork",
            "",
            self.front,
            name=f"cloudrec-{self.title}",
            network=self.network,
            ip_cidr_range="10.10.0.0/20",
            description=said.replace("KIND", "subnetwork"),
        )
        self.planted = kept

    def all(self) -> dict[str, str]:
        """Plant one of each of twenty regional and zonal kinds."""
        self.machines()
        self.in_the_network()
        self.by_name()
        self.elsewhere()
        return self.planted

    def machine(self, kind: str, **body: Any) -> str:
        boot = {"boot": True, "auto_delete": True, "initialize_params": {"disk_size_gb": 20}}
        given = {"machine_type": f"zones/{self.zone}/machineTypes/{TYPE}", "disks": [boot]}
        card = {"subnetwork": self.subnet}
        return self.insert(
            "Instances", "instance", kind, self.there, **given, network_interfaces=[card], **body
        )

    def machines(self) -> None:
        """Plant what has labels in Compute Engine."""
        disk = {"size_gb": GIB, "labels": self.labels}
        balanced = {"type_": f"{self.there}/diskTypes/pd-balanced"}
        zones = [f"projects/{PROJECT}/zones/{self.region}-{letter}" for letter in "bc"]
        self.machine("instance", labels=self.labels)
        self.insert("Disks", "disk", "disk", self.there, name=f"data-{self.region}", **balanced, **disk)
        self.insert("RegionDisks", "disk", "regional disk", self.front, replica_zones=zones, **disk)
        self.insert("Addresses", "address", "external address", self.front, labels=self.labels)

    def in_the_network(self) -> None:
        """Plant what uses the cluster's network, without labels."""
        within = {"network": self.network}
        nat: dict[str, Any] = {
            "name": "theirs",
            "nat_ip_allocate_option": "AUTO_ONLY",
            "source_subnetwork_ip_ranges_to_nat": "LIST_OF_SUBNETWORKS",
        }
        subnet = self.insert(
            "Subnetworks", "subnetwork", "subnetwork", self.front, ip_cidr_range="10.99.0.0/24", **within
        )
        nat["subnetworks"] = [{"name": subnet, "source_ip_ranges_to_nat": ["ALL_IP_RANGES"]}]
        router = self.insert("Routers", "router", "router", self.front, nats=[nat], **within)
        internal = {"address_type": "INTERNAL", "subnetwork": self.subnet, "name": f"inside-{self.region}"}
        self.insert("Addresses", "address", "internal address", self.front, **internal)
        balancer = {"load_balancing_scheme": "INTERNAL", "subnetwork": self.subnet, **within}
        balancer["name"] = f"balancer-{self.region}"  # an address of its name would be its own
        self.insert("ForwardingRules", "forwarding_rule", "forwarding rule", self.front, **balancer)
        gateway = self.insert("VpnGateways", "vpn_gateway", "VPN gateway", self.front, **within)
        self.insert("TargetVpnGateways", "target_vpn_gateway", "classic VPN gateway", self.front, **within)
        tunnel = {"vpn_gateway": gateway, "router": router, "shared_secret": "s"}
        self.insert("VpnTunnels", "vpn_tunnel", "VPN tunnel", self.front, **tunnel)

    def by_name(self) -> None:
        """Plant what cannot have labels: it has the name that cloudrec or GKE gives."""
        machine = {"count": 2, "instance_properties": {"machine_type": TYPE}}
        self.insert(
            "Reservations",
            "reservation",
            "reservation",
            self.there,
            name=self.own,
            specific_reservation=machine,
        )
        template = self.insert(
            "InstanceTemplates",
            "instance_template",
            "instance template",
            GLOBAL,
            name=self.gke,
            properties={
                "machine_type": TYPE,
                "disks": [{"boot": True, "initialize_params": {"disk_size_gb": 20}}],
                "network_interfaces": [{"network": self.network}],
            },
        )
        group = {"name": f"{self.gke}-grp", "instance_template": template, "target_size": 0}
        self.insert(
            "InstanceGroupManagers", "instance_group_manager", "instance group manager", self.there, **group
        )
        self.planted["instance group"] = f"{self.there}/instanceGroups/{self.gke}-grp"
        policy = {"group_placement_policy": {"collocation": "COLLOCATED"}}
        self.insert(
            "ResourcePolicies", "resource_policy", "resource policy", self.front, name=self.gke, **policy
        )

    def elsewhere(self) -> None:
        """Plant in other services, and in one that cloudrec does not know."""
        zone = f"projects/{PROJECT}/locations/{self.zone}"
        region = f"projects/{PROJECT}/locations/{self.region}"
        share, net = {"name": "s", "capacityGb": "1024"}, {"network": self.network.rpartition("/")[2]}
        self.post(
            "Filestore instance",
            f"{zone}/instances/{self.name}",
            f"/v1/{zone}/instances?instanceId={self.name}",
            tier="BASIC_HDD",
            fileShares=[share],
            networks=[{"network": "default", "modes": ["MODE_IPV4"]}],
            labels=self.labels,
        )
        self.post(
            "TPU node",
            f"{zone}/nodes/{self.name}",
            f"/v2/{zone}/nodes?nodeId={self.name}",
            acceleratorType="v5litepod-4",
            runtimeVersion="v2-alpha-tpuv5-lite",
            networkConfig=net,
        )
        job = f"{region}/jobs/{self.own}"
        calls = {"uri": "https://example.com/"}
        self.post(
            "Scheduler job", job, f"/v1/{region}/jobs", name=job, schedule="0 * * * *", httpTarget=calls
        )
        ours = {**self.labels, "cloudrec-region": self.region}
        bucket: dict[str, Any] = {"name": self.name, "location": self.region, "labels": ours}
        bucket |= {"hierarchicalNamespace": {"enabled": True}, "iamConfiguration": UNIFORM}
        self.post("bucket", self.name, f"/storage/v1/b?project={PROJECT}", **bucket)
        name = f"{region}/instances/{self.name}"
        asset = {
            "assetType": "redis.googleapis.com/Instance",
            "name": f"//redis.googleapis.com/{name}",
            "location": self.region,
            "labels": self.labels,
        }
        known = self.cloud.control()["assets"]
        self.cloud.control(assets=[*known, asset])
        self.planted["Memorystore instance"] = name

    def everywhere(self) -> dict[str, str]:
        """Plant one of each global kind, and return them."""
        before = set(self.planted)
        source = {"source_disk": self.planted["disk"], "labels": self.labels}
        self.insert("Snapshots", "snapshot", "snapshot", GLOBAL, storage_locations=[self.region], **source)
        self.insert("Images", "image", "image", GLOBAL, **source)
        copy = {"source_instance": self.planted["instance"], "labels": self.labels}
        self.insert("MachineImages", "machine_image", "machine image", GLOBAL, **copy)
        self.post(
            "secret",
            f"projects/{PROJECT}/secrets/{self.name}",
            f"/v1/projects/{PROJECT}/secrets?secretId={self.name}",
            replication={"automatic": {}},
            labels=self.labels,
        )
        return {kind: path for kind, path in self.planted.items() if kind not in before}
