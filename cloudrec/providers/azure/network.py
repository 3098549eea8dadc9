"""The network: one for all nodes, a way out of it with an address of its own, and who may talk in it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours, needed
from cloudrec.engine.graph import TAG_CLUSTER, Observed
from cloudrec.providers.azure import groups, ids
from cloudrec.providers.azure.prices import shipped
from cloudrec.providers.azure.rows import group_name, group_names, inherited, place, state_of
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

NETWORK, SUBNET = "virtual-network", "subnet"
FIREWALL, ADDRESS, NAT = "network-security-group", "public-ip", "nat-gateway"
NODES, LUSTRE = "nodes", "lustre"  # the subnets' suffixes
KINDS: Mapping[str, AbstractSet[str]] = {
    NETWORK: frozenset({groups.GROUP, groups.REGISTRATION}),
    FIREWALL: frozenset({groups.GROUP, groups.REGISTRATION}),
    ADDRESS: frozenset({groups.GROUP, groups.REGISTRATION}),
    NAT: frozenset({ADDRESS}),
    SUBNET: frozenset({NETWORK, FIREWALL, NAT}),
}

_STORAGE = "Microsoft.Storage"  # the service endpoint by which a subnet reaches the storage
_NAT_IDLE_MINUTES = 30  # that a connection may be silent: a long upload must not be cut
_RULE = "cloudrec-"  # what our rules' names begin with
_FIRST_PRIORITY = 100


def resources(layout: Layout) -> list[Resource]:
    """Describe the network, its subnets, its firewall and its way out."""
    base = groups.needs(layout, "network")
    there = {"location": layout.region}
    price = layout.prices.service
    network = layout.resource(NETWORK, needs=base, properties={**there, "cidr": layout.settings.vnet_cidr})
    firewall = layout.resource(FIREWALL, needs=base, properties={**there, "rules": _rules(layout)})
    address = layout.resource(ADDRESS, needs=base, properties=there, hourly_usd=price("public-ip"))
    nat = layout.resource(NAT, needs=(address.key,), properties=there, hourly_usd=price("nat-gateway"))
    nodes, lustre = _parts(layout)
    made = [_subnet(layout, NODES, nodes, network.key, firewall.key, nat.key)]
    if layout.settings.lustre_tib:
        # One change of a network at a time: the second subnet waits for the first.
        made.append(_subnet(layout, LUSTRE, lustre, network.key, firewall.key, nat.key, made[0].key))
    return [network, firewall, address, nat, *made]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    classes = (NetworkDriver, FirewallDriver, AddressDriver, NatDriver, SubnetDriver)
    return {driver.kind: driver(azure) for driver in classes}


def subnet_id(layout: Layout, suffix: str) -> str:
    """Return a subnet's id, which is known before there is one."""
    return ids.resource(
        layout.subscription, layout.group, SubnetDriver.of_type, layout.name, f"{layout.name}-{suffix}"
    )


def _parts(layout: Layout) -> tuple[str, str]:
    """Return the blocks of the nodes' subnet, half of the network's, and of the file system's, a quarter."""
    first, second = ipaddress.IPv4Network(layout.settings.vnet_cidr).subnets()
    return str(first), str(next(second.subnets()))


def _subnet(layout: Layout, suffix: str, block: str, *needs: str) -> Resource:
    def attached(driver: type[GroupDriver]) -> str:
        return ids.resource(layout.subscription, layout.group, driver.of_type, layout.name).lower()

    return layout.resource(
        SUBNET,
        suffix,
        needs=needs,
        properties={
            "network": layout.name,
            "cidr": block,
            "firewall": attached(FirewallDriver),
            "nat": attached(NatDriver),
            "endpoints": (_STORAGE,),
        },
    )


def _rules(layout: Layout) -> tuple[tuple[str, str, str], ...]:
    """Return who may talk in the network beside its own addresses: name, source and destination.

    Pods have addresses that are none of the network's, and the firewall sees them as they are.
    """
    nodes, _ = _parts(layout)
    pods = layout.settings.pod_cidr
    return ((f"{_RULE}nodes-to-pods", nodes, pods), (f"{_RULE}pods-to-pods", pods, pods))


class NetworkDriver(GroupDriver):
    """Handles virtual networks. A network is put once: what a later put leaves out of its subnets goes."""

    kind, mends = NETWORK, True
    service, collection, of_type = "network", "virtual_networks", "Microsoft.Network/virtualNetworks"
    deadline_s = 1800.0

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a network without subnets, which are resources of their own."""
        del identities
        return self.models.VirtualNetwork(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            address_space=self.models.AddressSpace(address_prefixes=[resource.properties["cidr"]]),
        )

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell its block."""
        return {"cidr": " ".join(row.address_space.address_prefixes or ())}


