"""What an API server does with objects: create, change, delete, each under its rules.

`Store` is thread-safe; controllers and kubelets use it in the process as they would use the API. A kind is
named by its plural ("pods"); what is returned is the caller's own copy. Refusals are ApiError.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from cloudrec_sandbox.core.clock import Clock, as_datetime
from cloudrec_sandbox.kubernetes.objects import errors, lifecycle, merge
from cloudrec_sandbox.kubernetes.objects.resources import Resource, Resources
from cloudrec_sandbox.kubernetes.objects.table import Entry, Table, copied
from cloudrec_sandbox.kubernetes.storage.access import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.kubernetes.storage.log_source import LogSource
    from cloudrec_sandbox.kubernetes.storage.stream_source import StreamSource

    Track = Callable[[dict[str, Any], Mapping[str, Any] | None], None]

BACKGROUND = "Background"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names, as in Kubernetes: without vowels, so no words
_LONGEST_PREFIX = 58


class Policy(Protocol):
    """The rules of the kinds."""

    def fill(self, resource: Resource, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
        """Fill in defaults, in place."""

    def check(
        self, resource: Resource, new: Mapping[str, Any], old: Mapping[str, Any] | None, subresource: str
    ) -> None:
        """Refuse a wrong object with ApiError."""

    def grace_s(self, resource: Resource, obj: Mapping[str, Any], asked: int | None) -> int:
        """Return the grace period of a deletion, in seconds."""


class Store:
    """All objects of a cluster, and the rules by which they change."""

    def __init__(
        self, clock: Clock | None = None, *, policy: Policy | None = None, lock: threading.RLock | None = None
    ) -> None:
        self.clock = clock or Clock(1.0)
        self.webhook_lag_s = 0.0  # how long the operators' webhooks miss a new object
        self.lock = lock or threading.RLock()
        self.resources = Resources()
        self.table = Table(self.lock)
        self.policy = policy
        self.tokens = Tokens()
        self.logs: LogSource | None = None  # set by the side that runs the containers
        self.streams: StreamSource | None = None  # as above

    def subscribe(self, callback: Callable[[str, str, dict[str, Any]], None]) -> None:
        """Call back with (ADDED, MODIFIED or DELETED; the plural; the object) on each change, in order.

        It is called with the lock held, in the thread that made the change, and should only take a
        note.
        """
        with self.lock:
            self.table.subscribe(callback)

    def timestamp(self, later_s: float = 0) -> str:
        """Return the virtual time, or some seconds later, as objects have it."""
        moment = as_datetime(self.clock.now() + later_s)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, resource: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return one object, or None."""
        with self.lock:
            kind = self.resources.by_key(resource)
            entry = self.table.get(kind.key, self._place(kind, namespace, name))
            return copied(entry.obj) if entry else None

    def list(
        self, resource: str, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Return all objects of a kind; of one namespace, with these labels, if given."""
        with self.lock:
            kind = self.resources.by_key(resource)
            wanted = (labels or {}).items()
            return [
                copied(entry.obj)
                for entry in self.table.all(kind.key, namespace)
                if wanted <= (entry.obj["metadata"].get("labels") or {}).items()
            ]

    def create(
        self,
        resource: str,
        obj: Mapping[str, Any],
        *,
        dry_run: bool = False,
        track: Track | None = None,
    ) -> dict[str, Any]:
        """Create an object; return a copy as it is stored."""
        with self.lock:
            kind = self.resources.by_key(resource)
            new = copied(merge.without_nulls(dict(obj)))
            self._name(new)
            metadata = new["metadata"]
            place = self._place(kind, metadata.get("namespace"), metadata.get("name", ""))
            self._check_namespace(kind, place)
            self._check_free(kind, place)
            self._stamp_new(kind, new, place)
            if self.policy:
                self.policy.fill(kind, new, None)
            if track:
                track(new, None)
            if self.policy:
                self.policy.check(kind, new, None, "")
            if dry_run:
                return new
            lifecycle.forget_empty(kind, new)
            made = copied(self.table.put(kind.key, place, new).obj)
            if kind.key == "namespaces":
                self._furnish(place[1])
            return made

    def _furnish(self, namespace: str) -> None:
        """Make what a new namespace gets from its controllers."""
        metadata = {"namespace": namespace}
        self.create("serviceaccounts", {"metadata": {**metadata, "name": "default"}})

    def update(
        self,
        resource: str,
        obj: Mapping[str, Any],
        subresource: str = "",
        *,
        dry_run: bool = False,
        track: Track | None = None,
    ) -> dict[str, Any]:
        """Replace an object; with `subresource` "status", its status only."""
        with self.lock:
            kind = self.resources.by_key(resource)
            new = copied(merge.without_nulls(dict(obj)))
            metadata = new.get("metadata", {})
            old = self._existing(kind, metadata.get("namespace"), metadata.get("name", "")).obj
            lifecycle.check_current(kind, metadata, old)
            return self._replace(kind, old, new, subresource, dry_run=dry_run, track=track)

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        merge_patch: Mapping[str, Any],
        subresource: str = "",
    ) -> dict[str, Any]:
        """Change an object by a JSON merge patch (null removes)."""
        with self.lock:
            kind = self.resources.by_key(resource)
            old = self._existing(kind, namespace, name).obj
            new = merge.merged(copied(old), dict(merge_patch))
            lifecycle.check_current(kind, new["metadata"], old)
            return self._replace(kind, old, copied(merge.without_nulls(new)), subresource)

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        grace_s: int | None = None,
        *,
        propagation: str = BACKGROUND,
        preconditions: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete an object.

        It is gone at once, unless finalizers hold it or it has a grace period: then it has a
        deletionTimestamp, and a delete with `grace_s` 0 (for a pod: its kubelet's) ends the grace.

        Args:
            resource: plural of the kind.
            namespace: its namespace; None without.
            name: its name.
            grace_s: seconds of grace; None for the default.
            propagation: what happens to what it owns: Background, Foreground, Orphan.
            preconditions: uid and resourceVersion that it must have.
            dry_run: only check.
        """
        with self.lock:
            kind = self.resources.by_key(resource)
            old = self._existing(kind, namespace, name).obj
            lifecycle.check_preconditions(kind, old, preconditions or {})
            new = copied(old)
            grace = self.policy.grace_s(kind, old, grace_s) if self.policy else 0
            lifecycle.mark_finalizers(new["metadata"], propagation)
            if dry_run:
                return new
            return self._end(kind, old, new, grace)

    def clear(self) -> None:
        """Forget all objects and custom kinds; subscribers are called for each deletion."""
        with self.lock:
            for key in list(self.table.keys()):
                for entry in self.table.all(key):
                    self.table.remove(key, lifecycle.place_of(entry.obj))
            self.resources.clear()

    def _end(self, kind: Resource, old: Mapping[str, Any], new: dict[str, Any], grace: int) -> dict[str, Any]:
        place, metadata = lifecycle.place_of(old), new["metadata"]
        if not metadata.get("finalizers") and grace == 0 and not lifecycle.has_contents(kind):
            return copied(self.table.remove(kind.key, place).obj)
        # ObjectMeta in the API model: once set, the time of deletion can only be shortened.
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = self.timestamp(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.has_generation:
                metadata["generation"] = metadata.get("generation", 0) + 1
        # A namespace's contents and a definition's objects are deleted first, by their controllers.
        if lifecycle.has_contents(kind):
            new.setdefault("status", {})["phase"] = "Terminating"
        if new == old:
            return new
        return copied(self.table.put(kind.key, place, new).obj)

    def _replace(
        self,
        kind: Resource,
        old: dict[str, Any],
        new: dict[str, Any],
        subresource: str,
        *,
        dry_run: bool = False,
        track: Track | None = None,
    ) -> dict[str, Any]:
        new = lifecycle.separated(kind, old, new, subresource)
        if self.policy:
            self.policy.fill(kind, new, old)
        lifecycle.stamp_change(kind, old, new)
        if track:
            track(new, old)
        if self.policy:
            self.policy.check(kind, new, old, subresource)
        # A change without effect makes no new version, so that no watch or controller is woken.
        if new == old or dry_run:
            return copied(new)
        lifecycle.forget_empty(kind, new)
        place, metadata = lifecycle.place_of(old), new["metadata"]
        entry = self.table.put(kind.key, place, new)
        # ObjectMeta in the API model: the last finalizer's removal ends the deletion.
        ended = metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
        if ended and not metadata.get("finalizers") and not lifecycle.has_contents(kind):
            entry = self.table.remove(kind.key, place)
        return copied(entry.obj)

    @staticmethod
    def _place(kind: Resource, namespace: str | None, name: str) -> tuple[str, str]:
        return ((namespace or "default") if kind.namespaced else "", name)

    def _existing(self, kind: Resource, namespace: str | None, name: str) -> Entry:
        entry = self.table.get(kind.key, self._place(kind, namespace, name))
        if entry is None:
            raise errors.not_found(kind.plural, kind.group, name)
        return entry

    @staticmethod
    def _name(new: dict[str, Any]) -> None:
        metadata = new.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            end = "".join(secrets.choice(_LETTERS) for _ in range(5))
            metadata["name"] = metadata["generateName"][:_LONGEST_PREFIX] + end

    def _check_namespace(self, kind: Resource, place: tuple[str, str]) -> None:
        if not kind.namespaced:
            return
        namespace = self.table.get("namespaces", ("", place[0]))
        if namespace is None:
            raise errors.not_found("namespaces", "", place[0])
        if "deletionTimestamp" in namespace.obj["metadata"]:
            why = f"unable to create new content in namespace {place[0]} because it is being terminated"
            cause = errors.cause(
                "metadata.namespace", f"namespace {place[0]} is being terminated", "NamespaceTerminating"
            )
            raise errors.forbidden(kind.plural, kind.group, place[1], why, causes=[cause])

    def _check_free(self, kind: Resource, place: tuple[str, str]) -> None:
        taken = self.table.get(kind.key, place)
        if taken is not None:
            going = "deletionTimestamp" in taken.obj["metadata"]
            raise errors.already_exists(kind.plural, kind.group, place[1], terminating=going)

    def _stamp_new(self, kind: Resource, new: dict[str, Any], place: tuple[str, str]) -> None:
        metadata = new["metadata"]
        # A client cannot choose these: they come from the object that it copied, for example.
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(name, None)
        if kind.namespaced:
            metadata["namespace"] = place[0]
        else:
            metadata.pop("namespace", None)
        metadata |= {"uid": str(uuid4()), "creationTimestamp": self.timestamp()}
        metadata.pop("generation", None)
        if kind.has_generation:
            metadata["generation"] = 1
        new |= {"apiVersion": kind.api_version, "kind": kind.kind}
        # A status is written by the kind's controller, by its own call. A node's comes with the node: its
        # kubelet registers both in one call.
        if kind.has_status and kind.key != "nodes":
            new.pop("status", None)
