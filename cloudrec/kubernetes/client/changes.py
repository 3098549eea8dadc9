"""The calls that change a cluster's objects: apply, create, patch, delete, evict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import AbsentError
from cloudrec.kubernetes.client.wire import ApiRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.kinds import Kind, Kinds
    from cloudrec.kubernetes.client.wire import Wire

MANAGER = "cloudrec"

Object = dict[str, Any]
Operations = list[dict[str, Any]]


class Changes:
    """The methods of `client.Kube` that change objects; only idempotent calls are retried."""

    _wire: Wire
    kinds: Kinds

    def apply(self, manifest: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Create or update an object by server-side apply, as the field manager `cloudrec`.

        Args:
            manifest: the object; fields that it does not have are not changed.
            force: take over fields that other managers own.
            dry_run: only check it on the server.

        Raises:
            ConflictError: another manager owns a field; it is named.
            InvalidError: the server refuses the object.
        """
        known, name, namespace = self._of(manifest)
        return self._wire.json(
            ApiRequest(
                method="PATCH",
                path=known.path(namespace=namespace, name=name),
                what=asked("apply", known, name, namespace),
                query={"fieldManager": MANAGER, "force": force, "dryRun": "All" if dry_run else None},
                body=dict(manifest),
                patch="apply",
                is_idempotent=True,
            )
        )

    def create(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Create an object; ConflictError (`exists`) if it exists."""
        known, name, namespace = self._of(manifest)
        return self._wire.json(
            ApiRequest(
                method="POST",
                path=known.path(namespace=namespace),
                what=asked("create", known, name, namespace),
                query={"fieldManager": MANAGER, "dryRun": "All" if dry_run else None},
                body=dict(manifest),
            )
        )

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any] | Operations,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Object:
        """Patch an object: by a merge patch if `change` is a mapping, by a JSON patch if it is a list.

        Raises:
            AbsentError: there is no such object.
        """
        known = self.kinds.named(kind)
        return self._wire.json(
            ApiRequest(
                method="PATCH",
                path=known.path(namespace=namespace, name=name, subresource=subresource),
                what=asked("change", known, name, namespace),
                query={"fieldManager": MANAGER},
                body=change,
                patch="json" if isinstance(change, list) else "merge",
                # A JSON patch may add to a list, so a second time would add again.
                is_idempotent=not isinstance(change, list),
            )
        )

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        propagation: str = "Background",
        grace_s: int | None = None,
        uid: str = "",
    ) -> bool:
        """Delete an object; return whether it existed.

        Args:
            kind: the kind.
            name: the object's name.
            namespace: its namespace.
            propagation: for the objects that it owns: Background, Foreground or Orphan.
            grace_s: grace period of pods in seconds; None for that of their specs.
            uid: the uid that the object must have: ConflictError for another object of its name.
        """
        known = self.kinds.named(kind)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        options |= {"preconditions": {"uid": uid}} if uid else {}
        try:
            self._wire.json(
                ApiRequest(
                    method="DELETE",
                    path=known.path(namespace=namespace, name=name),
                    what=asked("delete", known, name, namespace),
                    body=options,
                    is_idempotent=True,
                )
            )
        except AbsentError:
            return False
        return True

    def evict(self, pod: str, *, namespace: str, grace_s: int | None = None) -> bool:
        """Evict a pod if its disruption budget allows that; return whether it existed.

        Raises:
            OverloadedError: the budget does not allow it now.
        """
        options = {} if grace_s is None else {"deleteOptions": {"gracePeriodSeconds": grace_s}}
        known = self.kinds.named("Pod")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            **options,
        }
        path = known.path(namespace=namespace, name=pod, subresource="eviction")
        try:
            self._wire.json(
                ApiRequest(method="POST", path=path, what=asked("evict", known, pod, namespace), body=body)
            )
        except AbsentError:
            return False
        return True

    def _of(self, manifest: Mapping[str, Any]) -> tuple[Kind, str, str]:
        known = self.kinds.of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        return known, str(metadata.get("name", "")), str(metadata.get("namespace", ""))


def asked(verb: str, kind: Kind, name: str, namespace: str) -> str:
    """Return a call as text for error messages: read Pod p in namespace n."""
    where = f" in namespace {namespace}" if namespace else ""
    return f"{verb} {kind.name} {name}{where}" if name else f"{verb} {kind.plural}{where}"
