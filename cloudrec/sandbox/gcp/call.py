"""One call of a method, as its handler sees it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.gcp.protocol import Target
    from cloudrec.sandbox.gcp.tokens import Tokens
    from cloudrec.sandbox.gcp.world import World
    from cloudrec.sandbox.http import HttpRequest

_PROJECT = re.compile(r"(?:^|/)projects/([^/:]+)")


class Call:
    """A request that got as far as a handler.

    Attributes:
        params: the variables of the path; of a gRPC request what names its resource.
        query: the query's parameters, the last of each name.
        body: what came, as the method's `body` says; of a gRPC request its message.
        caller: the e-mail address of whose token came.
        project: the id of the project that it is about; '' where the call does not tell.
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
        tokens: Tokens,
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
        """The service's short name."""
        return self.target.service

    @property
    def action(self) -> str:
        """The method's name."""
        return self.target.action


def _project(params: Mapping[str, str], query: Mapping[str, str]) -> str:
    if "project" in params:
        return params["project"]
    for value in params.values():
        if found := _PROJECT.search(value):
            return found[1]
    return query.get("project", "")
