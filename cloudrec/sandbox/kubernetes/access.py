"""Who calls: bearer tokens and whom they stand for."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec.sandbox.kubernetes.call import User
from cloudrec.sandbox.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from cloudrec.sandbox.kubernetes.world import Cluster

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


class Tokens:
    """Bearer tokens and their users; the administrator's is made at start."""

    def __init__(self) -> None:
        self.admin = secrets.token_urlsafe(24)
        self._users = {self.admin: User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))}

    def user(self, token: str) -> User | None:
        """Whom a token stands for."""
        return self._users.get(token)


def user_of(world: Cluster, authorization: str) -> User:
    """Who calls, by the Authorization header; refused with 401 where nobody we know does."""
    scheme, _, token = authorization.partition(" ")
    user = world.tokens.user(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise ApiError(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
    return user
