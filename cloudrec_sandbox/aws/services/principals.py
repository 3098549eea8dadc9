"""Policies that name IAM principals: services refuse those that do not exist, or not yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.services.iam import is_principal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.world import World

_IAM = f"arn:aws:iam::{ACCOUNT}:"


def invalid_principals(world: World, policy: str) -> list[str]:
    """Return this account's roles and users in a policy that do not exist; ValueError for no JSON object."""
    document = json.loads(policy)
    if not isinstance(document, dict):
        raise ValueError("a policy is a JSON object")  # noqa: TRY004 - as json.loads raises
    return [arn for arn in _named(document) if not _is_there(world, arn)]


def _named(document: dict[str, Any]) -> Iterator[str]:
    statements = document.get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        named = principal.get("AWS", []) if isinstance(principal, dict) else []
        yield from named if isinstance(named, list) else [named]


def _is_there(world: World, arn: str) -> bool:
    if not arn.startswith(_IAM) or arn == f"{_IAM}root":
        return True  # everyone, a principal of another account, or the account itself
    return is_principal(world, arn)
