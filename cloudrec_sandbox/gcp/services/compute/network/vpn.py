"""Gateways and tunnels of Cloud VPN."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from google.cloud.compute_v1.types.compute import TargetVpnGateway, VpnGateway, VpnTunnel

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.services.compute import changes, collections
from cloudrec_sandbox.gcp.services.compute.collections import Collection

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

GATEWAYS = Collection(
    name="vpnGateways", noun="vpnGateway", scope="region", message=VpnGateway, refers=("network",)
)
CLASSIC = Collection(
    name="targetVpnGateways",
    noun="targetVpnGateway",
    scope="region",
    message=TargetVpnGateway,
    refers=("network",),
)
TUNNELS = Collection(
    name="vpnTunnels",
    noun="vpnTunnel",
    scope="region",
    message=VpnTunnel,
    refers=("vpnGateway", "targetVpnGateway", "router"),
)


def _check_gateway(call: Call, document: dict[str, Any]) -> None:
    del call
    if not document.get("network"):
        raise _required("network")


def _check_tunnel(call: Call, document: dict[str, Any]) -> None:
    """Check that a tunnel has one gateway, and a highly available one its router."""
    del call
    if bool(document.get("vpnGateway")) == bool(document.get("targetVpnGateway")):
        raise _required("vpnGateway")
    if document.get("vpnGateway") and not document.get("router"):
        raise _required("router")
    secret = document.get("sharedSecret")
    if not secret:
        raise _required("sharedSecret")
    digest = hashlib.sha256(secret.encode()).digest()
    document |= {
        "sharedSecret": "*************",
        "sharedSecretHash": base64.b64encode(digest).decode(),
        "status": "WAITING_FOR_FULL_CONFIG",
    }


def _required(field: str) -> GcpError:
    return GcpError(
        "INVALID_ARGUMENT", f"Required field 'resource.{field}' not specified", classic="required"
    )


for _collection, _check in ((GATEWAYS, _check_gateway), (CLASSIC, _check_gateway), (TUNNELS, _check_tunnel)):
    collections.reads(_collection)
    changes.inserts(_collection, _check)
    changes.deletes(_collection)
