"""What ARM itself refuses: names, tags, locations, missing groups and parents, versions of APIs."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError, group_not_found
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.lag import GROUPS, lag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.kinds import Kind
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.azure.arm.store import Resource

_MOST_TAGS = 50
_LONGEST_NAME, _LONGEST_VALUE = 512, 256
_NOT_IN_TAGS = re.compile(r"[<>%&\\?/\x00-\x1f]")
_VERSION = re.compile(r"\d{4}-\d\d-\d\d(-preview)?")


def check_version(call: Call, type_: str, apis: Sequence[str], *, required: bool = True) -> None:
    """Refuse a call without an API version, or with an unknown one."""
    version = call.query.get("api-version", "")
    if not version:
        if not required:
            return
        raise ArmError(
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required for all requests.",
        )
    if not _VERSION.fullmatch(version):
        raise ArmError("InvalidApiVersionParameter", f"The api-version '{version}' is invalid.")
    if apis and version not in apis:
        namespace, _, rest = type_.partition("/")
        raise ArmError(
            "NoRegisteredProviderFound",
            f"No registered resource provider found for API version '{version}' for type '{rest}' of "
            f"'{namespace}'. The supported api-versions are '{', '.join(apis)}'.",
        )


def check_group(call: Call, kind: Kind, *, missing_is_fine: bool = False) -> Resource | None:
    """Refuse a path in an unknown resource group; return its group, if it has one."""
    if not kind.needs_group or not call.path.group:
        return None
    path = call.path
    group = store(call.world).find(f"/subscriptions/{path.subscription}/resourceGroups/{path.group}")
    is_known = group is not None and call.world.now() - group.made_at >= lag(call.world, GROUPS)
    if not is_known and not missing_is_fine:
        raise group_not_found(path.group)
    return group


def check_parents(call: Call, kind: Kind) -> None:
    """Refuse a child of a parent that does not exist, or that is being deleted."""
    group = check_group(call, kind)
    if group is not None and group.deleting:
        raise ArmError(
            "ResourceGroupBeingDeleted",
            f"The resource group '{group.name}' is in deprovisioning state and cannot perform this "
            f"operation.",
            status=HTTPStatus.CONFLICT,
        )
    if len(call.path.types) > 1:
        parent = store(call.world).find(call.path.parent)
        if parent is None or parent.deleting:
            name = "/".join(call.path.parent.rsplit("/", 2)[1:])
            raise ArmError(
                "ParentResourceNotFound",
                f"Failed to perform '{call.target.method.lower()}' on resource(s) of type "
                f"'{call.path.type.partition('/')[2]}', because the parent resource '{name}' could not be "
                f"found.",
                status=HTTPStatus.NOT_FOUND,
            )


def check_name(kind: Kind, path: Path) -> None:
    """Refuse a name that the type does not allow."""
    if not re.fullmatch(kind.name_rule, path.name) or path.name.endswith("."):
        raise ArmError(
            "InvalidResourceName",
            f"Resource name {path.name} is invalid. It must match {kind.name_rule} and not end with a "
            f"period.",
        )


def check_location(kind: Kind, path: Path, body: dict[str, Any], old: Resource | None) -> None:
    """Refuse a region that does not offer the type, and a change of region."""
    location = str(body.get("location") or "")
    if not location:
        raise ArmError("LocationRequired", "The location property is required for this definition.")
    # ARM compares regions without case and spaces: "East US" is eastus.
    where = location.lower().replace(" ", "")
    known = tuple(kind.regions or REGIONS)
    if where not in known:
        raise ArmError(
            "LocationNotAvailableForResourceType",
            f"The provided location '{location}' is not available for resource type '{kind.type}'. List of "
            f"available regions for the resource type is '{','.join(known)}'.",
        )
    # A resource cannot move: another region is a different resource with the same id.
    if old is not None and old.location != where:
        raise ArmError(
            "InvalidResourceLocation",
            f"The resource '{path.name}' already exists in location '{old.location}' in resource group "
            f"'{path.group}'. A resource with the same name cannot be created in location '{where}'. Please "
            "select a new resource name.",
            status=HTTPStatus.CONFLICT,
        )


def check_tags(tags: Any) -> None:  # noqa: ANN401 - JSON
    """Refuse more tags than ARM allows, and tags that are too long."""
    if tags is None:
        return
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise ArmError("InvalidRequestContent", "The request content was invalid: tags are strings by name.")
    if len(tags) > _MOST_TAGS:
        raise ArmError(
            "InvalidTagCount",
            f"The number of tags '{len(tags)}' provided for the resource exceeds the maximum of "
            f"'{_MOST_TAGS}'.",
        )
    if bad := [name for name in tags if _NOT_IN_TAGS.search(name) or not name]:
        raise ArmError(
            "InvalidTagNameCharacters",
            f"The tag names '{','.join(bad)}' have reserved characters '<,>,%,&,\\,?,/' or control "
            f"characters.",
        )
    for name, value in tags.items():
        if len(name) > _LONGEST_NAME:
            raise ArmError(
                "InvalidTagName", f"The tag name '{name}' is longer than {_LONGEST_NAME} characters."
            )
        if len(value) > _LONGEST_VALUE:
            raise ArmError(
                "InvalidTagValueLength",
                f"Tag value too large. Following tag value '{value}' exceeded the maximum length. Maximum "
                f"allowed "
                f"length for tag value - '{_LONGEST_VALUE}' characters.",
            )
