"""What the clouds' SDKs load at their first use, loaded once by the server that commands are forked from."""

from __future__ import annotations

import gc

import cloudrec.app.upkeep  # noqa: F401 - `cloudrec.app` loads it at its first use
from cloudrec.providers.aws.client import Aws
from cloudrec.providers.azure.client import load_models

_AWS = (
    "ec2",
    "ecr",
    "eks",
    "elb",
    "elbv2",
    "fsx",
    "iam",
    "kms",
    "logs",
    "resourcegroupstaggingapi",
    "s3",
    "sts",
)
_AZURE = (
    "authorization",
    "compute",
    "containerregistry",
    "containerservice",
    "msi",
    "network",
    "resource.resources",
    "resource.subscriptions",
    "storage",
    "storagecache",
)

for _service in _AWS:
    Aws({"AWS_REGION": "us-east-1"}).client(_service)
for _service in _AZURE:
    load_models(f"azure.mgmt.{_service}")
gc.freeze()  # a collection in a command would copy every page of what it shares with the server
