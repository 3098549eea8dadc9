"""One call, with what its handler reads from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import malformed
from cloudrec_sandbox.azure.arm.store import Store

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.azure.arm.target import Target
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller, from the token: the principal's object id, the application, the tenant."""

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
    fault: Fault | None = None  # of the kind `async`: how the operation is to fail

    @property
    def path(self) -> Path:
        """Return the path of the resource."""
        return self.target.path

    @property
    def query(self) -> dict[str, str]:
        """Return the query, names in lower case."""
        return self.target.query

    @property
    def store(self) -> Store:
        """Return the store of all resources."""
        return self.world.state(Store)

    @property
    def base(self) -> str:
        """Return this server's address as the client wrote it."""
        return f"https://{self.request.lower.get('host', '127.0.0.1')}"

    @cached_property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        """Return the body; {} if there is none. Refused if it is not JSON."""
        if not self.request.body.strip():
            return {}
        try:
            return json.loads(self.request.body)
        except ValueError as error:
            raise malformed("InvalidRequestContent", [str(error)]) from error

    def header(self, name: str) -> str:
        """Return a header; '' if it is missing."""
        return self.request.lower.get(name.lower(), "")
