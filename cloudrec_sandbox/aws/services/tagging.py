"""The tagging API, over everything that has tags: moto's misses many kinds.

A service module reports its resources by a function decorated with `tagged_resources`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moto.core.resource_tagging import iter_taggable_backends

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.services.eks.state import Eks
from cloudrec_sandbox.aws.services.eks.tags import tagged as eks_tags

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

Tagged = tuple[str, Mapping[str, str]]  # an ARN, its tags
Tags = Callable[["World", str], Iterable[Tagged]]

_PER_PAGE = 50
_OURS = ("ec2", "fsx")  # the modules of these services report their tags; moto's are left out
_functions: list[Tags] = []


def tagged_resources(function: Tags) -> Tags:
    """Register a function that yields the ARNs and tags of what exists in a region."""
    _functions.append(function)
    return function


@operation("resourcegroupstaggingapi", "GetResources")
def get_resources(call: Call) -> dict[str, Any]:
    """Return what has the requested tags, in pages; a resource that never had a tag is not shown."""
    wanted = call.params
    found = sorted(
        (arn, tags)
        for arn, tags in _all(call.world, call.region)
        if tags
        and _has(tags, wanted.get("TagFilters", []))
        and _is_of(arn, wanted.get("ResourceTypeFilters", []))
    )
    start = int(wanted.get("PaginationToken") or 0)
    end = start + wanted.get("ResourcesPerPage", _PER_PAGE)
    return {
        "PaginationToken": str(end) if end < len(found) else "",
        "ResourceTagMappingList": [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in found[start:end]
        ],
    }


def _all(world: World, region: str) -> Iterator[tuple[str, dict[str, str]]]:
    for backend in iter_taggable_backends(ACCOUNT, region):
        if backend.SERVICE_NAMESPACE not in _OURS:
            for resource in backend.iter_tagged_resources():
                yield resource.arn, dict(resource.tags)
    for tags_of in _functions:
        for arn, tags in tags_of(world, region):
            yield arn, dict(tags)


def _has(tags: Mapping[str, str], filters: Iterable[Mapping[str, Any]]) -> bool:
    return all(
        wanted["Key"] in tags and (not wanted.get("Values") or tags[wanted["Key"]] in wanted["Values"])
        for wanted in filters
    )


def _is_of(arn: str, types: Iterable[str]) -> bool:
    """Return whether the ARN is of one of the types, such as `ec2:vpc` or `ec2`."""
    service, rest = arn.split(":")[2], arn.split(":", 5)[5]
    kind = re.split(r"[:/]", rest, maxsplit=1)[0]
    return not types or any(name in (service, f"{service}:{kind}") for name in types)


@tagged_resources
def repositories(world: World, region: str) -> Iterator[Tagged]:
    """Yield ECR's repositories, which moto leaves out."""
    ecr = world.backend("ecr", region)
    for repository in ecr.repositories.values():
        yield repository.arn, ecr.tagger.get_tag_dict_for_resource(repository.arn)


@tagged_resources
def clusters(world: World, region: str) -> Iterator[Tagged]:
    """Yield EKS's resources."""
    for _, arn, tags in eks_tags(world.state(Eks, region)):
        yield arn, tags
