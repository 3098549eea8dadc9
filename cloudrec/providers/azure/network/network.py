"""The cluster's virtual network: its subnets, its NAT gateway and its network security group."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Observed, Properties
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, inherited, place, state_of
from cloudrec.providers.azure.api.tracked import (
    Calls,
    GroupDriver,
    LocatedProperties,
    TrackedCalls,
    TrackedDriver,
    group_names,
)
from cloudrec.providers.base.driver import is_ours, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout
    from cloudrec.providers.base.prices import Prices

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

# The service endpoint through which a subnet reaches the storage account. The first reaches accounts of its
# own region (and the paired one) alone; the second those of all regions. A subnet has one of them at most
# (azure-docs, storage-network-security-virtual-networks.md).
_STORAGE, _STORAGE_EVERYWHERE = "Microsoft.Storage", "Microsoft.Storage.Global"
_NAT_IDLE_MINUTES = 30  # until an idle connection is cut; a long upload may be silent for a while
_RULE = "cloudrec-"  # prefix of the names of cloudrec's rules; rules with other names are left alone
_FIRST_PRIORITY = 100  # the smallest that Azure allows; each rule needs a different one


@dataclass(frozen=True, kw_only=True)
class AzureNetworkProperties(LocatedProperties):
    """The requested properties of a virtual network.

    Attributes:
        cidr: its block of addresses.
    """

    cidr: str


class FirewallRule(NamedTuple):
    """A rule of a network security group that allows all traffic from one block to another.

    Attributes:
        name: unique in its group.
        source: the block that the traffic comes from, in CIDR notation.
        destination: the block that it is sent to.
    """

    name: str
    source: str
    destination: str


@dataclass(frozen=True, kw_only=True)
class AzureFirewallProperties(LocatedProperties):
    """The requested properties of a network security group.

    Attributes:
        rules: cloudrec's, by priority.
    """

    rules: tuple[FirewallRule, ...]


@dataclass(frozen=True, kw_only=True)
class AzureSubnetProperties(Properties):
    """The requested properties of a subnet.

    Attributes:
        network: the name of its virtual network.
        cidr: its block of addresses.
        firewall: id of its network security group, in lower case.
        nat: id of its NAT gateway, in lower case.
        endpoints: the services that it reaches without the internet, sorted.
    """

    network: str
    cidr: str
    firewall: str
    nat: str
    endpoints: tuple[str, ...]


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the network, its subnets, its security group, and its NAT gateway with the public address."""
    base = groups.needs(layout, "network")
    there = LocatedProperties(location=layout.region)
    price = layout.prices.service
    network = layout.resource(
        NETWORK,
        needs=base,
        properties=AzureNetworkProperties(location=layout.region, cidr=layout.settings.vnet_cidr),
        hourly_usd=FREE,
    )
    firewall = layout.resource(
        FIREWALL,
        needs=base,
        properties=AzureFirewallProperties(location=layout.region, rules=_rules(layout)),
        hourly_usd=FREE,
    )
    address = layout.resource(ADDRESS, needs=base, properties=there, hourly_usd=price("public-ip"))
    nat = layout.resource(NAT, needs=(address.key,), properties=there, hourly_usd=price("nat-gateway"))
    nodes, lustre = _parts(layout)
    made = [_subnet(layout, NODES, nodes, network.key, firewall.key, nat.key)]
    if layout.settings.lustre_tib:
        # Azure refuses a second change of a network at the same time, so that this subnet needs the first.
        made.append(_subnet(layout, LUSTRE, lustre, network.key, firewall.key, nat.key, made[0].key))
    return [network, firewall, address, nat, *made]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    made = (
        AzureNetworkDriver(azure),
        AzureFirewallDriver(azure),
        AddressDriver(azure),
        NatDriver(azure),
        AzureSubnetDriver(azure),
    )
    return {driver.kind: driver for driver in made}


def subnet_id(layout: AzureLayout, suffix: str) -> str:
    """Return a subnet's id, which is known before the subnet exists."""
    return ids.resource(
        layout.subscription, layout.group, AzureSubnetDriver.of_type, layout.name, f"{layout.name}-{suffix}"
    )


