"""Azure, as far as cloudrec needs it: ARM, Entra, Blob Storage and the price list in one process, over HTTPS.

`POST /_control` takes a JSON object and changes only what is named; `GET /_control` returns all of it:

    speed       virtual seconds in a real one (60 at start)
    advance_s   let virtual time pass at once
    durations   seconds by name; its front sets several ({"aks-pool": 600}), `*` all
    faults      list of {"kind", "service", "action", "times", "skip", "code", "status", "message"}; service
                and action are regular expressions. Kinds: throttle, error, 5xx; drop (closed, no effect),
                lost (closed after it), timeout (nothing until the client gives up); async (the call
                succeeds, and the operation that it starts fails with code and message)
    kill        {"pid": P, "call": N, "when": "before"|"after"}: SIGKILL at the N-th call from now; with
                "service" and "action" only such calls count; with "signal": "INT" it is Ctrl-C. P is a
                process of the same user that began after the stand-in
    reset       true: back to an empty subscription
    and the settings that the modules of `services` add, each described in its module

GET /_control/calls?since=N   the calls after the N-th, with service, action, iam_action, status, virtual_time
POST /_control/save, /_control/restore   {"name": ...}: save the whole subscription, and restore it
GET /_control/state           {"existing": [...], "pending": [...]} of sorted "service:kind:id"
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cloudrec.errors import MissingExtraError
from cloudrec_sandbox.isolation import Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.server import AzureServer

__all__ = ["ISOLATION", "POD_VARIABLES", "REHEARSAL", "serve"]

# By these, pods on linked nodes find the containers. Their credentials are workload identity's.
POD_VARIABLES = ("AZURE_RESOURCE_MANAGER_ENDPOINT_URL", "AZURE_BLOB_STORAGE_URL", "AZURE_CA_BUNDLE")

# `cloudrec sandbox run` sets this: a new subscription has no quota for GPU sizes, as at Azure.
REHEARSAL: Mapping[str, Any] = {
    "speed": 600,
    "quotas": dict.fromkeys(
        (
            "Standard NDASv4_A100 Family",
            "Standard NCASv3_T4 Family",
            "standardDSv5Family",
            "cores",
            "lowPriorityCores",
        ),
        5000,
    ),
}
# https://learn.microsoft.com/python/api/overview/azure/identity-readme: environment, managed identity (whose
# endpoint App Service and Arc give as IDENTITY_ and MSI_ variables), then `az` and `azd`.
ISOLATION = Isolation(
    prefixes=("AZURE_", "ARM_", "AZD_", "IDENTITY_", "IMDS_", "MSI_"),
    missing={"AZURE_CONFIG_DIR": "azure", "AZD_CONFIG_DIR": "azd"},
)


def serve(port: int) -> AzureServer:
    """Return a server on a port of 127.0.0.1 (0: a free one); MissingExtraError without its extras."""
    if find_spec("cryptography") is None:
        raise MissingExtraError("sandbox", module="cryptography")
    if find_spec("azure") is None or find_spec("azure.mgmt") is None:
        raise MissingExtraError("azure", module="azure.mgmt")
    from cloudrec_sandbox.azure.server import serve as start  # noqa: PLC0415 - Azure's SDK is in the extra only

    return start(port)
