"""moto as a WSGI application in this process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from moto.backends import get_backend
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.ec2.models import amis
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.api.wsgi import environ
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec_sandbox.core.http import HttpRequest


_PARTITION = "aws"
# moto gives each region hundreds of Amazon's images, each with a snapshot, and compares all of them with the
# filters of a list of snapshots. With this variable, which it reads for each region, it takes a file's images
# in their place; it has read its own file of 44 by now.
os.environ["MOTO_AMIS_PATH"] = str(amis.__file__)


class Moto:
    """Answers as moto_server does."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        known = json.loads(aws_managed_policies_data)
        self._policies = [
            AWSManagedPolicy.from_data(name, ACCOUNT, _PARTITION, data) for name, data in known.items()
        ]
        self._furnish()

    def answer(self, request: HttpRequest) -> Reply:
        """Return moto's reply; NotImplementedError for an operation that it lacks."""
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
            started.append((status, headers))

        chunks: Any = self._application(environ(request), start_response)
        body = _joined(chunks)
        status, headers = started[-1]
        return Reply(status=int(status.split()[0]), headers=tuple(headers), body=body)

    def reset(self) -> None:
        """Reset to an empty account."""
        used: Any = BackendDict
        # moto's own reset would make every backend again, only to drop it.
        for backends in list(used._instances):  # noqa: SLF001 - moto has no public list of them
            if backends.service_name == "s3":
                backends[ACCOUNT].reset()  # S3's also forgets the owners of buckets and closes its files
            backends.clear()
        reset_model_data()
        self._furnish()

    def _furnish(self) -> None:
        """Put AWS's own policies into IAM once: moto would read 3 MB again for every partition."""
        iam: Any = get_backend("iam")[ACCOUNT][_PARTITION]
        for policy in self._policies:
            policy.attachment_count = 0
        iam.aws_managed_policies = list(self._policies)
        iam.managed_policies = {policy.arn: policy for policy in self._policies}


def _joined(chunks: Iterable[bytes]) -> bytes:
    body = b"".join(chunks)
    close = getattr(chunks, "close", None)
    if close is not None:
        close()
    return body
