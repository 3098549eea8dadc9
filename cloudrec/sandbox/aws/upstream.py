"""moto as a WSGI application in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from moto.backends import get_backend
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from cloudrec.sandbox.aws.world import ACCOUNT
from cloudrec.sandbox.aws.wsgi import environ
from cloudrec.sandbox.http import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudrec.sandbox.http import HttpRequest


_PARTITION = "aws"


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
        """Moto's reply; NotImplementedError for an operation that it lacks."""
        told: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
            told.append((status, headers))

        chunks: Any = self._application(environ(request), start_response)
        body = _joined(chunks)
        status, headers = told[-1]
        return Reply(status=int(status.split()[0]), headers=tuple(headers), body=body)

    def reset(self) -> None:
        """Back to an empty account."""
        used: Any = BackendDict
        for backends in list(used._instances):  # noqa: SLF001 - its own reset makes everything anew, to drop it
            if backends.service_name == "s3":
                backends[ACCOUNT].reset()  # it also knows whose a bucket is, and has open files
            backends.clear()
        reset_model_data()
        self._furnish()

    def _furnish(self) -> None:
        """Put AWS's own policies into IAM: moto would read 3 MB anew for every partition that AWS has."""
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