def _parts(layout: AzureLayout) -> tuple[str, str]:
    """Return the blocks of the nodes' subnet (half of the network) and the file system's (a quarter)."""
    first, second = ipaddress.IPv4Network(layout.settings.vnet_cidr).subnets()
    return str(first), str(next(second.subnets()))


def _subnet(layout: AzureLayout, suffix: str, block: str, *needs: str) -> Resource[AzureSubnetProperties]:
    # An id follows from names, so that it is known before the resource exists. It is compared with the ids
    # that Azure reports, whose case varies.
    def attached(of_type: str) -> str:
        return ids.resource(layout.subscription, layout.group, of_type, layout.name).lower()

    return layout.resource(
        SUBNET,
        suffix,
        needs=needs,
        properties=AzureSubnetProperties(
            network=layout.name,
            cidr=block,
            firewall=attached(AzureFirewallDriver.of_type),
            nat=attached(NatDriver.of_type),
            endpoints=(_STORAGE_EVERYWHERE if layout.is_storage_elsewhere else _STORAGE,),
        ),
        hourly_usd=FREE,
    )


def _rules(layout: AzureLayout) -> tuple[FirewallRule, ...]:
    """Return the rules that allow traffic to and from pods.

    Azure's default rules allow traffic between the network's addresses. Pods have others, and the security
    group sees the pods' addresses.
    """
    nodes, _ = _parts(layout)
    pods = layout.settings.pod_cidr
    return (
        FirewallRule(f"{_RULE}nodes-to-pods", nodes, pods),
        FirewallRule(f"{_RULE}pods-to-pods", pods, pods),
    )


class AzureNetworkDriver(TrackedDriver["models.network.VirtualNetwork", AzureNetworkProperties]):
    """Handles virtual networks. A network is put once: a later put would remove the subnets that it lacks."""

    kind, repairs = NETWORK, True
    charge = FREE
    of_type = "Microsoft.Network/virtualNetworks"
    deadline_s = 1800.0

    @property
    def calls(self) -> TrackedCalls[models.network.VirtualNetwork]:
        """The client's methods for this kind."""
        of = self.azure.network.virtual_networks
        return TrackedCalls(list=of.list, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete)

    def body(
        self, resource: Resource[AzureNetworkProperties], identities: Mapping[str, str]
    ) -> models.network.VirtualNetwork:
        """Return a network without subnets, which are separate resources."""
        del identities
        return models.network.VirtualNetwork(
            location=resource.properties.location,
            tags=dict(resource.tags),
            properties=models.network.VirtualNetworkPropertiesFormat(
                address_space=models.network.AddressSpace(address_prefixes=[resource.properties.cidr])
            ),
        )

    def properties(self, row: models.network.VirtualNetwork) -> Mapping[str, Any]:
        """Return the network's block of addresses."""
        return {"cidr": " ".join((row.address_space and row.address_space.address_prefixes) or ())}


