"""The cluster's identities, and the roles of these and of the administrators."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from typing_extensions import TypeVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Observed, Properties
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.driver import AzureDriver
from cloudrec.providers.azure.api.rows import group_name
from cloudrec.providers.azure.api.tracked import LocatedProperties, TrackedCalls, TrackedDriver
from cloudrec.providers.azure.identity.conditions import CONDITIONS, turns_condition
from cloudrec.providers.azure.identity.roles import BLOB_CONTRIBUTOR, POWERFUL, ROLES
from cloudrec.providers.azure.network import network
from cloudrec.providers.base.driver import all_needed, is_ours, name_of
from cloudrec.providers.base.protocol import END_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from azure.mgmt.authorization.v2022_04_01.operations import RoleAssignmentsOperations

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

IDENTITY, ROLE = "identity", "role-assignment"
CONTROL, KUBELET, POD, GUARD = "cluster", "kubelet", "pod", "guard"  # the identities' suffixes
END = "end"  # the suffix of the identity of the workflow that ends the cluster
END_ROLE = "end-stop"  # the suffix of that identity's role
# The kinds that roles are assigned on, from other modules; the cluster's imports this one.
_CLUSTER, _CONTAINER, _REGISTRY = "cluster", "container", "registry"
_OF_CALLER = "operator-"  # the beginning of the suffixes of roles of those who call `up`
_ADMIN_ROLE = "Azure Kubernetes Service RBAC Cluster Admin"
KINDS: Mapping[str, AbstractSet[str]] = {
    IDENTITY: frozenset({groups.GROUP, groups.REGISTRATION}),
    ROLE: frozenset({IDENTITY, network.SUBNET, _CONTAINER, _REGISTRY}),
}

IDENTITY_TYPE = "Microsoft.ManagedIdentity/userAssignedIdentities"
WORKFLOW_TYPE = "Microsoft.Logic/workflows"
_CLUSTER_TYPE = "Microsoft.ContainerService/managedClusters"
_REGISTRY_TYPE = "Microsoft.ContainerRegistry/registries"
# The description of a role assignment is this mark and the values of these tags, separated by colons.
_MARK = "cloudrec"
_DESCRIBED = (TAG_CLUSTER, TAG_KEY, TAG_OWNER)


@dataclass(frozen=True, kw_only=True)
class AzureRoleProperties(Properties):
    """The requested properties of a role assignment.

    Attributes:
        role: the role's name, a key of `ROLES` or `POWERFUL`.
        principal: object id of the person, group or service principal; empty for an identity of the cluster.
        identity: the name of the cluster's identity; empty for another principal.
        principal_type: as Azure names it, such as "User" or "ServicePrincipal".
        condition: what limits the role to some calls, in Azure's language; empty for all that it allows.
    """

    role: str
    principal: str
    identity: str
    principal_type: str
    condition: str = ""


@dataclass(frozen=True, kw_only=True)
class AzureScopedRoleProperties(AzureRoleProperties):
    """The requested properties of a role assignment on a resource whose id is known before it exists.

    Attributes:
        scope: id of that resource.
    """

    scope: str


RoleP_contra = TypeVar("RoleP_contra", contravariant=True, bound=AzureRoleProperties)


@dataclass(frozen=True, kw_only=True)
class _Principal:
    """The principal of a role: an identity of the cluster, by its suffix, or another one by its object id."""

    kind: str = "ServicePrincipal"
    identity: str = ""
    object_id: str = ""


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the identities and the role assignments."""
    made = [
        layout.resource(
            IDENTITY,
            suffix,
            needs=groups.needs(layout, "managedidentity"),
            properties=LocatedProperties(location=layout.region),
            hourly_usd=FREE,
        )
        for suffix in (CONTROL, KUBELET, POD, GUARD, *((END,) if layout.cluster.expires else ()))
    ]
    return [*made, *_roles(layout)]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers by kind."""
    return {IDENTITY: IdentityDriver(azure), ROLE: AzureRoleDriver(azure)}


def of_control(layout: AzureLayout) -> tuple[str, ...]:
    """Return the keys of the roles that the control plane's identity needs before AKS creates the cluster."""
    return layout.keys(ROLE, ("cluster-network", "cluster-kubelet"))


def workflow_id(layout: AzureLayout) -> str:
    """Return the id of the workflow that ends the cluster."""
    return ids.resource(layout.subscription, layout.group, WORKFLOW_TYPE, layout.name)


