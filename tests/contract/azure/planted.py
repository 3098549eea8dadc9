"""Resources of 20 kinds that others made beside a cluster: with its tag, in its group, or in its network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cloudrec.engine.graph import TAG_CLUSTER
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import LOCATION, Azure

SIZE = "Standard_D4s_v5"
KINDS = 20
_ADDRESS: dict[str, Any] = {"sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}


@dataclass
class Planted:
    """The resources that were made beside one cluster, by id in lower case.

    Attributes:
        tagged: with the cluster's tag, in a resource group of others.
        grouped: without a tag, in the cluster's resource group.
        bound: without a tag, in a resource group of others, with an address in the cluster's network.
        implied: those that Azure made with them: a machine's disk, an endpoint's interface.
    """

    site: Site
    tagged: list[str] = field(default_factory=list)
    grouped: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    implied: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[str]:
        """The planted resources, without those that Azure made with them."""
        return [*self.tagged, *self.grouped, *self.bound]

    @property
    def region(self) -> str:
        return self.site.cluster.region or LOCATION

    @property
    def lab(self) -> str:
        """The resource group of others."""
        return f"lab-{self.region}"


class Gardener:
    """Plants resources with Azure's SDK."""

    def __init__(self, site: Site) -> None:
        self.azure: Azure = site.azure
        self.planted = Planted(site)
        self.title = site.cluster.title
        self.own = f"cloudrec-{self.title}"

    def plant(self) -> Planted:
        """Make one resource of each kind."""
        self.azure.control(registered=["*"])
        self.azure.group(self.planted.lab, self.planted.region)
        self._in_the_group()
        self._with_the_tag()
        self._in_the_network()
        assert len(self.planted.all) == KINDS
        return self.planted

    def _in_the_group(self) -> None:
        compute, found = self.azure.client("compute"), self.planted.grouped
        disk = self._make(
            compute.disks,
            self.own,
            "disk",
            properties={"creationData": {"createOption": "Empty"}, "diskSizeGB": 64},
        )
        copy = {"creationData": {"createOption": "Copy", "sourceResourceId": disk.id}}
        snapshot = self._make(compute.snapshots, self.own, "snapshot", properties=copy)
        system = {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": snapshot.id}}
        image = self._make(
            compute.images, self.own, "image", properties={"storageProfile": {"osDisk": system}}
        )
        found += [disk.id, snapshot.id, image.id]
        found.append(
            self._any("Microsoft.OperationalInsights/workspaces", self.own, "workspace", "2025-02-01")
        )

    def _with_the_tag(self) -> None:
        compute, network, found = (
            self.azure.client("compute"),
            self.azure.client("network"),
            self.planted.tagged,
        )
        lab = self.planted.lab
        tagged: dict[str, Any] = {"tags": {TAG_CLUSTER: self.title}}
        machine = self._machine(tagged)
        self.planted.implied.append(machine.storage_profile.os_disk.managed_disk.id)
        machines = self._make(
            compute.virtual_machine_scale_sets,
            lab,
            "machines",
            sku={"name": SIZE, "capacity": 2},
            properties={"orchestrationMode": "Uniform", "virtualMachineProfile": {"priority": "Spot"}},
            **tagged,
        )
        address = self._make(network.public_ip_addresses, lab, "address", **_ADDRESS, **tagged)
        balancer = self._make(network.load_balancers, lab, "balancer", sku={"name": "Standard"}, **tagged)
        gateway = self._make(network.nat_gateways, lab, "gateway", sku={"name": "Standard"}, **tagged)
        firewall = self._make(network.network_security_groups, lab, "firewall", **tagged)
        found += [each.id for each in (machine, machines, address, balancer, gateway, firewall)]
        location = {"location": self.planted.region}
        group = compute.capacity_reservation_groups.create_or_update(lab, "reserved", {**location, **tagged})
        wish = {**location, "sku": {"name": SIZE, "capacity": 3}}
        held = self.azure.done(
            compute.capacity_reservations.begin_create_or_update, lab, "reserved", "three", wish, seconds=60
        )
        identities = self.azure.client("msi").user_assigned_identities
        identity = identities.create_or_update(lab, "identity", {**location, **tagged})
        found += [group.id, held.id, identity.id]
        self._with_names(tagged)
        target = {
            "taskType": "ComputeVmShutdownTask",
            "targetResourceId": machine.id,
            "dailyRecurrence": {"time": "1900"},
        }
        found.append(
            self._any(
                "Microsoft.DevTestLab/schedules",
                lab,
                "shutdown-computevm-machine",
                "2018-09-15",
                properties=target,
                **tagged,
            )
        )
        found.append(self._any("Microsoft.Compute/sshPublicKeys", lab, "key", "2026-04-01", **tagged))
        application = {"kind": "web", "properties": {"Application_Type": "web"}}
        found.append(
            self._any("Microsoft.Insights/components", lab, "web", "2020-02-02", **application, **tagged)
        )

    def _with_names(self, tagged: dict[str, Any]) -> None:
        """Make what has a name that is unique in all of Azure."""
        name = f"planted{self.title}"
        registries = self.azure.client("containerregistry").registries
        accounts = self.azure.client("storage").storage_accounts
        premium = {"sku": {"name": "Premium"}, **tagged}
        plain = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", **tagged}
        registry = self._make(registries, self.planted.lab, name, verb="create", **premium)
        account = self._make(accounts, self.planted.lab, name, verb="create", **plain)
        self.planted.tagged += [registry.id, account.id]
        self._account = account.id

    def _in_the_network(self) -> None:
        network, lab = self.azure.client("network"), self.planted.lab
        subnet = self._subnet(self.own)
        interface = self._make(network.network_interfaces, lab, "stranger", **_interface(subnet))
        connection = {
            "name": "blob",
            "properties": {"privateLinkServiceId": self._account, "groupIds": ["blob"]},
        }
        endpoint = self._make(
            network.private_endpoints,
            lab,
            "endpoint",
            properties={"subnet": {"id": subnet}, "privateLinkServiceConnections": [connection]},
        )
        self.planted.bound += [interface.id, endpoint.id]
        self.planted.implied += [each.id for each in endpoint.network_interfaces]

    def _machine(self, tagged: dict[str, Any]) -> Any:
        """Make a machine in a network of others."""
        network, lab = self.azure.client("network"), self.planted.lab
        inner = {"name": "inner", "properties": {"addressPrefix": "10.9.0.0/24"}}
        space = {"addressSpace": {"addressPrefixes": ["10.9.0.0/16"]}, "subnets": [inner]}
        self._make(network.virtual_networks, lab, "lab", properties=space)
        interface = self._make(network.network_interfaces, lab, "of-machine", **_interface(self._subnet(lab)))
        properties = {
            "hardwareProfile": {"vmSize": SIZE},
            "storageProfile": {"osDisk": {"createOption": "FromImage"}},
            "networkProfile": {"networkInterfaces": [{"id": interface.id}]},
        }
        machines = self.azure.client("compute").virtual_machines
        return self._make(machines, lab, "machine", properties=properties, **tagged)

    def _subnet(self, group: str) -> str:
        (network,) = self.azure.client("network").virtual_networks.list(group)
        return str(network.subnets[0].id)

    def _make(self, calls: Any, group: str, name: str, *, verb: str = "create_or_update", **body: Any) -> Any:
        wish = {"location": self.planted.region, **body}
        return self.azure.done(getattr(calls, f"begin_{verb}"), group, name, wish, seconds=60)

    def _any(self, of_type: str, group: str, name: str, version: str, **body: Any) -> str:
        """Make a resource of a type that the SDK has no client for; return its id."""
        resources = self.azure.client("resource").resources
        wish = {"location": self.planted.region, **body}
        id_ = self.azure.id(of_type, name, group=group)
        call = resources.begin_create_or_update_by_id
        made = self.azure.done(call, id_, wish, api_version=version, seconds=1)
        return str(made.id)


def _interface(subnet: str) -> dict[str, Any]:
    row = {"name": "one", "properties": {"subnet": {"id": subnet}}}
    return {"properties": {"ipConfigurations": [row]}}
