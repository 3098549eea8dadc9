"""IAM policies: read, edited, and written back with the etag that was read.

A policy lists the members of each role, and others edit it too. Google refuses a write with an old etag; the
engine then repeats the change, from the read on. Policies are handled as JSON, which all services share.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Observed, Properties
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.gcp.api.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp

_VERSION = 3  # the first version of policies that may have conditions
_DELETED = "deleted:"
_BETWEEN = "#"  # in a binding's identity: holder#member


@dataclass(frozen=True, kw_only=True, order=True)
class Grant:
    """One role of one member.

    Attributes:
        role: "roles/logging.logWriter".
        member: as in the policy; a deleted account is `deleted:serviceAccount:NAME?uid=NUMBER`.
        title: of the condition; empty if there is none.
        expression: of the condition, in CEL; empty if there is none.
    """

    role: str
    member: str
    title: str = ""
    expression: str = ""

    @property
    def account(self) -> str:
        """The member without the prefix and the number of a deleted account."""
        return self.member.removeprefix(_DELETED).partition("?uid=")[0]


def grants(gcp: Gcp, holder: str) -> list[Grant]:
    """Return the grants in the policy of a project, bucket or repository; empty if it does not exist.

    Args:
        gcp: the project.
        holder: path of the resource: projects/P, b/BUCKET or projects/P/locations/L/repositories/R.
    """
    policy = gcp.or_none(lambda: gcp.repeat(lambda: _read(gcp, holder)))
    return _grants(policy) if policy else []


def replace(gcp: Gcp, holder: str, old: Iterable[Grant], new: Iterable[Grant]) -> None:
    """Remove some grants from a policy and add others; an unchanged policy is not written.

    Raises:
        google.api_core.exceptions.GoogleAPICallError: Google refuses; ABORTED if another writer was faster.
    """
    gone, wanted = set(old), set(new)
    # Threads of this process wait for each other, instead of failing by the etag one after another.
    with gcp.lock(holder):
        policy = gcp.repeat(lambda: _read(gcp, holder))
        there = set(_grants(policy))
        if (there - gone) | wanted != there:
            _edit(policy, gone - wanted, wanted - there)
            _write(gcp, holder, policy)


def _grants(policy: Mapping[str, Any]) -> list[Grant]:
    return [
        Grant(role=role, member=member, title=title, expression=expression)
        for binding in policy.get("bindings", ())
        for role, title, expression in [_key(binding)]
        for member in binding.get("members", ())
    ]


def _key(binding: Mapping[str, Any]) -> tuple[str, str, str]:
    condition = binding.get("condition", {})
    return binding["role"], condition.get("title", ""), condition.get("expression", "")


def _edit(policy: dict[str, Any], gone: AbstractSet[Grant], added: AbstractSet[Grant]) -> None:
    """Change the lists of members in place; everything else in the policy stays as others wrote it."""
    bindings: dict[tuple[str, str, str], dict[str, Any]] = {}
    kept = policy.setdefault("bindings", [])
    for binding in kept:
        key = _key(binding)
        bindings[key] = binding
        out = {grant.member for grant in gone if (grant.role, grant.title, grant.expression) == key}
        binding["members"] = [member for member in binding.get("members", ()) if member not in out]
    for grant in sorted(added):
        key = grant.role, grant.title, grant.expression
        if key not in bindings:
            condition = {"condition": {"title": grant.title, "expression": grant.expression}}
            bindings[key] = {"role": grant.role, "members": [], **(condition if grant.expression else {})}
            kept.append(bindings[key])
        bindings[key]["members"].append(grant.member)
    policy["bindings"] = [binding for binding in kept if binding["members"]]
    policy["version"] = _VERSION


def _read(gcp: Gcp, holder: str) -> dict[str, Any]:
    # Each service has its own path, and its own way to request the version of the policy.
    if holder.startswith("b/"):
        path = f"/storage/v1/{holder}/iam?optionsRequestedPolicyVersion={_VERSION}"
        answer = gcp.send("storage", "GET", path)
    elif "/repositories/" in holder:
        path = f"/v1/{holder}:getIamPolicy?options.requestedPolicyVersion={_VERSION}"
        answer = gcp.send("artifactregistry", "GET", path)
    else:
        options = {"options": {"requestedPolicyVersion": _VERSION}}
        answer = gcp.send("cloudresourcemanager", "POST", f"/v3/{holder}:getIamPolicy", options)
    policy: dict[str, Any] = answer
    return policy


def _write(gcp: Gcp, holder: str, policy: Mapping[str, Any]) -> None:
    if holder.startswith("b/"):
        gcp.send("storage", "PUT", f"/storage/v1/{holder}/iam", policy)
    else:
        service = "artifactregistry" if "/repositories/" in holder else "cloudresourcemanager"
        version = "v1" if "/repositories/" in holder else "v3"
        gcp.send(service, "POST", f"/{version}/{holder}:setIamPolicy", {"policy": policy})


@dataclass(frozen=True, kw_only=True)
class BindingProperties(Properties):
    """The requested properties of a member's roles.

    Attributes:
        holder: path of the resource with the policy, as `grants` takes it.
        member: as in the policy: "serviceAccount:EMAIL" or "principal://...".
        grants: pairs of a role and a condition's expression, sorted; the expression is empty if there is no
            condition.
    """

    holder: str
    member: str
    grants: tuple[tuple[str, str], ...]


class BindingDriver(GcpDriver[BindingProperties]):
    """Handles the roles of one member in one policy. The identity is HOLDER#MEMBER."""

    changeable = frozenset({"grants"})
    # Of the conditions of cloudrec's grants: grants with another title belong to others and stay.
    title: ClassVar[str] = ""

    @abstractmethod
    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Return the policies to search: each with its holder, and the tags of the members to look for."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the cluster's members in each policy."""
        found = []
        for holder, members in self.holders(cluster):
            if not members:
                continue  # a deployer without the permission to read the policy has no accounts to look for
            there = {grant.account for grant in self._ours(holder)}
            # The roles are left out: only `fetch`, for one resource, compares them.
            found += [
                self._observe(holder, member, tags, ()) for member, tags in members.items() if member in there
            ]
        return found

    def fetch(self, resource: Resource[BindingProperties]) -> Observed | None:
        """Find the member in the policy; None if it has no role there."""
        holder, member = resource.properties.holder, resource.properties.member
        there = self._ours(holder, member)
        return self._observe(holder, member, resource.tags, there) if there else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the member has a role in the policy, else GONE."""
        return (Condition.READY if self._ours(*_parts(identity)) else Condition.GONE), ""

    def make(
        self, resource: Resource[BindingProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Grant the roles. The API has no idempotency token; a repeated grant changes nothing."""
        del token
        identity = f"{resource.properties.holder}{_BETWEEN}{resource.properties.member}"
        self.complete(resource, identity, identities=identities)
        return identity

    def complete(
        self, resource: Resource[BindingProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Grant the requested roles, and remove the grants of a deleted account of the same name."""
        del identities
        holder, member = _parts(identity)
        wanted = [
            Grant(role=role, member=member, title=self.title, expression=expression)
            for role, expression in resource.properties.grants
        ]
        replace(self.gcp, holder, self._ours(holder, member), wanted)

    def remove(self, observed: Observed) -> None:
        """Remove all grants of the member."""
        holder, member = _parts(observed.identity)
        replace(self.gcp, holder, self._ours(holder, member), ())

    def _ours(self, holder: str, member: str = "") -> list[Grant]:
        there = grants(self.gcp, holder)
        return [each for each in there if each.title == self.title and member in {"", each.account}]

    def _observe(self, holder: str, member: str, tags: Mapping[str, str], there: Sequence[Grant]) -> Observed:
        return Observed(
            kind=self.kind,
            name=name_of(tags, member),
            identity=f"{holder}{_BETWEEN}{member}",
            condition=Condition.READY,
            properties={
                "grants": tuple(
                    sorted((each.role, each.expression) for each in there if each.member == member)
                )
            },
            tags=tags,
            location=self.gcp.region,
            hourly_usd=FREE,
        )


def inherited(tags: Mapping[str, str], kind: str, suffix: str = "") -> dict[str, str]:
    """Return the tags of a binding, from the tags of the resource that it is for: a policy has none."""
    title = tags.get(TAG_CLUSTER, "")
    name = f"{title}-{suffix}" if suffix else title
    return {TAG_CLUSTER: title, TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: f"{kind}/{name}"}


def _parts(identity: str) -> tuple[str, str]:
    holder, _, member = identity.partition(_BETWEEN)
    return holder, member
