"""One call of an operation on its way through the handlers to moto and back."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws import protocol
from cloudrec.sandbox.aws.errors import PassedOnError
from cloudrec.sandbox.aws.registry import chain
from cloudrec.sandbox.aws.world import ACCOUNT
from cloudrec.sandbox.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.sandbox.aws.protocol import Target
    from cloudrec.sandbox.aws.registry import Handler
    from cloudrec.sandbox.aws.world import World
    from cloudrec.sandbox.http import HttpRequest

_FIRST_FAILURE = 300


class Call:
    """What a handler sees of a request."""

    account = ACCOUNT
    is_aside = False  # a question of ours, not of the client

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
        """The service, by botocore's name."""
        return self.target.service

    @property
    def action(self) -> str:
        """The operation, as in CreateVpc."""
        return self.target.action

    @property
    def region(self) -> str:
        """The region that the request was signed for."""
        return self.target.region

    @cached_property
    def params(self) -> dict[str, Any]:
        """The parameters as boto3 names them; absent ones are absent."""
        return protocol.parameters(self.target, self.request)

    def backend(self, service: str | None = None) -> Any:  # noqa: ANN401 - moto's backends share no useful type
        """Moto's state of a service (default: the called one) in the call's region."""
        return self.world.backend(service or self.service, self.region)

    def pass_on(self) -> Reply:
        """The reply of the next handler, or of moto; error replies too."""
        if not self._handlers:
            return self._last(self)
        handler = self._handlers.pop(0)
        try:
            result = handler(self)
        finally:
            self._handlers.insert(0, handler)  # so that a handler may ask twice
        return result if isinstance(result, Reply) else protocol.serialise(self.target, result, self.request)

    def aside(self, action: str, body: bytes, *, service: str = "") -> dict[str, Any]:
        """Ask another operation in the caller's place, off the record; `body` as its protocol has it."""
        target = replace(self.target, service=service or self.service, action=action)
        request = protocol.framed(self.request, target, body)
        other = Call(self.world, target, request, handlers=chain(target.service, action), last=self._last)
        other.is_aside = True
        return other.output()

    def output(self) -> dict[str, Any]:
        """The next handler's or moto's reply as boto3 shows it; PassedOnError where it is a refusal."""
        reply = self.pass_on()
        if reply.status >= _FIRST_FAILURE:
            raise PassedOnError(reply)
        return protocol.parse(self.target, reply, self.request)
