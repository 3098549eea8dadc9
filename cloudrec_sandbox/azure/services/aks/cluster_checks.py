"""What AKS refuses of a cluster's PUT."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks import pool_checks, subnets
from cloudrec_sandbox.azure.services.aks.pool_checks import SYSTEM, mode
from cloudrec_sandbox.azure.services.aks.refusals import invalid, refuse_changes
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.identity import identities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_DNS_PREFIX = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,52}[A-Za-z0-9])?")
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_MOST_RANGES = 200
_LONGEST_GROUP = 80
# AKS cannot change these; a client has to delete the cluster.
_FIXED = ("dnsPrefix", "fqdnSubdomain", "nodeResourceGroup", "enableRBAC", "diskEncryptionSetID")
_FIXED_NETWORK = (
    "networkPlugin",
    "networkPluginMode",
    "networkDataplane",
    "podCidr",
    "podCidrs",
    "serviceCidr",
    "serviceCidrs",
    "dnsServiceIP",
    "loadBalancerSku",
    "outboundType",
    "ipFamilies",
)


def check(call: Call, body: Mapping[str, Any], old: Resource | None) -> None:
    """Refuse a cluster; its pools are checked separately."""
    wish = body.get("properties") or {}
    if old is None:
        _check_name(call.path.name, wish)
        _check_pools(wish.get("agentPoolProfiles") or [])
        _check_group(call, wish)
    else:
        _check_fixed(old, wish)
    network = wish.get("networkProfile") or {}
    _check_network(network)
    _check_access(wish)
    _check_oidc(wish, old)
    _check_sku(body, wish)
    _check_identities(call.world, body, wish)


def _check_name(name: str, wish: Mapping[str, Any]) -> None:
    prefix, subdomain = wish.get("dnsPrefix"), wish.get("fqdnSubdomain")
    if subdomain is None and (not prefix or not _DNS_PREFIX.fullmatch(prefix)):
        raise invalid(
            f"The value of parameter dnsPrefix is invalid. Error details: dnsPrefix {prefix!r} of {name} "
            f"must have 1 "
            "to 54 characters: letters, digits and hyphens, with a letter or a digit at both ends. Please "
            "see "
            "https://aka.ms/aks-naming-rules for more details."
        )


def _check_pools(profiles: Sequence[Mapping[str, Any]]) -> None:
    if not any(mode(each) == SYSTEM for each in profiles):
        raise invalid(
            "The value of parameter agentPoolProfiles is invalid. Error details: Must define at least one "
            "system "
            "pool. Please see https://aka.ms/aks-naming-rules for more details."
        )
    names = [each.get("name") for each in profiles]
    if len(set(names)) < len(names):
        raise invalid(f"The value of parameter agentPoolProfiles is invalid: names occur twice in {names}.")


def _check_group(call: Call, wish: Mapping[str, Any]) -> None:
    name = wish.get("nodeResourceGroup")
    if not name:
        return
    if len(name) > _LONGEST_GROUP:
        raise invalid(
            f"The length of the node resource group name is too long. The length of {name} is {len(name)}; "
            f"at most "
            f"{_LONGEST_GROUP} are allowed.",
            "InvalidNodeResourceGroupName",
        )
    found = store(call.world).find(f"/subscriptions/{call.path.subscription}/resourceGroups/{name}")
    if found is not None and str(found.document.get("managedBy") or "").lower() != call.path.key:
        raise invalid(
            f"The node resource group {name} exists already. Choose a name that is not in use.",
            "NodeResourceGroupAlreadyExists",
        )


def _check_fixed(old: Resource, wish: Mapping[str, Any]) -> None:
    before = old.properties
    refuse_changes(_FIXED, lambda name: (before.get(name), wish.get(name)))
    network, wanted = before["networkProfile"], wish.get("networkProfile") or {}
    refuse_changes(
        _FIXED_NETWORK,
        lambda name: (network.get(name), wanted.get(name)),
        prefix="properties.networkProfile",
    )
    private, wanted = before.get("apiServerAccessProfile") or {}, wish.get("apiServerAccessProfile") or {}
    refuse_changes(
        ("enablePrivateCluster", "privateDNSZone"),
        lambda name: (private.get(name), wanted.get(name)),
        prefix="properties.apiServerAccessProfile",
    )


def _check_network(network: Mapping[str, Any]) -> None:
    plugin, plugin_mode = network.get("networkPlugin"), network.get("networkPluginMode")
    if plugin_mode == "overlay" and plugin not in ("azure", None):
        raise invalid("Network plugin mode 'overlay' is only supported with network plugin 'azure'.")
    if network.get("networkDataplane") == "cilium":
        if plugin not in ("azure", None):
            raise invalid("Cilium dataplane requires network plugin azure.", "CiliumDataplaneNotSupported")
        if network.get("networkPolicy") not in ("cilium", "none", None):
            raise invalid("Cilium dataplane requires network policy cilium.", "NetworkPolicyNotCilium")
    elif network.get("networkPolicy") == "cilium":
        raise invalid("Network policy cilium requires network dataplane cilium.")
    for name, code in (("podCidr", "InvalidPodCidr"), ("serviceCidr", "InvalidServiceCidr")):
        if cidr := network.get(name):
            _network(name, cidr, code)
    _check_services(network)


def _network(name: str, cidr: str, code: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(cidr)
    except ValueError as error:
        raise invalid(f"The value of {name} is invalid: {error}.", code) from error


def _check_services(network: Mapping[str, Any]) -> None:
    services, pods, dns = (network.get(name) for name in ("serviceCidr", "podCidr", "dnsServiceIP"))
    if dns and not services:
        raise invalid("dnsServiceIP can be set together with serviceCidr alone.")
    if services and not dns:
        raise invalid("serviceCidr can be set together with dnsServiceIP alone: it must be in that range.")
    if services and dns:
        wanted = ipaddress.ip_network(services)
        # The first address of the range is the service `kubernetes`.
        if ipaddress.ip_address(dns) not in wanted or ipaddress.ip_address(dns) == wanted[1]:
            raise invalid(
                f"DNS service IP {dns} must be in the range {services}, and not the first address of it.",
                "InvalidDNSServiceIP",
            )
    if services and pods and ipaddress.ip_network(services).overlaps(ipaddress.ip_network(pods)):
        raise invalid(f"Service CIDR {services} overlaps pod CIDR {pods}.", "ServiceCidrOverlapPodCidr")


def _check_access(wish: Mapping[str, Any]) -> None:
    profile, directory = wish.get("apiServerAccessProfile") or {}, wish.get("aadProfile") or {}
    ranges = profile.get("authorizedIPRanges") or []
    if profile.get("enablePrivateCluster") and ranges:
        raise invalid(
            "Authorized IP ranges are not supported on a private cluster: leave one of the two out."
        )
    if len(ranges) > _MOST_RANGES:
        raise invalid(f"There are {len(ranges)} authorized IP ranges; at most {_MOST_RANGES} are allowed.")
    for cidr in ranges:
        _network("apiServerAccessProfile.authorizedIPRanges", cidr, "InvalidAuthorizedIPRanges")
    if directory.get("enableAzureRBAC") and not directory.get("managed"):
        raise invalid("Azure RBAC for Kubernetes needs aadProfile.managed.", "AzureRBACRequiresManagedAAD")


def _check_oidc(wish: Mapping[str, Any], old: Resource | None) -> None:
    before = (old.properties.get("oidcIssuerProfile") or {}).get("enabled") if old else None
    wanted = (wish.get("oidcIssuerProfile") or {}).get("enabled")
    # Tokens of running pods name the issuer, so AKS keeps it once it is enabled.
    if before and wanted is False:
        raise invalid("The OIDC issuer feature cannot be disabled.", "OIDCIssuerFeatureCannotBeDisabled")
    identity = ((wish.get("securityProfile") or {}).get("workloadIdentity") or {}).get("enabled")
    if identity and not (wanted or before):
        raise invalid("Workload identity needs oidcIssuerProfile.enabled.", "OIDCIssuerRequired")


def _check_sku(body: Mapping[str, Any], wish: Mapping[str, Any]) -> None:
    tier = (body.get("sku") or {}).get("tier") or "Free"
    if wish.get("supportPlan") == "AKSLongTermSupport" and tier != "Premium":
        raise invalid("Support plan AKSLongTermSupport needs the tier Premium.", "LTSRequiresPremiumTier")


def _check_identities(world: World, body: Mapping[str, Any], wish: Mapping[str, Any]) -> None:
    identity = body.get("identity") or {}
    kind, assigned = identity.get("type"), list(identity.get("userAssignedIdentities") or {})
    if kind not in ("SystemAssigned", "UserAssigned") and not wish.get("servicePrincipalProfile"):
        raise invalid(
            "Provisioning of resource(s) failed: the cluster has neither a managed identity nor a service "
            "principal.",
            "ServicePrincipalNotFound",
        )
    if kind == "UserAssigned" and len(assigned) != 1:
        raise invalid(
            f"A cluster has exactly one user-assigned identity; {len(assigned)} were given.",
            "InvalidUserAssignedIdentities",
        )
    for id_ in assigned:
        if identities.find(world, id_) is None:
            raise invalid(f"The user-assigned identity {id_} was not found.", "UserAssignedIdentityNotFound")
    kubelet = ((wish.get("identityProfile") or {}).get("kubeletidentity") or {}).get("resourceId")
    if kubelet:
        _check_kubelet(world, kubelet, kind, assigned)


def _check_kubelet(world: World, kubelet: str, kind: object, assigned: Sequence[str]) -> None:
    if kind != "UserAssigned":
        raise invalid(
            "Custom kubelet identity is only supported on clusters with a user-assigned identity of their "
            "own.",
            "CustomKubeletIdentityOnlySupportedOnUserAssignedMSICluster",
        )
    if identities.find(world, kubelet) is None:
        raise invalid(f"The user-assigned identity {kubelet} was not found.", "UserAssignedIdentityNotFound")
    # AKS assigns the kubelet's identity to the machines in the cluster's name.
    own = identities.find(world, assigned[0])
    principal = own.properties["principalId"] if own else ""
    if not access.has(world, principal, _ASSIGN, kubelet):
        raise invalid(
            "The cluster using user-assigned managed identity must be granted 'Managed Identity Operator' "
            "role to "
            f"assign kubelet identity. You can run 'az role assignment create --assignee {principal} --scope "
            f'{kubelet} --role "Managed Identity Operator"\' to grant the permission. See '
            "https://learn.microsoft.com/azure/aks/use-managed-identity#add-role-assignment.",
            "CustomKubeletIdentityMissingPermissionError",
        )


def check_pools(call: Call, body: Mapping[str, Any], scale_sets: Mapping[str, str], region: str) -> None:
    """Refuse a new cluster's pools; `scale_sets` has the ids of the scale sets that they will have."""
    wish = body.get("properties") or {}
    network = wish.get("networkProfile") or {}
    networks = {}
    for profile in wish.get("agentPoolProfiles") or []:
        name = str(profile.get("name"))
        pool_checks.check(
            call.world, name, profile, region=region, owner=scale_sets.get(name, name), old=None
        )
        if id_ := profile.get("vnetSubnetID"):
            found = subnets.check(
                call.world,
                id_,
                region=region,
                outbound=str(network.get("outboundType") or ""),
                nodes=int(profile.get("count", 1)),
            )
            networks[found.key] = found
    _check_outbound(network, has_network=bool(networks))
    if len(networks) > 1:
        raise invalid("All agent pools must be in the same virtual network.", "AgentPoolVnetMismatch")
    ranges = {"service CIDR": ("serviceCidr", "ServiceCidrOverlapExistingSubnetsCidr", "10.0.0.0/16")}
    if network.get("networkPluginMode", "overlay") == "overlay":
        ranges["pod CIDR"] = ("podCidr", "PodCidrOverlapExistingSubnetsCidr", "10.244.0.0/16")
    for found in networks.values():
        for title, (name, code, default) in ranges.items():
            subnets.check_overlap(found, title, network.get(name) or default, code)


def _check_outbound(network: Mapping[str, Any], *, has_network: bool) -> None:
    outbound = network.get("outboundType")
    if outbound in ("userAssignedNATGateway", "userDefinedRouting") and not has_network:
        raise invalid(
            f"OutboundType {outbound} is not supported with the virtual network that AKS makes: set "
            f"vnetSubnetID.",
            "InvalidOutboundType",
        )
    if outbound == "managedNATGateway" and has_network:
        raise invalid(
            "OutboundType managedNATGateway can be used with the virtual network that AKS makes alone: leave "
            "vnetSubnetID out, or take userAssignedNATGateway.",
            "InvalidOutboundType",
        )
