"""Identities, each with no more than its work needs, and the roles that they and people have."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from cloudrec.cloud.driver import all_needed, is_ours
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Observed
from cloudrec.providers.azure import groups, ids, network
from cloudrec.providers.azure.driver import AzureDriver
from cloudrec.providers.azure.roles import ROLES
from cloudrec.providers.azure.rows import group_name
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

IDENTITY, ROLE = "identity", "role-assignment"
CONTROL, KUBELET, POD, GUARD = "cluster", "kubelet", "pod", "guard"  # the identities' suffixes
# What roles are assigned on, which other files describe.
_CLUSTER, _CONTAINER, _REGISTRY = "cluster", "container", "registry"
KINDS: Mapping[str, AbstractSet[str]] = {
    IDENTITY: frozenset({groups.GROUP, groups.REGISTRATION}),
    ROLE: frozenset({IDENTITY, network.SUBNET, _CONTAINER, _REGISTRY}),
}

IDENTITY_TYPE = "Microsoft.ManagedIdentity/userAssignedIdentities"
_CLUSTER_TYPE = "Microsoft.ContainerService/managedClusters"
_REGISTRY_TYPE = "Microsoft.ContainerRegistry/registries"
_CONTAINER_TYPE = "Microsoft.Storage/storageAccounts/blobServices/containers"
_MARK = "cloudrec"  # what the descriptions of our role assignments begin with
_TOLD = (TAG_CLUSTER, TAG_KEY, TAG_OWNER)  # after it, in this order


@dataclass(frozen=True, kw_only=True)
class _Principal:
    """Who is given a role: an identity of ours, by its suffix, or somebody by object id."""

    kind: str = "ServicePrincipal"
    identity: str = ""
    object_id: str = ""


def resources(layout: Layout) -> list[Resource]:
    """Describe the identities and the roles."""
    made = [
        layout.resource(
            IDENTITY,
            suffix,
            needs=groups.needs(layout, "managedidentity"),
            properties={"location": layout.region},
        )
        for suffix in (CONTROL, KUBELET, POD, GUARD)
    ]
    return [*made, *_roles(layout)]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {driver.kind: driver(azure) for driver in (IdentityDriver, RoleDriver)}


def of_control(layout: Layout) -> tuple[str, ...]:
    """Return the keys of the roles that the cluster's own identity has before there is a cluster."""
    return layout.keys(ROLE, ("cluster-network", "cluster-kubelet"))


def of_nodes(layout: Layout) -> tuple[str, ...]:
    """Return the keys of the roles that nodes have, with which they load images and mount data."""
    return layout.keys(ROLE, ("kubelet-acr-pull", "kubelet-acr-reader", "kubelet-storage"))


def _roles(layout: Layout) -> list[Resource]:
    control, kubelet, pod, guard = (_Principal(identity=suffix) for suffix in (CONTROL, KUBELET, POD, GUARD))
    caller = _Principal(kind=layout.caller.kind, object_id=layout.caller.object_id.lower())

    def below(of_type: str, *names: str) -> str:
        return ids.resource(layout.subscription, layout.group, of_type, *names)

    subnet = (network.subnet_id(layout, network.NODES), layout.key(network.SUBNET, network.NODES))
    nodes = (below(IDENTITY_TYPE, f"{layout.name}-{KUBELET}"), layout.key(IDENTITY, KUBELET))
    registry = (below(_REGISTRY_TYPE, layout.registry), layout.key(_REGISTRY))
    container = (
        below(_CONTAINER_TYPE, layout.storage_account, "default", layout.settings.container),
        layout.key(_CONTAINER),
    )
    cluster = (below(_CLUSTER_TYPE, layout.name), layout.key(_CLUSTER))
    admins = {caller.object_id: caller.kind, **layout.settings.administrators}
    return [
        _role(layout, "cluster-network", "Network Contributor", control, subnet),
        _role(layout, "cluster-kubelet", "Managed Identity Operator", control, nodes),
        # Which of the two counts depends on the registry's mode.
        _role(layout, "kubelet-acr-pull", "AcrPull", kubelet, registry),
        _role(layout, "kubelet-acr-reader", "Container Registry Repository Reader", kubelet, registry),
        _role(layout, "kubelet-storage", "Storage Blob Data Contributor", kubelet, container),
        _role(layout, "pod-storage", "Storage Blob Data Contributor", pod, container),
        _role(layout, "operator-storage", "Storage Blob Data Contributor", caller, container),
        _role(layout, "operator-acr-push", "AcrPush", caller, registry),
        _role(layout, "operator-acr-writer", "Container Registry Repository Writer", caller, registry),
        # What the guard may scale, whose machines join a subnet, is told beside it in `guard`.
        _role(layout, "guard-look", "Reader", guard, cluster),
        _role(layout, "guard-join", "Virtual Machine Contributor", guard, subnet),
        *(
            _role(
                layout,
                f"admin-{object_id}",
                "Azure Kubernetes Service RBAC Cluster Admin",
                _Principal(kind=kind, object_id=object_id),
                cluster,
            )
            for object_id, kind in admins.items()
        ),
    ]