def of_nodes(layout: AzureLayout) -> tuple[str, ...]:
    """Return the keys of the roles that nodes need to pull images.

    They have none on data: the driver mounts the container with the token of the pod's service account
    (docs/workload-identity-static-pv-mount.md of blob-csi-driver).
    """
    return layout.keys(ROLE, ("kubelet-acr-pull", "kubelet-acr-reader"))


def _roles(layout: AzureLayout) -> list[Resource]:
    control, kubelet, pod, guard, end = (
        _Principal(identity=suffix) for suffix in (CONTROL, KUBELET, POD, GUARD, END)
    )
    admins = layout.settings.administrators

    def below(of_type: str, *names: str) -> str:
        return ids.resource(layout.subscription, layout.group, of_type, *names)

    subnet = (network.subnet_id(layout, network.NODES), layout.key(network.SUBNET, network.NODES))
    nodes = (below(IDENTITY_TYPE, f"{layout.name}-{KUBELET}"), layout.key(IDENTITY, KUBELET))
    registry = (below(_REGISTRY_TYPE, layout.registry), layout.key(_REGISTRY))
    # Another cluster's container is no resource of this one, and exists.
    container = (layout.container_id, layout.key(_CONTAINER) if layout.has_own_storage else "")
    cluster = (below(_CLUSTER_TYPE, layout.name), layout.key(_CLUSTER))
    workflow = (workflow_id(layout), layout.key(END_SCHEDULE))
    return [
        _role(layout, "cluster-network", "Network Contributor", control, subnet),
        _role(layout, "cluster-kubelet", "Managed Identity Operator", control, nodes),
        # A registry in ABAC mode ignores AcrPull and needs the second role; others need the first.
        _role(layout, "kubelet-acr-pull", "AcrPull", kubelet, registry),
        _role(layout, "kubelet-acr-reader", "Container Registry Repository Reader", kubelet, registry),
        _role(layout, "pod-storage", BLOB_CONTRIBUTOR, pod, container),
        *_roles_of_caller(
            layout,
            [
                *([("storage", BLOB_CONTRIBUTOR, container)] if layout.has_own_storage else []),
                ("acr-push", "AcrPush", registry),
                ("acr-writer", "Container Registry Repository Writer", registry),
                *(
                    [("cluster", _ADMIN_ROLE, cluster)]
                    if layout.caller.object_id.lower() not in admins
                    else []
                ),
            ],
        ),
        # The role to scale the pool is in `guard`; scaling adds machines to a subnet, which needs guard-join.
        _role(layout, "guard-look", "Reader", guard, cluster),
        _role(layout, "guard-join", "Virtual Machine Contributor", guard, subnet),
        # No pod and no node has this identity, so a role on the whole cluster is no risk of a run.
        *(
            [_role(layout, END_ROLE, "Azure Kubernetes Service Contributor Role", end, cluster)]
            if layout.cluster.expires
            else []
        ),
        # The end of a budget is a tag of the workflow: the guard moves it, and the workflow reads it.
        *(
            [
                _role(layout, "guard-move-end", "Tag Contributor", guard, workflow),
                _role(layout, "end-look", "Reader", end, workflow),
            ]
            if layout.cluster.has_movable_end
            else []
        ),
        # With it, the keepers of several clusters take turns to have a run.
        *(
            [
                _role(
                    layout,
                    "guard-turns",
                    BLOB_CONTRIBUTOR,
                    guard,
                    container,
                    condition=turns_condition(layout.prefix),
                )
            ]
            if layout.cluster.managed
            else []
        ),
        *(
            _role(
                layout,
                f"admin-{object_id}",
                _ADMIN_ROLE,
                _Principal(kind=kind, object_id=object_id),
                cluster,
            )
            for object_id, kind in admins.items()
        ),
    ]


def _roles_of_caller(
    layout: AzureLayout, roles: Sequence[tuple[str, str, tuple[str, str]]]
) -> list[Resource[AzureScopedRoleProperties]]:
    """Return the roles of who calls `up`: for each a suffix, the role and what it is assigned on.

    Their names have the caller's object id, so that each caller has its own and keeps it when another one
    calls `up`.
    """
    caller = _Principal(kind=layout.caller.kind, object_id=layout.caller.object_id.lower())
    return [
        _role(layout, f"{_OF_CALLER}{suffix}-{caller.object_id}", role, caller, on)
        for suffix, role, on in roles
    ]


