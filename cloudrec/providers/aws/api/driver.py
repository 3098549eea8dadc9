"""The base class of AWS's drivers, and conversions of tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from cloudrec.engine.graph import P_contra
from cloudrec.providers.aws import errors
from cloudrec.providers.base.driver import CloudDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.engine.graph import ErrorVerdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.aws.api.client import Aws


class Tag(TypedDict):
    """A tag in the form that most of AWS's services use."""

    Key: str
    Value: str


class AwsDriver(CloudDriver[P_contra]):
    """Handles one kind of resources in one region."""

    refusals = errors.REFUSALS

    def __init__(self, aws: Aws) -> None:
        super().__init__()
        self.aws = aws

    def is_absent(self, error: Exception) -> bool:
        """Return whether the error's code means that the resource does not exist."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the engine may repeat the call, by the error's code."""
        return errors.verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Return AWS's error as a CloudrecError with a remedy."""
        return errors.explain(error)


def as_list(tags: Mapping[str, str]) -> list[Tag]:
    """Return tags as a list of keys and values, the form of most of AWS's services."""
    return [{"Key": name, "Value": content} for name, content in tags.items()]


def as_map(
    tags: Iterable[Mapping[str, object]] | None, key: str = "Key", value: str = "Value"
) -> dict[str, str]:
    """Return a service's list of tags as a mapping; `key` and `value` are its names of the two fields."""
    return {str(tag[key]): str(tag[value]) for tag in tags or ()}
