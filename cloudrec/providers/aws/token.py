"""A token with which Kubernetes' clients enter an EKS cluster, printed by `python -m` this module.

It is a request to STS, signed but not sent: EKS sends it, and so learns who asks. Nothing secret is written.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from botocore.signers import RequestSigner

from cloudrec.cloud.kubeconfig import credential
from cloudrec.errors import CloudrecError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.client import Aws

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNED_FOR_S = 60  # until EKS must have sent it
_VALID = timedelta(minutes=14)  # EKS takes it for 15
_PREFIX = "k8s-aws-v1."


def token(aws: Aws, cluster: str) -> str:
    """Return a token for a cluster, by EKS's name of it."""
    sts = aws.client("sts")
    signer = RequestSigner(
        sts.meta.service_model.service_id,
        aws.region,
        "sts",
        "v4",
        aws.session.get_credentials(),
        aws.session.events,
    )
    request = {
        "method": "GET",
        "url": f"{sts.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(
        request, region_name=aws.region, expires_in=_SIGNED_FOR_S, operation_name=""
    )
    return _PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a credential; 3 where AWS gives none."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.providers.aws.token", description=__doc__)
    parser.add_argument("--cluster", required=True, help="EKS's name of the cluster")
    parser.add_argument("--region", required=True)
    asked = parser.parse_args(arguments)
    try:
        expires = datetime.now(UTC) + _VALID
        of = token(Aws(os.environ, asked.region), asked.cluster)
        print(json.dumps(credential(of, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))))
    except (CloudrecError, BotoCoreError, ClientError) as error:
        told = error if isinstance(error, CloudrecError) else errors.explain(error)
        print(f"{told.message}\n{told.remedy or ''}".rstrip(), file=sys.stderr)
        return told.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
