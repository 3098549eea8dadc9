"""Who calls: bearer tokens and whom they stand for."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.sandbox.kubernetes.store import Store

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
_HOUR_S = 3600


@dataclass(frozen=True, kw_only=True)
class User:
    """Who calls."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A token, or all that begin so, and whom it stands for; a service account's ends."""

    user: User
    prefix: str = ""
    expires: float = float("inf")
    account: tuple[str, str] | None = None


class Tokens:
    """Bearer tokens and their users; the administrator's is made at start."""

    def __init__(self) -> None:
        self.admin = secrets.token_urlsafe(24)
        self._known: dict[str, _Known] = {}
        self._ordered: list[dict[str, Any]] = []
        self._prefixes: list[_Known] = []
        self.clear()

    def clear(self) -> None:
        """Know nobody but the administrator."""
        user = User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
        self._known = {self.admin: _Known(user=user)}
        self.order([])

    def order(self, wishes: Sequence[Mapping[str, Any]]) -> None:
        """Let in these, in the place of those ordered before.

        Each has `token`, or `prefix` for all tokens that begin so, `user` and `groups`.
        """
        for old in self._ordered:
            self._known.pop(old.get("token", ""), None)
        self._ordered, self._prefixes = [dict(wish) for wish in wishes], []
        for wish in wishes:
            if unknown := set(wish) - {"token", "prefix", "user", "groups"}:
                raise ValueError(f"a token has no {', '.join(sorted(unknown))}")
            user = User(name=wish["user"], groups=(*wish.get("groups", ()), AUTHENTICATED))
            if "prefix" in wish:
                self._prefixes.append(_Known(user=user, prefix=wish["prefix"]))
            else:
                self._known[wish["token"]] = _Known(user=user)

    def document(self) -> list[dict[str, Any]]:
        """What was ordered."""
        return self._ordered

    def of_account(self, account: Mapping[str, Any], seconds: int = _HOUR_S) -> str:
        """A new token of a service account, good for that many real seconds."""
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        user = User(
            name=f"system:serviceaccount:{namespace}:{name}",
            groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED),
            uid=metadata["uid"],
        )
        token = f"sa-{secrets.token_urlsafe(32)}"
        self._known[token] = _Known(user=user, expires=time.time() + seconds, account=(namespace, name))
        return token

    def user(self, store: Store, token: str) -> User | None:
        """Whom a token stands for, if it still does."""
        known = self._known.get(token)
        if known is None:
            known = next((each for each in self._prefixes if token.startswith(each.prefix)), None)
        if known is None or known.expires < time.time():
            return None
        if known.account is not None:
            entry = store.table.get("serviceaccounts", known.account)
            if entry is None or entry.obj["metadata"]["uid"] != known.user.uid:
                return None
        return known.user


def user_of(store: Store, tokens: Tokens, authorization: str) -> User:
    """Who calls, by the Authorization header; refused with 401 where nobody we know does."""
    if not authorization:
        return User(name="system:anonymous", groups=("system:unauthenticated",))
    scheme, _, token = authorization.partition(" ")
    user = tokens.user(store, token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
    return user


def told(user: User) -> dict[str, Any]:
    """A user as reviews tell of one."""
    plain = asdict(user)
    return {
        "username": plain["name"],
        "groups": list(plain["groups"]),
        **({"uid": user.uid} if user.uid else {}),
    }
