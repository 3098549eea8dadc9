"""AWS's stand-in as a server."""

from __future__ import annotations

from typing import Any

from cloudrec_sandbox.aws import services
from cloudrec_sandbox.aws.api import registry
from cloudrec_sandbox.aws.engine import Engine
from cloudrec_sandbox.aws.services.iam import ROOT_KEY
from cloudrec_sandbox.core import server

_REGION = "us-east-1"


class AwsServer(server.CloudServer):
    """Answers for all of AWS on one port."""

    def __init__(self, port: int) -> None:
        registry.load(services)
        super().__init__(port, Engine())

    def announcement(self) -> dict[str, Any]:
        """Return what a client needs to reach the server."""
        return {
            "endpoints": {"aws": self.address},
            "env": {
                "AWS_ENDPOINT_URL": self.address,
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": "sandbox",
                "AWS_REGION": _REGION,
                "AWS_DEFAULT_REGION": _REGION,
                "AWS_EC2_METADATA_DISABLED": "true",
                **self.variables,
            },
        }


def serve(port: int) -> AwsServer:
    """Return a server bound to a port of 127.0.0.1 (0: a free one), ready for `serve_forever`."""
    return AwsServer(port)
