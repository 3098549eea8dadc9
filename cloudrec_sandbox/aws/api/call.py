"""One call of an operation on its way through the handlers to moto and back."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api import protocol
from cloudrec_sandbox.aws.api.errors import PassedOnError
from cloudrec_sandbox.aws.api.registry import chain
from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec_sandbox.aws.api.protocol import Target
    from cloudrec_sandbox.aws.api.registry import Handler
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import HttpRequest

_FIRST_FAILURE = 300


class Call:
    """What a handler sees of a request."""

    account = ACCOUNT
    is_aside = False  # a call that the stand-in makes itself, not the client

    def __init__(
        self,
        world: World,
        target: Target,
        request: HttpRequest,
        *,
        handlers: Sequence[Handler],
        last: Callable[[Call], Reply],
    ) -> None:
        self.world = world
        self.target = target
        self.request = request
        self._handlers = list(handlers)
        self._last = last

    @property
    def service(self) -> str:
        """Return the service, by botocore's name."""
        return self.target.service

    @property
    def action(self) -> str:
        """Return the operation, as in CreateVpc."""
        return self.target.action

    @property
    def region(self) -> str:
        """Return the region that the request was signed for."""
        return self.target.region

    @cached_property
    def params(self) -> dict[str, Any]:
        """Return the parameters as boto3 names them; absent ones are absent."""
        return protocol.parameters(self.target, self.request)

    def backend(self, service: str | None = None) -> Any:  # noqa: ANN401 - moto's backends share no useful type
        """Moto's state of a service (default: the called one) in the call's region."""
        return self.world.backend(service or self.service, self.region)

    def pass_on(self) -> Reply:
        """Return the reply of the next handler, or of moto; error replies too."""
        if not self._handlers:
            return self._last(self)
        handler = self._handlers.pop(0)
        try:
            result = handler(self)
        finally:
            self._handlers.insert(0, handler)  # so that a handler may call this twice
        return result if isinstance(result, Reply) else protocol.serialise(self.target, result, self.request)

    def aside(self, action: str, body: bytes, *, service: str = "") -> dict[str, Any]:
        """Call another operation for the caller, outside the list of calls; `body` in its wire format."""
        target = replace(self.target, service=service or self.service, action=action)
        request = protocol.framed(self.request, target, body)
        other = Call(self.world, target, request, handlers=chain(target.service, action), last=self._last)
        other.is_aside = True
        return other.output()

    def output(self) -> dict[str, Any]:
        """Return the next handler's or moto's reply in boto3's shape; PassedOnError if it is a refusal."""
        reply = self.pass_on()
        if reply.status >= _FIRST_FAILURE:
            raise PassedOnError(reply)
        return protocol.parse(self.target, reply, self.request)
