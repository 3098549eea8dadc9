"""One call on its way to whoever answers for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.sandbox.kubernetes import errors

if TYPE_CHECKING:
    from cloudrec.sandbox.http import HttpRequest
    from cloudrec.sandbox.kubernetes.access import User
    from cloudrec.sandbox.kubernetes.resources import Resource
    from cloudrec.sandbox.kubernetes.schema import Node
    from cloudrec.sandbox.kubernetes.store import Store
    from cloudrec.sandbox.kubernetes.target import Target
    from cloudrec.sandbox.kubernetes.world import Cluster

_LARGEST = 3 * 1024 * 1024  # bytes of a request


@dataclass(kw_only=True)
class Call:
    """What a handler sees of a request for a resource."""

    world: Cluster
    target: Target
    request: HttpRequest
    user: User
    resource: Resource
    warnings: list[str] = field(default_factory=list)

    @property
    def store(self) -> Store:
        """All objects."""
        return self.world.store

    @property
    def query(self) -> dict[str, str]:
        """The query."""
        return self.target.asked

    @property
    def content_type(self) -> str:
        """What the body is said to be."""
        return self.request.lower.get("content-type", "").partition(";")[0].strip()

    @property
    def node(self) -> Node:
        """What objects of this kind look like."""
        return self.world.node_of(self.resource)

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be kept; refused for words that mean nothing."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            raise errors.bad_request(
                f'Invalid value: []string{{"{asked}"}}: dryRun: Unsupported value: "{asked}": supported '
                'values: "All"'
            )
        return asked == "All"

    @property
    def manager(self) -> str:
        """Whose fields they are: what the client says, or the front of its user agent."""
        agent = self.request.lower.get("user-agent", "unknown").partition("/")[0]
        return self.query.get("fieldManager") or agent

    @cached_property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        """The body, JSON or YAML; None where there is none."""
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
        except ValueError:
            pass
        try:
            return yaml.safe_load(data)
        except yaml.YAMLError as error:
            raise errors.bad_request(f"error decoding the body: {error}") from error

    @property
    def object(self) -> dict[str, Any]:
        """The body, which must be an object of JSON."""
        if not isinstance(self.body, dict):
            raise errors.bad_request("the request's body is no object")
        return self.body

    def refusal(self, status: int, reason: str, message: str) -> errors.ApiError:
        """A refusal about the object of this call."""
        details = {"name": self.target.name, "group": self.resource.group, "kind": self.resource.plural}
        return errors.ApiError(
            status, reason, message, details={key: value for key, value in details.items() if value}
        )
