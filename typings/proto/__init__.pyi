"""What mypy sees of proto-plus, on which the models of Google's SDK are built; it has no types itself.

A message answers to any name, and takes any keyword: here it has its declared fields alone, and
scripts/mypy_sdks.py checks the keywords.
"""

from enum import IntEnum
from typing import Any

from proto.message import Message as Message

Enum = IntEnum

# Descriptions of fields; a field has the type with which it is annotated.
def Field(*args: object, **kwargs: object) -> Any: ...
def RepeatedField(*args: object, **kwargs: object) -> Any: ...
def MapField(*args: object, **kwargs: object) -> Any: ...
def module(*args: object, **kwargs: object) -> Any: ...

BOOL: object
BYTES: object
DOUBLE: object
ENUM: object
FIXED32: object
FIXED64: object
FLOAT: object
INT32: object
INT64: object
MESSAGE: object
SFIXED32: object
SFIXED64: object
SINT32: object
SINT64: object
STRING: object
UINT32: object
UINT64: object