class AzureFirewallDriver(TrackedDriver["models.network.NetworkSecurityGroup", AzureFirewallProperties]):
    """Handles network security groups. Rules that cloudrec did not create stay."""

    kind, repairs = FIREWALL, True
    charge = FREE
    of_type = "Microsoft.Network/networkSecurityGroups"
    changeable = frozenset({"rules"})

    @property
    def calls(self) -> TrackedCalls[models.network.NetworkSecurityGroup]:
        """The client's methods for this kind."""
        of = self.azure.network.network_security_groups
        return TrackedCalls(list=of.list, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete)

    def body(
        self, resource: Resource[AzureFirewallProperties], identities: Mapping[str, str]
    ) -> models.network.NetworkSecurityGroup:
        """Return the group with its rules; Azure's default rules refuse traffic from outside."""
        del identities
        return models.network.NetworkSecurityGroup(
            location=resource.properties.location,
            tags=dict(resource.tags),
            properties=models.network.NetworkSecurityGroupPropertiesFormat(
                security_rules=_security_rules(resource.properties.rules)
            ),
        )

    def change(
        self,
        resource: Resource[AzureFirewallProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Replace cloudrec's rules, and keep all others."""
        del identities
        row = self.row(observed.identity)
        others = [rule for rule in row.security_rules or () if not _is_ours(rule)]
        # A put replaces the list of rules, so that the rules of others must be in it.
        group = models.network.NetworkSecurityGroup(
            location=resource.properties.location,
            tags={**(row.tags or {}), **resource.tags},
            properties=models.network.NetworkSecurityGroupPropertiesFormat(
                security_rules=[*_security_rules(resource.properties.rules), *others]
            ),
        )
        self.write_row(observed.identity, group)

    def properties(self, row: models.network.NetworkSecurityGroup) -> Mapping[str, Any]:
        """Return cloudrec's rules, by priority."""
        ours = [rule for rule in row.security_rules or () if _is_ours(rule)]
        ours.sort(key=lambda rule: rule.priority or 0)
        rules = (
            FirewallRule(
                rule.name or "", rule.source_address_prefix or "", rule.destination_address_prefix or ""
            )
            for rule in ours
        )
        return {"rules": tuple(rules)}


class AddressDriver(TrackedDriver["models.network.PublicIPAddress", LocatedProperties]):
    """Handles public addresses."""

    kind, repairs = ADDRESS, True
    of_type = "Microsoft.Network/publicIPAddresses"

    @property
    def calls(self) -> TrackedCalls[models.network.PublicIPAddress]:
        """The client's methods for this kind."""
        of = self.azure.network.public_ip_addresses
        return TrackedCalls(list=of.list, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete)

    def body(
        self, resource: Resource[LocatedProperties], identities: Mapping[str, str]
    ) -> models.network.PublicIPAddress:
        """Return a static address."""
        del identities
        return models.network.PublicIPAddress(
            location=resource.properties.location,
            tags=dict(resource.tags),
            # A NAT gateway refuses addresses of the Basic tier, and Azure refuses a dynamic Standard address.
            sku=models.network.PublicIPAddressSku(name="Standard"),
            properties=models.network.PublicIPAddressPropertiesFormat(
                public_ip_allocation_method="Static", public_ip_address_version="IPv4"
            ),
        )

    def hourly_usd(self, row: models.network.PublicIPAddress) -> float | None:
        """Return the price of an address in USD an hour; None if it is not known."""
        prices: Prices = self.azure.prices_at(row.location)
        return prices.service("public-ip")


class NatDriver(TrackedDriver["models.network.NatGateway", LocatedProperties]):
    """Handles NAT gateways."""

    kind, repairs = NAT, True
    of_type = "Microsoft.Network/natGateways"

    @property
    def calls(self) -> TrackedCalls[models.network.NatGateway]:
        """The client's methods for this kind."""
        of = self.azure.network.nat_gateways
        return TrackedCalls(list=of.list, get=of.get, put=of.begin_create_or_update, delete=of.begin_delete)

    def body(
        self, resource: Resource[LocatedProperties], identities: Mapping[str, str]
    ) -> models.network.NatGateway:
        """Return a gateway with the public address."""
        return models.network.NatGateway(
            location=resource.properties.location,
            tags=dict(resource.tags),
            sku=models.network.NatGatewaySku(name="Standard"),
            properties=models.network.NatGatewayPropertiesFormat(
                idle_timeout_in_minutes=_NAT_IDLE_MINUTES,
                public_ip_addresses=[models.network.SubResource(id=needed(resource, identities, ADDRESS))],
            ),
        )

    def hourly_usd(self, row: models.network.NatGateway) -> float | None:
        """Return the price of a gateway in USD an hour, without traffic; None if it is not known."""
        prices: Prices = self.azure.prices_at(row.location)
        return prices.service("nat-gateway")


class AzureSubnetDriver(GroupDriver["models.network.Subnet", AzureSubnetProperties]):
    """Handles subnets. They have no tags, and belong to the cluster that their network belongs to."""

    kind, repairs = SUBNET, True
    of_type = "Microsoft.Network/virtualNetworks/subnets"
    changeable = frozenset({"firewall", "nat", "endpoints"})
    deadline_s = 1800.0  # network adapters stay in the subnet for minutes after their machines are gone

    @property
    def calls(self) -> Calls[models.network.Subnet]:
        """The client's methods for this kind."""
        of = self.azure.network.subnets
        return Calls(get=of.get, put=of.begin_create_or_update, delete=of.begin_delete)

    def path(self, resource: Resource[AzureSubnetProperties]) -> tuple[str, ...]:
        """Return the network's name and the subnet's."""
        return resource.properties.network, resource.tags["Name"]

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the subnets of the clusters' networks."""
        # The description of a network includes its subnets, which saves a call for each network.
        networks = self.azure.network.virtual_networks
        rows = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(networks.list, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [self._within(network, row) for network in rows for row in network.subnets or ()]

    def fetch(self, resource: Resource[AzureSubnetProperties]) -> Observed | None:
        """Return the subnet of this name; None if it or its network does not exist."""
        group = group_name(resource.tags[TAG_CLUSTER])
        networks = self.azure.network.virtual_networks
        # The tags and the region of a subnet are the network's.
        network = self.azure.get(networks.get, group, resource.properties.network)
        row = None if network is None else self.azure.get(self.calls.get, group, *self.path(resource))
        return None if network is None or row is None else self._within(network, row)

    def body(
        self, resource: Resource[AzureSubnetProperties], identities: Mapping[str, str]
    ) -> models.network.Subnet:
        """Return a subnet whose only way to the internet is the NAT gateway."""
        del identities
        return models.network.Subnet(properties=_subnet_model(resource.properties))

    def change(
        self, resource: Resource[AzureSubnetProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Attach the security group, the gateway and the endpoints; keep the rest, which AKS may have set."""
        del identities
        row, wanted = self.row(observed.identity), _subnet_model(resource.properties)
        found = row.properties = row.properties or models.network.SubnetPropertiesFormat()
        found.network_security_group, found.nat_gateway = wanted.network_security_group, wanted.nat_gateway
        found.service_endpoints = wanted.service_endpoints
        self.write_row(observed.identity, row)

    def properties(self, row: models.network.Subnet) -> Mapping[str, Any]:
        """Return the subnet's block of addresses and what is attached to it."""
        block = row.address_prefix or " ".join(row.address_prefixes or ())
        return {
            "cidr": block,
            "firewall": _id_of(row.network_security_group),
            "nat": _id_of(row.nat_gateway),
            "endpoints": tuple(sorted(each.service or "" for each in row.service_endpoints or ())),
        }

    def _within(self, network: models.network.VirtualNetwork, row: models.network.Subnet) -> Observed:
        suffix = (row.name or "").removeprefix(f"{network.name}-")
        tags = network.tags or {}
        title = tags.get(TAG_CLUSTER)
        condition, reason = state_of(row)
        return Observed(
            kind=SUBNET,
            name=f"{title}-{suffix}" if title else row.name or "",
            identity=self.identity_of(row.id),
            condition=condition,
            properties=self.properties(row),
            tags=inherited(tags, f"{SUBNET}/{title}-{suffix}") if title else {},
            reason=reason,
            location=place(network.location),
            hourly_usd=FREE,
        )


def _subnet_model(wanted: AzureSubnetProperties) -> models.network.SubnetPropertiesFormat:
    """Return the requested properties of a subnet as the SDK's model."""
    return models.network.SubnetPropertiesFormat(
        address_prefix=wanted.cidr,
        network_security_group=models.network.NetworkSecurityGroup(id=wanted.firewall),
        nat_gateway=models.network.SubResource(id=wanted.nat),
        service_endpoints=[
            models.network.ServiceEndpointPropertiesFormat(service=name) for name in wanted.endpoints
        ],
        # Azure's default outbound access has ended; all traffic uses the NAT gateway.
        default_outbound_access=False,
    )


def _id_of(attached: models.network.NetworkSecurityGroup | models.network.SubResource | None) -> str:
    return str(attached.id).lower() if attached else ""


def _is_ours(rule: models.network.SecurityRule) -> bool:
    return (rule.name or "").startswith(_RULE)


def _security_rules(rules: Sequence[FirewallRule]) -> list[models.network.SecurityRule]:
    """Return the rules as the SDK's models, with priorities in their order."""
    return [
        models.network.SecurityRule(
            name=rule.name,
            properties=models.network.SecurityRulePropertiesFormat(
                priority=_FIRST_PRIORITY + number,
                direction="Inbound",
                access="Allow",
                protocol="*",
                source_address_prefix=rule.source,
                source_port_range="*",
                destination_address_prefix=rule.destination,
                destination_port_range="*",
            ),
        )
        for number, rule in enumerate(rules)
    ]
