"""A Kubernetes client's token for an EKS cluster; `python -m cloudrec.providers.aws.token` prints it.

The token is a signed request to STS. EKS sends the request, and STS returns the caller's identity. The token
contains no secret key.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import NoCredentialsError
from botocore.signers import RequestSigner

from cloudrec.errors import CloudrecError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.base.kubeconfig import credential

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNED_FOR_S = 60  # seconds until STS refuses the request
_VALID = timedelta(minutes=14)  # EKS accepts a token for 15 minutes; clients renew it before
_PREFIX = "k8s-aws-v1."


def token(aws: Aws, cluster: str) -> str:
    """Return a token for the cluster of this name in EKS; NoCredentialsError without credentials."""
    sts = aws.sts
    credentials = aws.session.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    signer = RequestSigner(
        sts.meta.service_model.service_id,
        aws.region,
        "sts",
        "v4",
        credentials,
        aws.session.events,
    )
    request = {
        "method": "GET",
        "url": f"{sts.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster},  # signed: the token is of no use at another cluster
        "context": {},
    }
    url = signer.generate_presigned_url(
        request, region_name=aws.region, expires_in=_SIGNED_FOR_S, operation_name=""
    )
    # EKS expects base64 without padding.
    return _PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print an ExecCredential as JSON, and return the exit code: 3 without usable AWS credentials."""
    parser = argparse.ArgumentParser(prog="python -m cloudrec.providers.aws.token", description=__doc__)
    parser.add_argument("--cluster", required=True, help="the cluster's name in EKS")
    parser.add_argument("--region", required=True)
    options = parser.parse_args(arguments)
    try:
        expires = datetime.now(UTC) + _VALID
        made = token(Aws(os.environ, options.region), options.cluster)
        print(json.dumps(credential(made, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))))
    except (CloudrecError, *errors.REFUSALS) as error:
        explained = errors.explain(error)
        print(f"{explained.message}\n{explained.remedy or ''}".rstrip(), file=sys.stderr)
        return explained.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
