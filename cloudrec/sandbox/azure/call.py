"""One call on its way to whoever answers for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.azure.errors import malformed
from cloudrec.sandbox.azure.store import Store

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.paths import Path
    from cloudrec.sandbox.azure.target import Target
    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest
    from cloudrec.sandbox.world import World


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls, by the token: object id of the principal, application, tenant."""

    principal: str
    client: str
    tenant: str


@dataclass(kw_only=True)
class Call:
    """What a handler sees of a request."""

    world: World
    target: Target
    request: HttpRequest
    caller: Caller
    fault: Fault | None = None  # of the kind `async`: what is to become of the operation

    @property
    def path(self) -> Path:
        """What it is about."""
        return self.target.path

    @property
    def query(self) -> dict[str, str]:
        """The query, names in lower case."""
        return self.target.query

    @property
    def store(self) -> Store:
        """All resources."""
        return self.world.state(Store)

    @property
    def base(self) -> str:
        """The address of this server as the client wrote it."""
        return f"https://{self.request.lower.get('host', '127.0.0.1')}"

    @cached_property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        """The body; {} where there is none. Refused where it is no JSON."""
        if not self.request.body.strip():
            return {}
        try:
            return json.loads(self.request.body)
        except ValueError as error:
            raise malformed("InvalidRequestContent", [str(error)]) from error

    def header(self, name: str) -> str:
        """A header; '' where there is none."""
        return self.request.lower.get(name.lower(), "")
