"""Calls in the name of others, by the headers Impersonate-*.

Kubernetes' documentation, "User impersonation", has the rights that they take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.api import rbac
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage.access import AUTHENTICATED, User

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.storage.store import Store

_USER, _GROUP, _OTHERS = "impersonate-user", "impersonate-group", ("impersonate-uid", "impersonate-extra-")
_ACCOUNT, _ANONYMOUS = "system:serviceaccount:", "system:anonymous"


def acting(store: Store, user: User, headers: Mapping[str, str]) -> User:
    """Return the user in whose name a call is made; refused with 403 without the right to do so."""
    name = headers.get(_USER, "")
    groups = [each.strip() for each in headers.get(_GROUP, "").split(",") if each.strip()]
    if not name:
        if groups or any(header.startswith(_OTHERS) for header in headers):
            raise errors.bad_request("requested impersonation without impersonating a user")
        return user
    with store.lock:
        for deed in _deeds(name, groups):
            if not rbac.allows(store, user, deed):
                what = f'cannot impersonate resource "{deed.resource}" in API group "" at the cluster scope'
                why = f'User "{user.name}" {what}'
                raise errors.forbidden(deed.resource, "", deed.name, why)
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    known = "system:unauthenticated" if name == _ANONYMOUS else AUTHENTICATED
    return User(name=name, groups=tuple(dict.fromkeys([*groups, known])))


def _deeds(name: str, groups: list[str]) -> Iterator[rbac.Deed]:
    if name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        yield rbac.Deed(
            verb="impersonate", group="", resource="serviceaccounts", name=account, namespace=namespace
        )
    else:
        yield rbac.Deed(verb="impersonate", group="", resource="users", name=name)
    for group in groups:
        yield rbac.Deed(verb="impersonate", group="", resource="groups", name=group)