class FirewallDriver(GroupDriver):
    """Handles network security groups. Rules of other people stay."""

    kind, mends = FIREWALL, True
    service, collection = "network", "network_security_groups"
    of_type = "Microsoft.Network/networkSecurityGroups"
    changeable = frozenset({"rules"})

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return the group with its rules; what comes from outside is refused by Azure's own."""
        del identities
        return self.models.NetworkSecurityGroup(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            security_rules=[
                self._rule(_FIRST_PRIORITY + number, *rule)
                for number, rule in enumerate(resource.properties["rules"])
            ],
        )

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Put our rules right."""
        group = self.body(resource, identities)
        row = self.row(observed.identity)
        others = [rule for rule in row.security_rules or () if not rule.name.startswith(_RULE)]
        group.security_rules = [*group.security_rules, *others]
        group.tags = {**(row.tags or {}), **resource.tags}
        names = ids.names(observed.identity)
        self.call(observed.identity, self.putting, ids.group_of(observed.identity), *names, group)

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell our rules."""
        ours = [rule for rule in row.security_rules or () if rule.name.startswith(_RULE)]
        ours.sort(key=lambda rule: rule.priority)
        told = ((rule.name, rule.source_address_prefix, rule.destination_address_prefix) for rule in ours)
        return {"rules": tuple(told)}

    def _rule(self, priority: int, name: str, source: str, destination: str) -> Any:  # noqa: ANN401 - the SDK's model
        return self.models.SecurityRule(
            name=name,
            priority=priority,
            direction="Inbound",
            access="Allow",
            protocol="*",
            source_address_prefix=source,
            source_port_range="*",
            destination_address_prefix=destination,
            destination_port_range="*",
        )


class AddressDriver(GroupDriver):
    """Handles public addresses."""

    kind, mends = ADDRESS, True
    service, collection, of_type = "network", "public_ip_addresses", "Microsoft.Network/publicIPAddresses"

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return an address that stays the same."""
        del identities
        return self.models.PublicIPAddress(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            sku=self.models.PublicIPAddressSku(name="Standard"),
            public_ip_allocation_method="Static",
            public_ip_address_version="IPv4",
        )

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what it costs."""
        del row
        return shipped().service("public-ip")


class NatDriver(GroupDriver):
    """Handles NAT gateways."""

    kind, mends = NAT, True
    service, collection, of_type = "network", "nat_gateways", "Microsoft.Network/natGateways"

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a gateway with the address."""
        return self.models.NatGateway(
            location=resource.properties["location"],
            tags=dict(resource.tags),
            sku=self.models.NatGatewaySku(name="Standard"),
            idle_timeout_in_minutes=_NAT_IDLE_MINUTES,
            public_ip_addresses=[self.models.SubResource(id=needed(resource, identities, ADDRESS))],
        )

    def hourly_usd(self, row: Any) -> float:  # noqa: ANN401 - the SDK's model
        """Tell what it costs."""
        del row
        return shipped().service("nat-gateway")


class SubnetDriver(GroupDriver):
    """Handles subnets, which bear no tags: they are whose network they are in."""

    kind, mends = SUBNET, True
    service, collection, of_type = "network", "subnets", "Microsoft.Network/virtualNetworks/subnets"
    changeable = frozenset({"firewall", "nat", "endpoints"})
    deadline_s = 1800.0  # cards in it linger for minutes after the machines that they belonged to

    def path(self, resource: Resource) -> tuple[str, ...]:
        """Return the network's name and its own."""
        return resource.properties["network"], resource.tags["Name"]

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List what is in the clusters' networks."""
        networks = self.azure.client("network").virtual_networks
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(networks.list, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [self._within(network, row) for network in rows for row in network.subnets or ()]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for it in its network."""
        group = group_name(resource.tags[TAG_CLUSTER])
        networks = self.azure.client("network").virtual_networks
        network = self.azure.get(networks.get, group, resource.properties["network"])
        row = None if network is None else self.azure.get(self.calls.get, group, *self.path(resource))
        return None if row is None else self._within(network, row)

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return a subnet from which nothing goes out but by the gateway."""
        del identities
        wanted = resource.properties
        return self.models.Subnet(
            address_prefix=wanted["cidr"],
            network_security_group=self.models.NetworkSecurityGroup(id=wanted["firewall"]),
            nat_gateway=self.models.SubResource(id=wanted["nat"]),
            service_endpoints=[
                self.models.ServiceEndpointPropertiesFormat(service=name) for name in wanted["endpoints"]
            ],
            default_outbound_access=False,
        )

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Attach what is not, and leave the rest as it is: AKS may have added to it."""
        row, wanted = self.row(observed.identity), self.body(resource, identities)
        row.network_security_group, row.nat_gateway = wanted.network_security_group, wanted.nat_gateway
        row.service_endpoints = wanted.service_endpoints
        names = ids.names(observed.identity)
        self.call(observed.identity, self.putting, ids.group_of(observed.identity), *names, row)

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's model
        """Tell its block and what is attached."""
        block = row.address_prefix or " ".join(row.address_prefixes or ())
        return {
            "cidr": block,
            "firewall": _id_of(row.network_security_group),
            "nat": _id_of(row.nat_gateway),
            "endpoints": tuple(sorted(each.service for each in row.service_endpoints or ())),
        }

    def _within(self, network: Any, row: Any) -> Observed:  # noqa: ANN401 - the SDK's models
        suffix = row.name.removeprefix(f"{network.name}-")
        title = network.tags.get(TAG_CLUSTER) if network.tags else None
        condition, reason = state_of(row)
        return Observed(
            kind=SUBNET,
            name=f"{title}-{suffix}" if title else row.name,
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), self.of_type, *ids.names(row.id)
            ),
            condition=condition,
            properties=self.properties(row),
            tags=inherited(network.tags, f"{SUBNET}/{title}-{suffix}") if title else {},
            reason=reason,
            location=place(network.location),
        )


def _id_of(attached: Any) -> str:  # noqa: ANN401 - the SDK's model
    return str(attached.id).lower() if attached else ""
