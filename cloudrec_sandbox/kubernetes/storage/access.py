"""Bearer tokens and the users that they belong to."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.storage.issuer import OWN, Issuer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.storage.store import Store

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
_HOUR_S = 3600
_EKS = "k8s-aws-v1."  # what the tokens of EKS begin with
_WISHES = frozenset({"token", "prefix", "aws_key", "user", "groups", "reachable", "rules"})


@dataclass(frozen=True, kw_only=True)
class User:
    """The user of a call."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Mapping[str, Any], ...] = ()  # what another authority than RBAC allows, in RBAC's format


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A token, or all with a prefix or of an AWS access key, with its user; a service account's expires."""

    user: User
    prefix: str = ""
    aws_key: str = ""
    expires: float = float("inf")
    account: tuple[str, str] | None = None
    audience: str = OWN


class Tokens:
    """Bearer tokens and their users; the administrator's token is made at start."""

    def __init__(self) -> None:
        self.admin = secrets.token_urlsafe(24)
        self.issuer = Issuer()
        self._known: dict[str, _Known] = {}
        self._ordered: list[dict[str, Any]] = []
        self._patterns: list[_Known] = []
        self._outside: tuple[str, ...] = ()
        self.clear()

    def clear(self) -> None:
        """Forget all tokens but the administrator's."""
        user = User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
        self._known = {self.admin: _Known(user=user)}
        self.issuer = Issuer()
        self.order([])

    def order(self, wishes: Sequence[Mapping[str, Any]]) -> None:
        """Accept these tokens, instead of those ordered before.

        Each has `token`, or `prefix` for all tokens with that prefix, or `aws_key` for all tokens of EKS that
        an AWS access key signed, `user` and `groups`. `rules` is what a cloud's own authority allows the user
        besides RBAC; a rule with `custom` is of kinds from definitions.
        """
        for old in self._ordered:
            self._known.pop(old.get("token", ""), None)
        self._ordered, self._patterns = [dict(wish) for wish in wishes], []
        for wish in wishes:
            if unknown := set(wish) - _WISHES:
                raise ValueError(f"a token has no {', '.join(sorted(unknown))}")
            groups, rules = (*wish.get("groups", ()), AUTHENTICATED), tuple(wish.get("rules", ()))
            user = User(name=wish["user"], groups=groups, rules=rules)
            if "token" in wish:
                self._known[wish["token"]] = _Known(user=user)
            else:
                key = wish.get("aws_key", "")
                self._patterns.append(_Known(user=user, aws_key=key, prefix=_EKS if key else wish["prefix"]))
        outside = [wish for wish in wishes if not wish.get("reachable", True)]
        self._outside = tuple(wish.get("token") or wish.get("prefix") or _EKS for wish in outside)

    def is_outside(self, authorization: str) -> bool:
        """Return whether a caller with this header is at an address that the API server does not answer."""
        token = authorization.partition(" ")[2].strip()
        return bool(self._outside) and token.startswith(self._outside)

    def document(self) -> list[dict[str, Any]]:
        """Return the tokens that were ordered."""
        return self._ordered

    def issue_as(self, wish: Mapping[str, Any] | None) -> None:
        """Issue tokens as another issuer from now on; None for the API server's own."""
        self.issuer = Issuer(**wish) if wish else Issuer()

    def of_account(self, account: Mapping[str, Any], seconds: int = _HOUR_S, audience: str = "") -> str:
        """Return a new token of a service account, valid for that many real seconds.

        A token for another audience than the API server, which is the default, does not open the API.
        """
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        user = User(
            name=f"system:serviceaccount:{namespace}:{name}",
            groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED),
            uid=metadata["uid"],
        )
        token = self.issuer.token(account, audience=audience or OWN, seconds=seconds)
        self._known[token] = _Known(
            user=user, expires=time.time() + seconds, account=(namespace, name), audience=audience or OWN
        )
        return token

    def user(self, store: Store, token: str) -> User | None:
        """Return the user of a token; None if it is unknown or expired."""
        known = self._known.get(token)
        if known is None:
            known = next((each for each in self._patterns if _fits(each, token)), None)
        if known is None or known.expires < time.time() or known.audience != OWN:
            return None
        if known.account is not None:
            entry = store.table.get("serviceaccounts", known.account)
            if entry is None or entry.obj["metadata"]["uid"] != known.user.uid:
                return None
        return known.user


def user_of(store: Store, tokens: Tokens, authorization: str) -> User:
    """Return the user of an Authorization header; refused with 401 for an unknown token."""
    if not authorization:
        return User(name="system:anonymous", groups=("system:unauthenticated",))
    scheme, _, token = authorization.partition(" ")
    user = tokens.user(store, token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
    return user


def described(user: User) -> dict[str, Any]:
    """Return a user as reviews describe one."""
    plain = asdict(user)
    return {
        "username": plain["name"],
        "groups": list(plain["groups"]),
        **({"uid": user.uid} if user.uid else {}),
    }


def _fits(known: _Known, token: str) -> bool:
    """Return whether a token has the prefix, and the access key if one is meant."""
    return token.startswith(known.prefix) and known.aws_key in ("", _signer(token))


def _signer(token: str) -> str:
    """Return the access key that signed a token of EKS, which is a presigned URL of STS; empty if none did.

    The signature is not verified: secrets stay in the stand-in of AWS.
    """
    text = token.removeprefix(_EKS)
    try:
        url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        found = parse_qs(urlsplit(url).query).get("X-Amz-Credential", [""])
    except ValueError:
        return ""
    return found[0].partition("/")[0]
