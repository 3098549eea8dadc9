"""One call of a method, as its handler sees it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.gcp.api.protocol import Target
    from cloudrec_sandbox.gcp.api.tokens import Tokens
    from cloudrec_sandbox.gcp.api.world import World

_PROJECT = re.compile(r"(?:^|/)projects/([^/:]+)")


class Call:
    """A request that has passed all checks before its handler.

    Attributes:
        params: the variables of the path; for a gRPC request, the name of its resource.
        query: the query's parameters, the last of each name.
        body: the request's body, as the method's `body` defines; for a gRPC request its message.
        caller: the e-mail address of the token's account.
        project: the id of the resource's project; '' if the call does not name one.
    """

    body: Any = None
    caller: str = ""

    def __init__(
        self,
        world: World,
        target: Target,
        request: HttpRequest,
        *,
        params: Mapping[str, str],
        tokens: Tokens | None,
    ) -> None:
        self.world = world
        self.target = target
        self.raw = request
        self.tokens = tokens
        self.params = params
        self.query = dict(parse_qsl(urlsplit(request.target).query, keep_blank_values=True))
        self.project = _project(params, self.query)

    @property
    def service(self) -> str:
        """Return the service's short name."""
        return self.target.service

    @property
    def action(self) -> str:
        """Return the method's name."""
        return self.target.action


def _project(params: Mapping[str, str], query: Mapping[str, str]) -> str:
    if "project" in params:
        return params["project"]
    for value in params.values():
        if found := _PROJECT.search(value):
            return found[1]
    return query.get("project", "")
