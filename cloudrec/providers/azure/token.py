"""A token with which Kubernetes' clients enter an AKS cluster, printed by `python -m` this module.

It is a token of Entra ID for AKS's own application, the same for every cluster: what its holder may do there
is decided by the roles that are assigned on the cluster. Nothing secret is written.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from cloudrec.cloud.kubeconfig import credential
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.client import Azure

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"  # AKS's application, in every tenant


def token(azure: Azure) -> dict[str, object]:
    """Return the ExecCredential that Kubernetes' clients ask for."""
    found = azure.credential.get_token(f"{_SERVER}/.default")
    expires = datetime.fromtimestamp(found.expires_on, UTC)
    return credential(found.token, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a credential; 3 where Entra ID gives none."""
    ArgumentParser(prog="python -m cloudrec.providers.azure.token", description=__doc__).parse_args(arguments)
    try:
        print(json.dumps(token(Azure(os.environ))))
    except (CloudrecError, AzureError) as error:
        told = errors.explain(error)
        print(f"{told.message}\n{told.remedy or ''}".rstrip(), file=sys.stderr)
        return told.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
