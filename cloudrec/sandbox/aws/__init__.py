"""AWS, as far as cloudrec goes: moto in one process, with the cloud's refusals, delays, leftovers.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` tells all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"eks-cluster": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now
    reset       true: back to an empty account
    and the settings that the modules of `services` add, each told in its module

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
POST /_control/save, /_control/restore   {"name": ...}: the whole account as it is, and as it was
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:id"
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.server import AwsServer

__all__ = ["serve"]

# moto reads these: no browser of ours needs CORS, and AWS's policies are loaded once by `upstream`.
_MOTO = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "false", "MOTO_DISABLE_GLOBAL_CORS": "true"}


def serve(port: int) -> AwsServer:
    """A server on a port of 127.0.0.1 (0: a free one); MissingExtraError without the extra `sandbox`."""
    for module in ("moto", "flask"):
        if find_spec(module) is None:
            raise MissingExtraError("sandbox", module=module)
    os.environ.update(_MOTO)
    from cloudrec.sandbox.aws.server import serve as start  # noqa: PLC0415 - only where the extra is there

    return start(port)
