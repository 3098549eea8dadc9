"""AWS, as far as cloudrec needs it: moto in one process, with AWS's refusals, delays and orphaned resources.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` returns all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"eks-cluster": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C. P is a
                process of the same user that began after the stand-in
    reset       true: back to an empty account
    and the settings that the modules of `services` add, each described in its module

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
POST /_control/save, /_control/restore   {"name": ...}: save the whole account, and restore it
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:id"
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError
from cloudrec_sandbox.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.server import AwsServer

__all__ = ["ISOLATION", "POD_VARIABLES", "REHEARSAL", "serve"]

# By these, pods on linked nodes find the buckets.
POD_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")

# `cloudrec sandbox run` sets this: a new account has no GPU quota, as at AWS.
REHEARSAL: Mapping[str, Any] = {
    "speed": 600,
    "quotas": dict.fromkeys(
        ("ec2/L-417A185B", "ec2/L-7212CCBC", "ec2/L-C4BD4855", "ec2/L-1216C47A", "ec2/L-0263D0A3"), 5000
    ),
}
# https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-envvars.html; ECS and EKS pass a pod's
# credentials by AWS_ variables, too; boto reads BOTO_CONFIG.
ISOLATION = Isolation(
    prefixes=("AWS_", "BOTO_"),
    missing={
        "AWS_CONFIG_FILE": "aws-config",
        "AWS_SHARED_CREDENTIALS_FILE": "aws-credentials",
        "BOTO_CONFIG": "boto",
    },
    values={"AWS_EC2_METADATA_DISABLED": "true"},
)
# moto reads these: no browser calls it, so no CORS; `upstream` loads AWS's policies once.
_MOTO = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "false", "MOTO_DISABLE_GLOBAL_CORS": "true"}


def serve(port: int) -> AwsServer:
    """Return a server on a port of 127.0.0.1 (0: a free one); MissingExtraError without extra `sandbox`."""
    for module in ("moto", "flask"):
        if find_spec(module) is None:
            raise MissingExtraError("sandbox", module=module)
    os.environ.update(_MOTO)
    from cloudrec_sandbox.aws.server import serve as start  # noqa: PLC0415 - moto is in the extra only

    return start(port)
