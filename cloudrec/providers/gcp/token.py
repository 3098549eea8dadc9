"""Print a token for Kubernetes clients of a GKE cluster: the command in the kubeconfig.

The token is a Google access token, the same for every cluster: IAM and Kubernetes' roles decide about the
permissions of its holder. No secret is written to disk.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from typing import TYPE_CHECKING

from google.auth.transport.requests import Request

from cloudrec.errors import CloudrecError
from cloudrec.providers.base.kubeconfig import credential
from cloudrec.providers.gcp import account, errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def token(environment: Mapping[str, str]) -> dict[str, object]:
    """Return an ExecCredential, the credential format of Kubernetes clients."""
    found, _ = account.load(environment)
    found.refresh(Request())
    return credential(str(found.token), found.expiry.strftime("%Y-%m-%dT%H:%M:%SZ"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a credential; return 0, or the exit code of the error (3) if Google gives no token."""
    ArgumentParser(prog="python -m cloudrec.providers.gcp.token", description=__doc__).parse_args(arguments)
    try:
        print(json.dumps(token(os.environ)))
    except (CloudrecError, *errors.REFUSALS) as error:
        explained = errors.explain(error)
        print(f"{explained.message}\n{explained.remedy or ''}".rstrip(), file=sys.stderr)
        return explained.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
