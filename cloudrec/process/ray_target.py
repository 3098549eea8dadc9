"""The part of a run's spec.json that describes a Ray head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class RayTarget:
    """The address of a Ray head.

    Attributes:
        ray_address: URL of the head's dashboard.
        ray_token_file: path of the file that holds its token; empty for a head without one.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    ray_address: str
    ray_token_file: str = ""
