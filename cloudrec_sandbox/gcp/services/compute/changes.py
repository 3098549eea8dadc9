"""Changes of Compute's resources: insert, delete and all others are operations, which may fail at their end.

`failures` of /_control: [{"action": "networks.insert", "code": "INTERNAL_ERROR", "message": ..., "times": 1}]
makes the operations of the next such calls (a regular expression) start and end in an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest, setting
from cloudrec_sandbox.gcp.resources import checks, operations, store
from cloudrec_sandbox.gcp.resources.operations import Failure
from cloudrec_sandbox.gcp.resources.places import region_of
from cloudrec_sandbox.gcp.services.compute.capacity import quotas
from cloudrec_sandbox.gcp.services.compute.collections import place_exists
from cloudrec_sandbox.gcp.services.compute.references import in_use, ready, refer, stamp, user_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource
    from cloudrec_sandbox.gcp.services.compute.collections import Collection

    Check = Callable[[Call, dict[str, Any]], None]
    Finish = Callable[[World, str], Failure | None]

durations({"compute-change": 5, "compute-delete": 10})

_metrics: dict[str, str] = {}


@dataclass
class Failures:
    """The operations that will fail."""

    orders: list[dict[str, Any]] = field(default_factory=list)


def inserts(collection: Collection, check: Check | None = None, finish: Finish | None = None) -> None:
    """Register insert: `check` refuses and fills in at once, `finish` runs at the operation's end."""
    title = collection.title
    if collection.quota:
        _metrics[collection.name] = collection.quota

    @rest(
        "compute",
        f"{title}.insert",
        "POST",
        collection.url,
        body=collection.message,
        query=("requestId",),
        permission=collection.permission("create"),
    )
    def insert(call: Call) -> dict[str, Any]:
        place_exists(call)
        document = call.body
        collection.demand(call, "create", document)
        path = collection.path(call, checks.name(document.get("name"), "resource.name"))
        checks.labels(document.get("labels", {}), "resource.labels")
        if store.find(call.world, "compute", path):
            raise GcpError("ALREADY_EXISTS", f"The resource '{path}' already exists")
        for name in collection.refers:
            refer(call, document, name)
        if check:
            check(call, document)
        _fill(call, collection, document, path)
        resource = store.add(call.world, "compute", collection.name, path, document)
        seconds = call.world.duration(collection.duration)
        arguments = (path, collection.quota, finish)
        try:
            return begin(call, "insert", path, seconds=seconds, step=made, arguments=arguments)
        finally:
            resource.hidden["busy"] = True

    del insert


def _fill(call: Call, collection: Collection, document: dict[str, Any], path: str) -> None:
    store.identify(call.world, document, path, f"compute#{collection.noun}")
    for key in ("region", "zone"):
        if key in call.params:
            document[key] = store.link(f"projects/{call.project}/{key}s/{call.params[key]}")


def made(world: World, path: str, quota: str, finish: Finish | None) -> Failure | None:
    """End an insert: the resource exists, or it failed and is removed."""
    resource = store.need(world, "compute", path)
    # Compute accepts an insert above the quota, and its operation fails.
    failure = _over_quota(world, path, quota) or (finish(world, path) if finish else None)
    if failure:
        store.remove(world, "compute", path)
    resource.hidden.pop("busy", None)
    return failure


def _over_quota(world: World, path: str, metric: str) -> Failure | None:
    text = quotas.over(world, _region(path), metric) if metric else ""
    return Failure("QUOTA_EXCEEDED", text, http=403) if text else None


def _region(path: str) -> str:
    """Return the region of a resource, by its path; '' for a global one."""
    where, _, rest_ = path.split("/", 2)[2].partition("/")
    return "" if where == "global" else region_of(rest_.partition("/")[0])


@quotas.usage
def counted(world: World, place: str) -> Mapping[str, float]:
    """Return how many resources there are of each kind that a quota limits."""
    total: dict[str, float] = {}
    for each in store.within(world, "compute", "projects/"):
        metric, region = _metrics.get(each.kind, ""), _region(each.path)
        if metric and place == (region if region and quotas.is_regional(metric) else quotas.GLOBAL):
            total[metric] = total.get(metric, 0.0) + 1
    return total