def _role(layout: Layout, suffix: str, role: str, principal: _Principal, on: tuple[str, str]) -> Resource:
    """Describe a role on a scope, which a resource of this key makes."""
    scope, made_by = on
    needs = (layout.key(IDENTITY, principal.identity), made_by) if principal.identity else (made_by,)
    return layout.resource(
        ROLE,
        suffix,
        needs=needs,
        properties={
            "role": role,
            "scope": scope,
            "principal": principal.object_id,
            "identity": f"{layout.name}-{principal.identity}" if principal.identity else "",
            "principal_type": principal.kind,
        },
    )


class IdentityDriver(GroupDriver):
    """Handles user-assigned identities."""

    kind = IDENTITY
    service, collection, of_type = "managedidentity", "user_assigned_identities", IDENTITY_TYPE
    listing, putting, deleting = "list_by_resource_group", "create_or_update", "delete"
    poll_s = 1.0

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return an identity."""
        del identities
        return self.models.Identity(location=resource.properties["location"], tags=dict(resource.tags))


class RoleDriver(AzureDriver):
    """Handles role assignments, which bear no tags: their descriptions tell whose they are.

    An assignment's name follows from who has which role on what, so that a second one cannot be made. An
    identity that was made anew is another principal: what the first one had stays behind, and goes.
    """

    kind = ROLE
    deadline_s = 1200.0  # a principal that is seconds old is not known everywhere
    poll_s = 1.0

    @property
    def calls(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The client's methods."""
        return self.azure.client("authorization").role_assignments

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List all of the subscription, and keep those whose description is ours."""
        found = [self._observe(row) for row in self.azure.rows(self.calls.list_for_subscription)]
        mine = [seen for seen in found if seen.key.partition("/")[0] == self.kind]
        return [seen for seen in mine if is_ours(seen.tags, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by the name that follows from its principal, where there is one."""
        principal = self._principal(resource, None)
        scope = self.scope(resource, None) if principal else ""
        if not scope:
            return None
        row = self.azure.get(self.calls.get_by_id, _assignment(resource, scope, principal))
        if row is None:
            return None
        if row.created_on is not None:  # by another process, perhaps a moment ago
            self._note(resource, principal, max(0.0, time.time() - row.created_on.timestamp()))
        return self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.azure.read(self.calls.get_by_id, identity)
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Assign the role; a second time, nothing changes."""
        del token
        wanted = resource.properties
        principal = self._principal(resource, identities)
        identity = _assignment(resource, self.scope(resource, identities), principal)
        models = self.azure.models("authorization")
        role = f"/subscriptions/{self.azure.subscription}/providers/Microsoft.Authorization/roleDefinitions"
        self.calls.create_by_id(
            identity,
            models.RoleAssignmentCreateParameters(
                role_definition_id=f"{role}/{ROLES[wanted['role']]}",
                principal_id=principal,
                principal_type=wanted["principal_type"],
                description=_description(resource.tags),
            ),
        )
        self._note(resource, principal)
        return identity

    def remove(self, observed: Observed) -> None:
        """Take the role away."""
        self.calls.delete_by_id(observed.identity)

    def _note(self, resource: Resource, principal: str, age_s: float = 0.0) -> None:
        """Remember whom Azure may still refuse; what people are given is for none of what they do here."""
        if resource.properties["identity"]:
            self.azure.grants.add(principal, age_s)

    def _principal(self, resource: Resource, identities: Mapping[str, str] | None) -> str:
        """Return the object id of who has the role; empty where the identity is not there.

        Args:
            resource: the assignment.
            identities: of what it needs; None to look it up, and not to mind that it is missing.
        """
        if resource.properties["principal"]:
            return str(resource.properties["principal"])
        calls = self.azure.client("managedidentity").user_assigned_identities
        if identities is not None:
            identity = all_needed(resource, identities, IDENTITY)[0]
            row = self.azure.read(calls.get, ids.group_of(identity), *ids.names(identity))
        else:
            row = self.azure.get(
                calls.get, group_name(resource.tags[TAG_CLUSTER]), resource.properties["identity"]
            )
        return str(row.principal_id).lower() if row is not None else ""

    def scope(self, resource: Resource, identities: Mapping[str, str] | None) -> str:
        """Return what the role is on; empty where that is not there.

        Args:
            resource: the assignment.
            identities: of what it needs; None to look it up, and not to mind that it is missing.
        """
        del identities
        return str(resource.properties["scope"])

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's model
        tags = tags_of(row.description or "")
        return Observed(
            kind=self.kind,
            name=tags.get(TAG_KEY, row.name).partition("/")[2] or row.name,
            identity=f"{row.scope}/providers/Microsoft.Authorization/roleAssignments/{row.name}".lower(),
            condition=Condition.READY,
            tags=tags,
            location="global",
            created=row.created_on.timestamp() if row.created_on else None,
        )


def tags_of(description: str) -> dict[str, str]:
    """Read the tags that a role assignment would have off its description; none where it is not ours."""
    mark, *told = description.split(":", len(_TOLD))
    if mark != _MARK or len(told) != len(_TOLD):
        return {}
    return dict(zip(_TOLD, told, strict=True))


def _description(tags: Mapping[str, str]) -> str:
    return ":".join((_MARK, *(tags[tag] for tag in _TOLD)))


def _assignment(resource: Resource, on: str, principal: str) -> str:
    """Return the id of a role assignment, written as Azure does not care for."""
    scope, role = on.lower(), resource.properties["role"]
    name = uuid5(NAMESPACE_URL, f"{scope}|{principal}|{role}")
    return f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}".lower()
