"""IAM policies, which others edit too: read, edited, and written back with the etag that was read.

A policy is a list of who has which role. What is refused since somebody was faster is made again by the
engine, from the reading on. Policies are handled as the services' JSON, which is the same for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.cloud.driver import name_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER, Condition, Observed
from cloudrec.providers.gcp.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp

_VERSION = 3  # of policies that may have conditions
_DELETED = "deleted:"
_BETWEEN = "#"  # in a binding's identity: holder#member


@dataclass(frozen=True, kw_only=True, order=True)
class Grant:
    """One role that one member has.

    Attributes:
        role: "roles/logging.logWriter".
        member: as the policy writes it: one that was deleted as `deleted:serviceAccount:NAME?uid=NUMBER`.
        title: of the condition; empty where there is none.
        expression: of the condition.
    """

    role: str
    member: str
    title: str = ""
    expression: str = ""

    @property
    def who(self) -> str:
        """The member, whether it was deleted or not."""
        return self.member.removeprefix(_DELETED).partition("?uid=")[0]


def grants(gcp: Gcp, holder: str) -> list[Grant]:
    """Return what the policy of a project, bucket or repository grants; none where that is not there.

    Args:
        gcp: the project.
        holder: path of what has the policy: projects/P, b/BUCKET, projects/P/locations/L/repositories/R.
    """
    policy = gcp.or_none(lambda: gcp.repeat(lambda: _read(gcp, holder)))
    return _grants(policy) if policy else []


def replace(gcp: Gcp, holder: str, old: Iterable[Grant], new: Iterable[Grant]) -> None:
    """Take some grants out of a policy and put others in; what is as wanted is not written.

    Raises:
        google.api_core.exceptions.GoogleAPICallError: Google refuses; ABORTED where somebody was faster.
    """
    gone, wanted = set(old), set(new)
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
    """Change the lists of members in place: whatever else others wrote into the policy stays."""
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


class BindingDriver(GcpDriver):
    """Handles the roles that one member has in one policy. The identity is HOLDER#MEMBER.

    A resource's properties: `holder`, `member`, and `grants`, each a role and a condition's expression.
    """

    changeable = frozenset({"grants"})
    title: ClassVar[str] = ""  # of the conditions of our grants, by which they are told from others

    @abstractmethod
    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Tell where to look: each policy's holder, and the tags of each member that may be ours there."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Look for our members in each policy."""
        found = []
        for holder, members in self.holders(cluster):
            there = {grant.who for grant in self._ours(holder)}
            found += [self._observe(holder, who, tags, ()) for who, tags in members.items() if who in there]
        return found

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for the member in the policy."""
        holder, who = resource.properties["holder"], resource.properties["member"]
        there = self._ours(holder, who)
        return self._observe(holder, who, resource.tags, there) if there else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look for the member in the policy."""
        return (Condition.READY if self._ours(*_parts(identity)) else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Grant what is wanted; Google has no token for it, but a second time it changes nothing."""
        del token
        identity = f"{resource.properties['holder']}{_BETWEEN}{resource.properties['member']}"
        self.complete(resource, identity, identities=identities)
        return identity

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Grant what is wanted, and take back what was granted to an account that was deleted."""
        del identities
        holder, who = _parts(identity)
        wanted = [
            Grant(role=role, member=who, title=self.title, expression=expression)
            for role, expression in resource.properties["grants"]
        ]
        replace(self.gcp, holder, self._ours(holder, who), wanted)

    def remove(self, observed: Observed) -> None:
        """Take back all that was granted."""
        holder, who = _parts(observed.identity)
        replace(self.gcp, holder, self._ours(holder, who), ())

    def _ours(self, holder: str, who: str = "") -> list[Grant]:
        there = grants(self.gcp, holder)
        return [each for each in there if each.title == self.title and who in {"", each.who}]

    def _observe(self, holder: str, who: str, tags: Mapping[str, str], there: Sequence[Grant]) -> Observed:
        return Observed(
            kind=self.kind,
            name=name_of(tags, who),
            identity=f"{holder}{_BETWEEN}{who}",
            condition=Condition.READY,
            properties={
                "grants": tuple(sorted((each.role, each.expression) for each in there if each.member == who))
            },
            tags=tags,
            location=self.gcp.region,
        )


def inherited(tags: Mapping[str, str], kind: str, suffix: str = "") -> dict[str, str]:
    """Return the tags that a binding would have, by those of what it is for."""
    title = tags.get(TAG_CLUSTER, "")
    name = f"{title}-{suffix}" if suffix else title
    return {TAG_CLUSTER: title, TAG_OWNER: tags.get(TAG_OWNER, ""), TAG_KEY: f"{kind}/{name}"}


def _parts(identity: str) -> tuple[str, str]:
    holder, _, who = identity.partition(_BETWEEN)
    return holder, who
