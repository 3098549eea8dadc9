"""The modules that the clouds' SDKs load lazily, loaded once by the server that commands are forked from."""

from __future__ import annotations

import gc

import cloudrec.app.lifecycle  # noqa: F401 - `cloudrec.app` loads it at its first use
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.azure.api.models import load_models

_aws = Aws({"AWS_REGION": "us-east-1"})
_AWS = (
    _aws.ec2,
    _aws.ecr,
    _aws.eks,
    _aws.elb,
    _aws.elbv2,
    _aws.fsx,
    _aws.iam,
    _aws.kms,
    _aws.logs,
    _aws.s3,
    _aws.sts,
    _aws.tagging,
)
_AZURE = (
    "authorization.v2022_04_01",
    "compute",
    "containerregistry",
    "containerservice",
    "msi.v2024_11_30",
    "network",
    "resource.resources",
    "resource.subscriptions",
    "storage",
    "storagecache",
)

for _service in _AZURE:
    load_models(f"azure.mgmt.{_service}.models")
gc.freeze()  # a garbage collection in a command would copy every page that it shares with the server