def begin(
    call: Call,
    kind: str,
    path: str,
    *,
    seconds: float,
    step: Callable[..., Failure | None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> dict[str, Any]:
    """Begin an operation, unless too many run; `failures` may order that it fails."""
    known = call.world.state(operations.Operations).compute.values()
    running = sum(each["status"] != "DONE" for each in known)
    if running >= quotas.limit(call.world, quotas.GLOBAL, "CONCURRENT_OPERATIONS"):
        # The insert has stored the resource before its operation: a refused call leaves nothing.
        if kind == "insert":
            store.remove(call.world, "compute", path)
        raise _too_many(call)
    failure = _ordered(call)
    if failure:
        step, arguments = failed, (path, kind == "insert", failure)
    return operations.begin(call, kind, path, seconds=seconds, step=step, arguments=arguments)


def _too_many(call: Call) -> GcpError:
    metric = "compute.googleapis.com/concurrent_operations"
    return GcpError(
        "PERMISSION_DENIED",
        f"Quota exceeded for quota metric 'Concurrent operations' of service 'compute.googleapis.com' for"
        f" consumer 'project:{call.project}'.",
        reason="CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
        classic="rateLimitExceeded",
        metadata={"service": "compute.googleapis.com", "metric_name": metric},
    )


def _ordered(call: Call) -> Failure | None:
    orders = call.world.state(Failures).orders
    for order in orders:
        if re.fullmatch(order["action"], call.action):
            order["times"] -= 1
            if order["times"] <= 0:
                orders.remove(order)
            return Failure(order["code"], order["message"])
    return None


def failed(world: World, path: str, made_it: bool, failure: Failure) -> Failure:  # noqa: FBT001 - a step's argument
    """Fail an operation by order: what an insert made is removed, anything else stays as before."""
    found = store.find(world, "compute", path)
    if found:
        found.hidden.pop("busy", None)
    if made_it:
        store.remove(world, "compute", path)
    return failure


def change(  # noqa: PLR0917 - the changed resource and the change
    call: Call,
    resource: Resource,
    kind: str,
    seconds: float,
    step: Callable[..., Failure | None],
    arguments: tuple[Any, ...],
) -> dict[str, Any]:
    """Begin a change of a resource, which is not ready until `step(world, path, *arguments)` has run."""
    after = (resource.path, step, arguments)
    answer = begin(call, kind, resource.path, seconds=seconds, step=changed, arguments=after)
    resource.hidden["busy"] = True
    return answer


def changed(
    world: World, path: str, step: Callable[..., Failure | None], arguments: tuple[Any, ...]
) -> Failure | None:
    """End a change."""
    store.need(world, "compute", path).hidden.pop("busy", None)
    return step(world, path, *arguments)


def merge(world: World, path: str, wishes: Mapping[str, Any]) -> None:
    """Change a document's fields."""
    document = store.need(world, "compute", path).document
    document.update(wishes)
    if "fingerprint" in document:
        stamp(document)


def deletes(collection: Collection, duration: str = "compute-delete", finish: Finish | None = None) -> None:
    """Register delete: refused while the resource is in use; `finish` removes what belongs to it."""
    title = collection.title

    @rest(
        "compute",
        f"{title}.delete",
        "DELETE",
        collection.url + "/{name}",
        query=("requestId",),
        permission=collection.permission("delete"),
    )
    def delete(call: Call) -> dict[str, Any]:
        resource = collection.need(call)
        collection.demand(call, "delete", resource.document)
        ready(resource)
        if user := user_of(call.world, resource):
            raise GcpError(
                "INVALID_ARGUMENT",
                in_use(collection.noun, resource, user),
                reason="resourceInUseByAnotherResource",
            )
        seconds = call.world.duration(duration)
        arguments = (resource.path, collection.noun, finish)
        answer = begin(call, "delete", resource.path, seconds=seconds, step=unmade, arguments=arguments)
        resource.hidden["busy"] = True
        return answer

    del delete


def unmade(world: World, path: str, noun: str, finish: Finish | None) -> Failure | None:
    """End a delete."""
    resource = store.find(world, "compute", path)
    if resource is None:
        return None
    # Another resource may have begun to use it since the call.
    if user := user_of(world, resource):
        resource.hidden.pop("busy", None)
        return Failure("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", in_use(noun, resource, user))
    failure = finish(world, path) if finish else None
    if failure is None:
        store.remove(world, "compute", path)
    resource.hidden.pop("busy", None)
    return failure


def _write_failures(world: World, wishes: list[Mapping[str, Any]]) -> None:
    for wish in wishes:
        if unknown := sorted(set(wish) - {"action", "code", "message", "times"}):
            raise ValueError(f"a failure has no {', '.join(unknown)}; it has: action, code, message, times")
    world.state(Failures).orders = [
        {"code": "INTERNAL_ERROR", "message": "Internal error.", "times": 1, "action": ".*", **wish}
        for wish in wishes
    ]


setting("failures", read=lambda world: world.state(Failures).orders, write=_write_failures)
