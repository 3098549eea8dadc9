"""One call for a resource, with what its handler reads from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.safe_yaml import safe_yaml
from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.kubernetes.api.target import Target
    from cloudrec_sandbox.kubernetes.api.world import Cluster
    from cloudrec_sandbox.kubernetes.objects.resources import Resource
    from cloudrec_sandbox.kubernetes.objects.schema import Node
    from cloudrec_sandbox.kubernetes.storage.access import User
    from cloudrec_sandbox.kubernetes.storage.store import Store

_LARGEST = 3 * 1024 * 1024  # bytes of a request


@dataclass(kw_only=True)
class Call:
    """A request for a resource, as its handler sees it."""

    world: Cluster
    target: Target
    request: HttpRequest
    user: User
    resource: Resource
    warnings: list[str] = field(default_factory=list)

    @property
    def store(self) -> Store:
        """Return the store of all objects."""
        return self.world.store

    @property
    def query(self) -> dict[str, str]:
        """Return the query."""
        return self.target.asked

    @property
    def content_type(self) -> str:
        """Return the body's media type."""
        return self.request.lower.get("content-type", "").partition(";")[0].strip()

    @property
    def node(self) -> Node:
        """Return the schema of objects of this kind."""
        return self.world.node_of(self.resource)

    @property
    def dry_run(self) -> bool:
        """Return whether the change is not to be kept; refused for an unknown value."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            raise errors.bad_request(
                f'Invalid value: []string{{"{asked}"}}: dryRun: Unsupported value: "{asked}": supported '
                'values: "All"'
            )
        return asked == "All"

    @property
    def manager(self) -> str:
        """Return the field manager: the query's, or the first part of the user agent."""
        agent = self.request.lower.get("user-agent", "unknown").partition("/")[0]
        return self.query.get("fieldManager") or agent

    @cached_property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        """Return the body, JSON or YAML; None if there is none."""
        data = self.request.body
        if len(data) > _LARGEST:
            raise errors.ApiError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "RequestEntityTooLarge",
                f"Request entity too large: limit is {_LARGEST}",
            )
        if not data.strip():
            return None
        try:
            return json.loads(data)
        except RecursionError as error:
            raise errors.bad_request(f"error decoding the body: {error}") from error
        except ValueError:
            pass
        try:
            text = data.decode()
            return safe_yaml(text, where="the body", error=UsageError, most=_LARGEST).value
        except (UnicodeDecodeError, UsageError) as error:
            raise errors.bad_request(f"error decoding the body: {error}") from error

    @property
    def object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object."""
        if not isinstance(self.body, dict):
            raise errors.bad_request("the request's body is no object")
        return self.body

    def refusal(self, status: int, reason: str, message: str) -> errors.ApiError:
        """Return a refusal about the object of this call."""
        details = {"name": self.target.name, "group": self.resource.group, "kind": self.resource.plural}
        return errors.ApiError(
            status, reason, message, details={key: value for key, value in details.items() if value}
        )
