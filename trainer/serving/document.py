"""The config.json of an export. This module must not import torch: readers of publications import it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "config.json"
FORMAT = "cloudrec-model"
SCHEMA_VERSION = 1


def encode_document(described: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of config.json.

    Args:
        described: its contents without the files.
        files: bytes and sha256 of each file, by its path in the export.
    """
    return json.dumps({**described, "files": dict(files)}, indent=2) + "\n"
