"""The base of all messages."""

from collections.abc import Mapping
from typing import Any, Self

class Message:
    def __init__(
        self, mapping: object = ..., *, ignore_unknown_fields: bool = ..., **kwargs: Any
    ) -> None: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, key: str) -> bool: ...
    def __delattr__(self, key: str) -> None: ...
    @classmethod
    def copy_from(cls, instance: Message, other: Message | Mapping[str, object]) -> None: ...
    @classmethod
    def deserialize(cls, payload: bytes) -> Self: ...
    @classmethod
    def from_json(cls, payload: str | bytes, *, ignore_unknown_fields: bool = ...) -> Self: ...
    @classmethod
    def pb(cls, obj: object = ..., *, coerce: bool = ...) -> Any: ...  # protobuf's own message
    @classmethod
    def serialize(cls, instance: Message) -> bytes: ...
    @classmethod
    def to_dict(
        cls,
        instance: Message,
        *,
        use_integers_for_enums: bool = ...,
        preserving_proto_field_name: bool = ...,
        including_default_value_fields: bool | None = ...,
        always_print_fields_with_no_presence: bool | None = ...,
    ) -> dict[str, Any]: ...
    @classmethod
    def to_json(
        cls,
        instance: Message,
        *,
        use_integers_for_enums: bool = ...,
        preserving_proto_field_name: bool = ...,
        including_default_value_fields: bool | None = ...,
        sort_keys: bool = ...,
        indent: int | None = ...,
        always_print_fields_with_no_presence: bool | None = ...,
    ) -> str: ...
    @classmethod
    def wrap(cls, pb: object) -> Self: ...
