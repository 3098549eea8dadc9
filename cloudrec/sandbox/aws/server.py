"""AWS's stand-in as a server."""

from __future__ import annotations

from typing import Any

from cloudrec.sandbox import server
from cloudrec.sandbox.aws import registry
from cloudrec.sandbox.aws.engine import Engine
from cloudrec.sandbox.aws.services.permissions.enforcement import ROOT_KEY

_REGION = "us-east-1"


class AwsServer(server.SandboxServer):
    """Answers for all of AWS on one port."""

    def __init__(self, port: int) -> None:
        registry.load()
        super().__init__(port, Engine())

    def announcement(self) -> dict[str, Any]:
        """What a client needs to reach it."""
        return {
            "endpoints": {"aws": self.address},
            "env": {
                "AWS_ENDPOINT_URL": self.address,
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": "sandbox",
                "AWS_REGION": _REGION,
                "AWS_DEFAULT_REGION": _REGION,
                "AWS_EC2_METADATA_DISABLED": "true",
                "CLOUDREC_CLUSTER_ADDONS": "none",  # no API server of its clusters answers, unless linked
                "CLOUDREC_SANDBOX_SPEED": f"{self.engine.world.clock.speed:g}",
            },
        }


def serve(port: int) -> AwsServer:
    """A server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return AwsServer(port)
