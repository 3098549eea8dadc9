"""What changes a cluster's objects: apply, create, patch, delete, evict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kube.errors import AbsentError
from cloudrec.kube.wire import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.kinds import Kind, Kinds
    from cloudrec.kube.wire import Wire

MANAGER = "cloudrec"

Object = dict[str, Any]
Operations = list[dict[str, Any]]


class Changes:
    """The changing half of `client.Kube`; a call is made again only where that can do no harm."""

    _wire: Wire
    kinds: Kinds

    def apply(self, manifest: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Make an object as a manifest says, on the server's side, as the field manager `cloudrec`.

        Args:
            manifest: what we want; what it does not name is left alone.
            force: take over fields that others own.
            dry_run: have the server check it, and change nothing.

        Raises:
            ConflictError: another manager owns a field; it is named.
            InvalidError: the server refuses the object.
        """
        known, name, namespace = self._of(manifest)
        return self._wire.json(
            Request(
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
        """Make an object that must not be there yet; ConflictError (`exists`) where it is."""
        known, name, namespace = self._of(manifest)
        return self._wire.json(
            Request(
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
        """Change an object: a mapping is a merge patch, a list is one of JSON's operations.

        Raises:
            AbsentError: there is no such object.
        """
        known = self.kinds.named(kind)
        return self._wire.json(
            Request(
                method="PATCH",
                path=known.path(namespace=namespace, name=name, subresource=subresource),
                what=asked("change", known, name, namespace),
                query={"fieldManager": MANAGER},
                body=change,
                patch="json" if isinstance(change, list) else "merge",
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
        """Have an object deleted; tell whether it was there.

        Args:
            kind: which kind.
            name: which one.
            namespace: where.
            propagation: what becomes of what it owns: Background, Foreground or Orphan.
            grace_s: seconds that pods have; their own grace when left out.
            uid: delete only this one, not another of its name: ConflictError where that is there.
        """
        known = self.kinds.named(kind)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        options |= {"preconditions": {"uid": uid}} if uid else {}
        try:
            self._wire.json(
                Request(
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
        """Have a pod leave its node if its disruption budget allows that; tell whether it was there.

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
                Request(method="POST", path=path, what=asked("evict", known, pod, namespace), body=body)
            )
        except AbsentError:
            return False
        return True

    def _of(self, manifest: Mapping[str, Any]) -> tuple[Kind, str, str]:
        known = self.kinds.of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        return known, str(metadata.get("name", "")), str(metadata.get("namespace", ""))


def asked(verb: str, kind: Kind, name: str, namespace: str) -> str:
    """Say for a person what is asked of the server: read Pod p in namespace n."""
    where = f" in namespace {namespace}" if namespace else ""
    return f"{verb} {kind.name} {name}{where}" if name else f"{verb} {kind.plural}{where}"