def _role(
    layout: AzureLayout,
    suffix: str,
    role: str,
    principal: _Principal,
    on: tuple[str, str],
    *,
    condition: str = "",
) -> Resource[AzureScopedRoleProperties]:
    """Return a role assignment.

    Args:
        layout: the cluster's.
        suffix: of the assignment's name.
        role: the role's name.
        principal: the principal that gets the role.
        on: id of the resource that the role is assigned on, and the key of that resource or of its creator;
            no key if it is no resource of the cluster.
        condition: what limits the role.
    """
    scope, creator = on
    identity = layout.key(IDENTITY, principal.identity) if principal.identity else ""
    needs = tuple(key for key in (identity, creator) if key)
    return layout.resource(
        ROLE,
        suffix,
        needs=needs,
        properties=AzureScopedRoleProperties(
            role=role,
            scope=scope,
            principal=principal.object_id,
            identity=f"{layout.name}-{principal.identity}" if principal.identity else "",
            principal_type=principal.kind,
            condition=condition,
        ),
        hourly_usd=FREE,
    )


class IdentityDriver(TrackedDriver["models.managedidentity.Identity", LocatedProperties]):
    """Handles user-assigned identities."""

    kind = IDENTITY
    charge = FREE
    of_type = IDENTITY_TYPE
    poll_s = 1.0

    @property
    def calls(self) -> TrackedCalls[models.managedidentity.Identity]:
        """The client's methods for this kind."""
        of = self.azure.managedidentity.user_assigned_identities
        return TrackedCalls(
            list=of.list_by_resource_group,
            get=of.get,
            put=of.create_or_update,
            delete=of.delete,
            puts_at_once=True,
            deletes_at_once=True,
        )

    def body(
        self, resource: Resource[LocatedProperties], identities: Mapping[str, str]
    ) -> models.managedidentity.Identity:
        """Return the SDK's model of an identity."""
        del identities
        return models.managedidentity.Identity(
            location=resource.properties.location, tags=dict(resource.tags)
        )


