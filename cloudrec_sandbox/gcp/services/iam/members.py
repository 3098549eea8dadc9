"""The members of policies: which forms are allowed, and which members exist.

`identity_pools` of /_control: workload identity pools that earlier clusters made, such as
["sandbox-project.svc.id.goog"]; a cluster's own pool exists as soon as its creation begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import setting

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World

PoolSource = Callable[["World"], Iterable[str]]
_sources: list[PoolSource] = []


@dataclass
class Pools:
    """The workload identity pools that have existed."""

    seen: set[str] = field(default_factory=set)


_EVERYBODY = ("allUsers", "allAuthenticatedUsers")
_POOLED = re.compile(
    r"(?:principal|principalSet)://iam\.googleapis\.com/projects/(?P<number>[^/]+)/locations/global"
    r"/workloadIdentityPools/(?P<pool>[^/]+)/(?:subject/.+|attribute\.[^/]+/.+|\*|namespace/[^/]+|group/.+)"
)
_KUBERNETES = re.compile(r"serviceAccount:(?P<pool>[a-z0-9-]+\.svc\.id\.goog)\[[a-z0-9-]+/[a-z0-9.-]+\]")
_PERSON = re.compile(r"(?:user|group|serviceAccount):[^\s:@]+@[^\s:@]+|domain:[^\s:@]+")
_BURIED = re.compile(r"deleted:(?:user|group|serviceAccount):[^\s:@]+@[^\s:@?]+\?uid=\d+")
_OF_PROJECT = re.compile(r"project(?:Owner|Editor|Viewer):[a-z0-9-]+")


def pool_source(function: PoolSource) -> PoolSource:
    """Register a function that yields the pools that exist now."""
    _sources.append(function)
    return function


def check(world: World, who: str, holder: str) -> None:
    """Raise GcpError for a member that this holder's policy may not have."""
    if who in _EVERYBODY:
        if holder.startswith("projects/") and holder.count("/") == 1:
            raise _invalid(f"The member {who} is not allowed in the policy of a project.")
        return
    pooled = _POOLED.fullmatch(who) or _KUBERNETES.fullmatch(who)
    if pooled:
        _check_pool(world, who, pooled)
        return
    if _BURIED.fullmatch(who) or (_OF_PROJECT.fullmatch(who) and holder.startswith("b/")):
        return
    if not _PERSON.fullmatch(who):
        raise _invalid(
            f"The member {who} is of an unknown type. Please set a valid type prefix for the member."
        )
    if who.startswith("serviceAccount:"):
        _check_account(world, who.partition(":")[2])


def _check_account(world: World, email: str) -> None:
    from cloudrec_sandbox.gcp.services.iam.accounts import usable  # noqa: PLC0415 - accounts import policies

    if not usable(world, email):
        raise _invalid(f"Service account {email} does not exist.")


def _check_pool(world: World, who: str, found: re.Match[str]) -> None:
    """Check a workload identity pool: it has its project's id as a name, and principals have its number."""
    parts = found.groupdict()
    project = projects.find(world, parts["pool"].removesuffix(".svc.id.goog"))
    number = parts.get("number")
    named = project is not None and number in (None, project.number)
    if not named or not _has_pool(world, parts["pool"]):
        raise _invalid(
            f"Identity Pool does not exist ({parts['pool']}). Please check that you specified a valid"
            f" resource name as returned in the `name` attribute in the configuration API: {who}"
        )


def _has_pool(world: World, pool: str) -> bool:
    """Return whether a cluster has ever made the pool, which stays after the cluster."""
    seen = world.state(Pools).seen
    for source in _sources:
        seen.update(source(world))
    return pool in seen


def _invalid(text: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", text)


def _write_pools(world: World, names: list[str]) -> None:
    world.state(Pools).seen = set(names)


setting("identity_pools", read=lambda world: sorted(world.state(Pools).seen), write=_write_pools)
