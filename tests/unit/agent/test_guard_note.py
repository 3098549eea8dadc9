"""The guard's note, which an image of an earlier version must be able to read."""

from __future__ import annotations

import json

from cloudrec.keeper.note import Note
from cloudrec.spec.models import ClusterSpec


def test_the_note_omits_whether_the_cluster_is_private() -> None:
    cluster = ClusterSpec(name="c", provider="aws", access="private", expires="2026-11-21T13:00:00Z")
    text = Note(cluster=cluster).to_json()
    assert "access" not in json.loads(text)["cluster"]
    assert Note.of(text).end() == Note(cluster=cluster).end()