class RoleDriver(AzureDriver[RoleP_contra]):
    """Handles role assignments. They have no tags; their descriptions have the tags' values instead.

    The name of an assignment is computed from the scope, the principal and the role, so that there is never
    a second one. An identity that was created again is another principal: the first one's assignments stay,
    and `down` finds them by their descriptions.
    """

    changeable = frozenset({"condition"})
    deadline_s = 1200.0  # a new principal is not visible everywhere for some minutes
    poll_s = 1.0

    @property
    def calls(self) -> RoleAssignmentsOperations:
        """The client's methods."""
        return self.azure.authorization.role_assignments

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the assignments of the subscription whose descriptions are cloudrec's."""
        # Azure cannot filter assignments by their description. Those of others may have any scope, such as /.
        rows = self.azure.rows(self.calls.list_for_subscription)
        found = [self._observe(row) for row in rows if tags_of(row.description or "")]
        mine = [seen for seen in found if seen.key.partition("/")[0] == self.kind]
        return [seen for seen in mine if is_ours(seen.tags, cluster)]

    def fetch(self, resource: Resource[RoleP_contra]) -> Observed | None:
        """Return the assignment; None if it, its principal or its scope does not exist."""
        principal = self._principal(resource, None)
        scope = self.scope(resource, None) if principal else ""
        if not scope:
            return None
        row = self.azure.get(self.calls.get_by_id, _assignment(resource, scope, principal))
        if row is None:
            return None
        _, created_on = _read_only(row)
        # Another process may have assigned the role a moment ago, so that Azure may still refuse its use.
        if created_on is not None:
            self._note(resource, principal, max(0.0, time.time() - created_on.timestamp()))
        seen = self._observe(row)
        if not seen.tags:
            return seen
        # Azure has one assignment of a role to a principal on a scope. That of the caller on a container may
        # be made for another cluster that uses it. After that cluster's `down`, `up` assigns the role again.
        return replace(seen, name=resource.name, tags=resource.tags)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; raises Azure's error if there is no assignment."""
        self.azure.read(self.calls.get_by_id, identity)
        return Condition.READY, ""

    def make(self, resource: Resource[RoleP_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Assign the role; a second call changes nothing but the condition."""
        del token
        wanted = resource.properties
        principal = self._principal(resource, identities)
        identity = _assignment(resource, self.scope(resource, identities), principal)
        role = f"/subscriptions/{self.azure.subscription}/providers/Microsoft.Authorization/roleDefinitions"
        self.calls.create_by_id(
            identity,
            models.authorization.RoleAssignmentCreateParameters(
                role_definition_id=f"{role}/{(ROLES | POWERFUL)[wanted.role]}",
                principal_id=principal,
                # Without a type Azure assumes a user, and refuses the id of an identity.
                principal_type=wanted.principal_type,
                description=_description(resource.tags),
                condition=wanted.condition or None,
                condition_version=CONDITIONS if wanted.condition else None,
            ),
        )
        self._note(resource, principal)
        return identity

    def change(
        self, resource: Resource[RoleP_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Assign the role with the requested condition."""
        del observed
        self.make(resource, token="", identities=identities)

    def remove(self, observed: Observed) -> None:
        """Delete the assignment."""
        self.calls.delete_by_id(observed.identity)

    def _note(self, resource: Resource[RoleP_contra], principal: str, age_s: float = 0.0) -> None:
        """Record an identity whose new role may not have an effect yet.

        Roles of other principals are not recorded, since no call of `up` depends on them.
        """
        if resource.properties.identity:
            self.azure.grants.add(principal, age_s)

    def _principal(self, resource: Resource[RoleP_contra], identities: Mapping[str, str] | None) -> str:
        """Return the object id of the principal; empty if the identity does not exist.

        Args:
            resource: the assignment.
            identities: of the resources that it needs; None to look the identity up by its name.
        """
        if resource.properties.principal:
            return resource.properties.principal
        calls = self.azure.managedidentity.user_assigned_identities
        # The principal's id is new each time the identity is created, so that it is read and never computed.
        if identities is not None:
            identity = all_needed(resource, identities, IDENTITY)[0]
            group, name = ids.group_of(identity), ids.names(identity)[0]
            return str(self.azure.read(calls.get, group, name).principal_id).lower()
        group = group_name(resource.tags[TAG_CLUSTER])
        row = self.azure.get(calls.get, group, resource.properties.identity)
        return str(row.principal_id).lower() if row is not None else ""

    @abstractmethod
    def scope(self, resource: Resource[RoleP_contra], identities: Mapping[str, str] | None) -> str:
        """Return the id of the resource that the role is assigned on; empty if that does not exist.

        Args:
            resource: the assignment.
            identities: of the resources that it needs; None to look the resource up.
        """

    def _observe(self, row: models.authorization.RoleAssignment) -> Observed:
        tags = tags_of(row.description or "")
        assignment, created_on = _read_only(row)
        name = name_of(tags, assignment)
        return Observed(
            kind=self.kind,
            name=name,
            identity=ids.known(
                f"{row.scope}/providers/Microsoft.Authorization/roleAssignments/{assignment}"
            ).lower(),
            condition=Condition.READY,
            properties={"condition": row.condition or ""},
            tags=tags,
            location="global",
            created=created_on.timestamp() if created_on else None,
            hourly_usd=FREE,
            # Another caller's: `up` leaves it, `down` removes it.
            outside_graph=name.removeprefix(f"{tags.get(TAG_CLUSTER, '')}-").startswith(_OF_CALLER),
        )


class AzureRoleDriver(RoleDriver[AzureScopedRoleProperties]):
    """Handles role assignments on resources whose ids are known before they exist."""

    kind = ROLE

    def scope(
        self, resource: Resource[AzureScopedRoleProperties], identities: Mapping[str, str] | None
    ) -> str:
        """Return the id of that resource."""
        del identities
        return resource.properties.scope


def _read_only(row: models.authorization.RoleAssignment) -> tuple[str, datetime | None]:
    """Return an assignment's name and its time of creation, which the SDK declares as None."""
    name: object = row.name
    moment: object = row.created_on
    return str(name or ""), moment if isinstance(moment, datetime) else None


def tags_of(description: str) -> dict[str, str]:
    """Return the tags in a role assignment's description; empty if it is not one of cloudrec's."""
    mark, *values = description.split(":", len(_DESCRIBED))
    if mark != _MARK or len(values) != len(_DESCRIBED):
        return {}
    return dict(zip(_DESCRIBED, values, strict=True))


def _description(tags: Mapping[str, str]) -> str:
    return ":".join((_MARK, *(tags[tag] for tag in _DESCRIBED)))


def _assignment(resource: Resource[AzureRoleProperties], on: str, principal: str) -> str:
    """Return the id of a role assignment, in lower case.

    Azure requires a UUID as the name. It is computed, so that it can be found again without a journal.
    """
    scope, role = on.lower(), resource.properties.role
    name = uuid5(NAMESPACE_URL, f"{scope}|{principal}|{role}")
    return f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}".lower()
