"""Azure, as far as cloudrec goes: ARM, Entra and the price list in one process, over HTTPS.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` tells all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"aks-pool": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up); async (the call
                succeeds, and the operation that it starts fails with code and message)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C
    reset       true: back to an empty subscription
    and the settings that the modules of `services` add, each told in its module

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
POST /_control/save, /_control/restore   {"name": ...}: the whole subscription as it is, and as it was
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:id"
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.server import AzureServer

__all__ = ["serve"]


def serve(port: int) -> AzureServer:
    """A server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extras it needs."""
    if find_spec("cryptography") is None:
        raise MissingExtraError("sandbox", module="cryptography")
    if find_spec("azure") is None or find_spec("azure.mgmt") is None:
        raise MissingExtraError("azure", module="azure.mgmt")
    from cloudrec.sandbox.azure.server import serve as start  # noqa: PLC0415 - only where the extra is there

    return start(port)
