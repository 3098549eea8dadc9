"""Tags on Google Cloud: the encoding in labels and descriptions."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cloudrec.engine.graph import TAG_CLUSTER, TAG_EXPIRES, TAG_KEY, TAG_OWNER
from cloudrec.providers.gcp.api import labels

TAGS = st.dictionaries(
    st.sampled_from([TAG_CLUSTER, TAG_OWNER, TAG_KEY, TAG_EXPIRES, "cloudrec-region"]), st.text(max_size=80)
)


@given(TAGS)
def test_any_tags_are_encoded_as_valid_labels(tags: dict[str, str]) -> None:
    written = labels.encode(tags)
    assert labels.decode(written) == tags
    assert all(re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", name) for name in written)
    assert all(re.fullmatch(r"[a-z0-9_-]{0,63}", value) for value in written.values())


@given(TAGS)
def test_any_tags_are_encoded_in_descriptions(tags: dict[str, str]) -> None:
    assert labels.described(labels.describe(tags, 10_000)) == tags


def test_labels_are_human_readable() -> None:
    tags = {TAG_KEY: "gpu-nodes/t-a", TAG_EXPIRES: "2026-11-21T15:30:00Z", TAG_OWNER: "a-person", "Name": "x"}
    assert labels.encode(tags) == {
        TAG_KEY: "gpu-nodes__t-a",
        TAG_EXPIRES: "20261121t153000z",
        TAG_OWNER: "a-person",
    }


def test_labels_and_descriptions_of_others_are_not_tags() -> None:
    assert labels.decode({"team": "ads", "goog-gke-node": ""}) == {}
    assert labels.described("a network") == {}
    assert labels.described("cloudrec:edited by hand") == {}
    assert labels.described("cloudrec:[1]") == {}


def test_a_short_description_keeps_cluster_key_and_owner() -> None:
    tags = {
        TAG_CLUSTER: "c" * 40,
        TAG_OWNER: "o" * 40,
        TAG_KEY: f"service-account/{'c' * 40}-nodes",
        TAG_EXPIRES: "2026-11-21T15:30:00Z",
        "cloudrec-region": "northamerica-northeast1",
    }
    text = labels.describe(tags, 256)
    assert len(text) <= 256
    told = labels.described(text)
    assert {name: told[name] for name in (TAG_CLUSTER, TAG_OWNER, TAG_KEY)} == {
        name: tags[name] for name in (TAG_CLUSTER, TAG_OWNER, TAG_KEY)
    }
