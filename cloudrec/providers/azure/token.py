"""Print a token that Kubernetes clients send to an AKS cluster.

The kubeconfig names this module as its credential command. The token is Entra ID's for the AKS application
and is valid for every cluster; the roles that are assigned on a cluster decide what the caller may do there.
Nothing secret is written to disk.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api.client import Azure
from cloudrec.providers.base.kubeconfig import credential

if TYPE_CHECKING:
    from collections.abc import Sequence

_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"  # id of the AKS application, the same in every tenant


def token(azure: Azure) -> dict[str, object]:
    """Return an ExecCredential, which Kubernetes clients read from the credential command."""
    found = azure.read(azure.credential.get_token, f"{_SERVER}/.default")
    expires = datetime.fromtimestamp(found.expires_on, UTC)
    return credential(found.token, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a credential and return the exit code; 3 if Entra ID issues no token."""
    ArgumentParser(prog="python -m cloudrec.providers.azure.token", description=__doc__).parse_args(arguments)
    try:
        print(json.dumps(token(Azure(os.environ))))
    except (CloudrecError, *errors.REFUSALS) as error:
        explained = errors.explain(error)
        print(f"{explained.message}\n{explained.remedy or ''}".rstrip(), file=sys.stderr)
        return explained.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
