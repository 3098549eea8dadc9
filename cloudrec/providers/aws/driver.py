"""What all drivers of AWS share: its errors and its spellings of tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from cloudrec.cloud.driver import CloudDriver
from cloudrec.providers.aws import errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Verdict
    from cloudrec.errors import CloudrecError
    from cloudrec.providers.aws.client import Aws


class AwsDriver(CloudDriver):
    """Handles one kind of AWS's resources in one region."""

    refusals = (ClientError, BotoCoreError)

    def __init__(self, aws: Aws) -> None:
        super().__init__()
        self.aws = aws

    def is_absent(self, error: Exception) -> bool:
        """Tell by AWS's code whether the thing is not there."""
        return errors.is_absent(error)

    def verdict(self, error: Exception) -> Verdict:
        """Tell by AWS's code whether the call may be made again."""
        return errors.verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what AWS's error means."""
        return errors.explain(error)


def as_list(tags: Mapping[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    """Return tags as most of AWS wants them; some services spell the two names in lower case."""
    return [{key: name, value: content} for name, content in tags.items()]


def as_map(
    tags: Sequence[Mapping[str, str]] | None, key: str = "Key", value: str = "Value"
) -> dict[str, str]:
    """Return tags, as most of AWS lists them, as a mapping."""
    return {tag[key]: tag[value] for tag in tags or ()}
