"""Calls that Google's services make to one another as a service account, such as those of a Scheduler job.

A call to one of Google's services is answered by this stand-in's method, with the same checks as a client's:
the API, the account's permissions, the method's own. Calls to other hosts fail: nothing here can be reached.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec_sandbox.core.http import HttpRequest
from cloudrec_sandbox.gcp.api import admission, protocol, schemas, tokens
from cloudrec_sandbox.gcp.api.call import Call
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import Rest
from cloudrec_sandbox.gcp.services.iam import accounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.world import World

_GOOGLE = ".googleapis.com"


def send(
    world: World, method: str, uri: str, *, account: str, body: bytes, headers: Mapping[str, str]
) -> Any:  # noqa: ANN401 - JSON
    """Make a call and return the JSON of the answer.

    Args:
        world: the stand-in's.
        method: of HTTP.
        uri: the address, with its query.
        account: the e-mail address of the account whose token the call has; empty for none.
        body: of the request.
        headers: of the request.

    Raises:
        GcpError: the host cannot be reached, or refuses the call.
    """
    where = urlsplit(uri)
    host = str(where.hostname)
    if not host.endswith(_GOOGLE):
        raise GcpError("UNAVAILABLE", f"URL_UNREACHABLE: {host}")
    request = HttpRequest(
        method=method,
        target=f"{where.path}?{where.query}" if where.query else where.path,
        headers=dict(headers),
        body=body,
    )
    found = protocol.identify(request)
    called = found.method
    if not isinstance(called, Rest) or called.service != host.removesuffix(_GOOGLE):
        raise GcpError("NOT_FOUND", f"this stand-in has no {method} {uri}")
    call = Call(world, found, request, params=found.params, tokens=None)
    call.caller = _caller(world, account)
    admission.admit(call)
    call.body = schemas.read(request.body, called.body)
    return json.loads(protocol.serialise(found, called.handler(call)).body)


def _caller(world: World, account: str) -> str:
    """Return the account of the call's token; GcpError if there is none."""
    if not account:
        raise tokens.missing()
    if not accounts.usable(world, account):
        raise GcpError("UNAUTHENTICATED", f"Service account {account} does not exist.")
    return account
