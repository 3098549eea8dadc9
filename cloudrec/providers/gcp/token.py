"""A token with which Kubernetes' clients enter a GKE cluster, printed by `python -m` this module.

It is an access token of Google's, the same for every cluster: what its holder may do there is decided by IAM,
and by Kubernetes' own roles. Nothing secret is written.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from typing import TYPE_CHECKING

from google.auth.transport.requests import Request

from cloudrec.cloud.kubeconfig import credential
from cloudrec.errors import CloudrecError
from cloudrec.providers.gcp import credentials, errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def token(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the ExecCredential that Kubernetes' clients ask for."""
    found, _ = credentials.load(environment)
    found.refresh(Request())
    return credential(str(found.token), found.expiry.strftime("%Y-%m-%dT%H:%M:%SZ"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a credential; 3 where Google gives none."""
    ArgumentParser(prog="python -m cloudrec.providers.gcp.token", description=__doc__).parse_args(arguments)
    try:
        print(json.dumps(token(os.environ)))
    except (CloudrecError, *errors.REFUSALS) as error:
        told = errors.explain(error)
        print(f"{told.message}\n{told.remedy or ''}".rstrip(), file=sys.stderr)
        return told.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
