"""A cluster in another region uses the storage of the first one: its plan, `down`, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.app.accounts import OtherAccountError
from cloudrec.cli.plans import plan_document, plan_summary
from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import Properties, Resource
from cloudrec.engine.journal import Missing
from cloudrec.engine.plan import Plan
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UsageError
from cloudrec.home import Home
from cloudrec.keeper.note import Note
from cloudrec.providers.base.prices import today
from cloudrec.providers.base.storage.sharing import users_of
from cloudrec.spec.models import ClusterSpec, SharedStorageSpec
from tests.conformance.support_clouds import Cloud, Site, stand_in

EAST, WEST = "east", "west"
REGIONS = {
    "aws": ("us-east-1", "us-west-2"),
    "gcp": ("us-central1", "europe-west4"),
    "azure": ("eastus", "westus2"),
}
QUOTAS: Mapping[str, Mapping[str, int]] = {
    "aws": {},
    "gcp": {"europe-west4/NVIDIA_A100_GPUS": 500},
    "azure": {},
}

TRAFFIC = {  # by the price list of AWS; those of the others are not read for it
    "aws": f"; a GB from there costs $0.02 ({today()}, us-east-1, AWS price list)",
    "azure": "; what a GB from there costs is not known",
    "gcp": "; what a GB from there costs is not known",
}
SPOILED = {"aws": "bucket", "azure": "storage-account", "gcp": "bucket"}  # the kind that `spoil` changes
OWN: Mapping[str, Mapping[str, Any]] = {  # settings of a cluster's own storage
    "aws": {"bucket": "mine", "lustre_gib": 36000},
    "azure": {
        "storage_account": "mine",
        "container": "mine",
        "lustre_importer": "00000000-0000-0000-0000-000000000001",
    },
    "gcp": {"bucket": "mine", "lustre_gib": 36000},
}


class Pair:
    """A home with a cluster in each of two regions; both are managed."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        cloud.reset()
        cloud.control(quotas={**cloud.ways.generous["quotas"], **QUOTAS[cloud.name]})
        self.cloud, self.site = cloud, Site(cloud, folder)
        self.provider = self.site.application.provider(cloud.name)

    @classmethod
    def elsewhere(cls, pair: Pair, folder: Path) -> Pair:
        """Return the same account with another home, which knows neither cluster."""
        made = copy(pair)
        made.site = Site(pair.cloud, folder)
        return made

    def spec(self, name: str, **more: Any) -> ClusterSpec:
        region = REGIONS[self.cloud.name][name == WEST] or None
        given: dict[str, Any] = {"owner": "tester", "nodes": 1, "region": region, "capacity": "spot", **more}
        return ClusterSpec.model_validate({"name": name, "provider": self.cloud.name, **given})

    def up(self, name: str, *, dry_run: bool = False, **more: Any) -> Plan:
        return app.up(self.site.application, self.spec(name, **more), decide=lambda _plan: not dry_run)

    def down(self, name: str, *, keep_data: bool = False, dry_run: bool = False) -> None:
        app.down(
            self.site.application,
            provider_name=self.cloud.name,
            cluster_name=name,
            keep_data=keep_data,
            decide=lambda _removal: not dry_run,
        )

    def recorded(self, name: str) -> ClusterSpec:
        """The journal's specification."""
        return app.choose(self.site.application, provider_name=self.cloud.name, cluster_name=name)

    def pretend(self, name: str, *, account: str | None = None, bucket: bool = True, **more: Any) -> None:
        """Write into the journal what an `up` of a cluster would have written, without the cluster."""
        journal, spec = self.site.application.journal, self.spec(name, **more)
        own = self.provider.account_of(spec)  # type: ignore[attr-defined] # both clouds have accounts
        request = spec.model_dump(mode="json")
        journal.put_cluster(name, spec.provider, request, account=own if account is None else account)
        if bucket:
            made = Resource(
                kind=self.provider.storage_kind,  # type: ignore[attr-defined] # all of them share storage
                name=name,
                needs=(),
                properties=Properties(),
                tags={},
                hourly_usd=BY_USE,
                holds_data=True,
            )
            journal.adopt(name, made, f"cloudrec-{name}")


@pytest.fixture(scope="module", params=["aws", "azure", "gcp"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with stand_in(request.param) as running:
        yield running


@pytest.fixture
def pair(cloud: Cloud, tmp_path: Path) -> Pair:
    return Pair(cloud, tmp_path)


def buckets(cloud: Cloud) -> list[str]:
    pattern = r"s3:bucket:|storage:buckets?:|.*Microsoft.Storage/storageAccounts/[^/]*$"
    return [entry for entry in cloud.state() if re.match(pattern, entry)]


def users(pair: Pair) -> dict[str, str]:
    """The users in the tags of the bucket of `east`."""
    found = pair.provider.search(EAST)
    return {name: region for seen in found for name, region in users_of(seen.tags).items()}


def spoil(pair: Pair) -> None:
    """Change the bucket of `east` by hand, so that the next `up` repairs it."""
    kind = SPOILED[pair.cloud.name]
    (name,) = (seen.identity for seen in pair.provider.search(EAST) if seen.kind == kind)
    account = pair.provider.account(REGIONS[pair.cloud.name][0])  # type: ignore[attr-defined] # all have accounts
    if pair.cloud.name == "azure":
        weaker = {"properties": {"minimumTlsVersion": "TLS1_0"}}
        account.storage.storage_accounts.update("cloudrec-east", name.rpartition("/")[2], weaker)
    elif pair.cloud.name == "aws":
        account.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    else:
        bucket = account.storage.get_bucket(name)
        bucket.iam_configuration.public_access_prevention = "inherited"
        bucket.patch()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_in_another_region_uses_the_storage_of_the_first(pair: Pair, tmp_path: Path) -> None:
    pair.up(EAST)
    (bucket,) = buckets(pair.cloud)
    plan = pair.up(WEST, storage_of=EAST)
    shown = f"that of cluster east in {REGIONS[pair.cloud.name][0]} "
    assert plan_document(plan)["storage"].startswith(shown)
    assert TRAFFIC[pair.cloud.name] in plan_document(plan)["storage"]
    assert f"storage {shown}" in " ".join(plan_summary(plan).split())
    assert buckets(pair.cloud) == [bucket]
    spec = pair.recorded(WEST)
    assert spec.storage is not None
    assert bucket.endswith(spec.storage.account or spec.storage.bucket)
    assert pair.provider.data_places(spec).storage == pair.provider.data_places(pair.recorded(EAST)).storage  # type: ignore[attr-defined] # both hold data
    assert pair.up(WEST, dry_run=True).changes == []  # without the option, it stays as it is
    for keep_data in {False, not pair.provider.is_kept_storage_usable}:  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="cluster 'east' has the storage of west, whose runs") as refused:
            pair.down(EAST, keep_data=keep_data)
        assert "`cloudrec down --cluster west` first" in str(refused.value.remedy)
    other = Pair.elsewhere(pair, tmp_path / "another machine")
    region = REGIONS[pair.cloud.name][1]
    with pytest.raises(UsageError, match=f"has the storage of west in {region}, whose") as refused:
        other.down(EAST)
    assert "remove the bucket's tag cloudrec-used-by-west" in str(refused.value.remedy)
    spoil(pair)
    assert [action.resource.kind for action in pair.up(EAST).changes if action.resource] == [
        SPOILED[pair.cloud.name]
    ]
    assert users(pair) == {WEST: region}  # `up` has repaired the bucket, and the tag stays
    pair.down(WEST, keep_data=True)  # it has no data to keep
    assert not any(WEST in entry for entry in pair.cloud.state())
    assert buckets(pair.cloud) == [bucket]
    assert users(pair) == {}
    assert pair.up(EAST, dry_run=True).changes == []
    other.down(EAST)
    assert pair.cloud.state() == []


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What `up` says of a request, given what the journal has of the first cluster."""

    words: str
    remedy: str
    error: type[CloudrecError] = SpecError
    first: Mapping[str, Any] = field(default_factory=dict)
    second: Mapping[str, Any] = field(default_factory=dict)


REFUSALS = {
    "unknown": Refusal(
        second={"storage_of": "north"},
        error=PreflightError,
        words="storage_of is north, and there is no such cluster",
        remedy="`cloudrec status` lists",
    ),
    "itself": Refusal(
        second={"storage_of": WEST}, words="is west, the cluster itself", remedy="name another cluster"
    ),
    "account": Refusal(
        first={"account": "another"},
        error=OtherAccountError,
        words="cluster 'east' is in another; the current credentials are for",
        remedy="within one account",
    ),
    "chain": Refusal(
        first={"storage_of": "far"},
        words="east, which itself uses the storage of far",
        remedy="use --storage-of far",
    ),
    "no-bucket": Refusal(
        first={"bucket": False},
        error=PreflightError,
        words="east, which is not ready: it has no storage yet",
        remedy="--cluster east` first",
    ),
    "prefix": Refusal(
        second={"settings": {"prefix": "a/b"}},
        words="prefix is a/b, and cluster.storage_of is east",
        remedy="leave cluster.settings.prefix",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_cannot_be_shared_is_refused_before_anything_is_made(pair: Pair, what: str) -> None:
    asked = REFUSALS[what]
    pair.pretend(EAST, **asked.first)
    with pytest.raises(asked.error) as refused:
        pair.up(WEST, **{"storage_of": EAST, **asked.second})
    assert asked.words in refused.value.message
    assert asked.remedy in str(refused.value.remedy)
    assert refused.value.exit_code == (3 if asked.error is PreflightError else 2)
    assert pair.cloud.state() == []


def test_a_storage_with_another_name_or_a_file_system_is_refused(pair: Pair) -> None:
    pair.pretend(EAST)
    for name, value in OWN[pair.cloud.name].items():
        settings = {name: value, **({"lustre_tib": 8} if name == "lustre_importer" else {})}
        with pytest.raises(
            SpecError, match=rf"\.{name} is {value}, and cluster.storage_of is east"
        ) as refused:
            pair.up(WEST, storage_of=EAST, settings=settings)
        assert f"leave cluster.settings.{name} or --storage-of out" in str(refused.value.remedy)
    assert pair.cloud.state() == []


def test_a_first_cluster_that_is_not_ready_or_gone_is_refused(pair: Pair) -> None:
    journal = pair.site.application.journal
    pair.pretend(EAST)
    journal.set_missing(EAST, [Missing(what="add-ons", reason="up was killed", remedy="again")])
    with pytest.raises(PreflightError, match="east, which is not ready: it lacks add-ons"):
        pair.up(WEST, storage_of=EAST)
    journal.set_missing(EAST, [])
    with pytest.raises(PreflightError, match=r"(bucket|storage account): .* does not exist"):
        pair.up(WEST, storage_of=EAST)
    journal.mark_down(EAST)
    with pytest.raises(PreflightError, match="east, which is not ready: it is down"):
        pair.up(WEST, storage_of=EAST)
    assert pair.cloud.state() == []


def test_the_storage_of_a_cluster_cannot_be_changed(pair: Pair) -> None:
    pair.pretend(EAST)
    pair.pretend(WEST)
    with pytest.raises(SpecError, match="storage of cluster 'west' is its own and cannot be changed"):
        pair.up(WEST, storage_of=EAST)
    pair.site.application.journal.forget_cluster(WEST)
    pair.pretend(WEST, storage_of=EAST)
    with pytest.raises(SpecError, match="storage of cluster 'west' is that of cluster east and cannot be"):
        pair.up(WEST, storage_of="north")


def test_runs_of_google_cloud_need_the_service_account_of_the_first_cluster(pair: Pair) -> None:
    if pair.cloud.name != "gcp":
        pytest.skip("the roles of AWS and Azure are of each cluster")
    pair.pretend(EAST)
    with pytest.raises(SpecError, match="service_account is team/runs; that of cluster east, whose"):
        pair.up(WEST, storage_of=EAST, settings={"service_account": "team/runs"})


def test_a_cluster_of_another_provider_is_refused(pair: Pair) -> None:
    pair.site.application.journal.put_cluster(EAST, "local", {"name": EAST, "provider": "local"})
    with pytest.raises(SpecError, match="east, which is of provider 'local', not"):
        pair.up(WEST, storage_of=EAST)


@pytest.mark.parametrize("provider", ["local", "kubernetes"])
def test_clusters_of_other_providers_cannot_use_the_storage_of_another(provider: str, tmp_path: Path) -> None:
    home = AppContext(home=Home(root=tmp_path), environment={})
    settings = {"storage": "s3://bucket/prefix"} if provider == "kubernetes" else {}
    asked = ClusterSpec(name=WEST, provider=provider, owner="tester", storage_of=EAST, settings=settings)
    with pytest.raises(
        SpecError, match=f"clusters of provider '{provider}' cannot use the storage"
    ) as refused:
        app.up(home, asked, decide=lambda _plan: True)
    assert (refused.value.exit_code, home.journal.clusters()) == (2, [])


def test_the_guards_orders_have_the_storage_only_if_it_is_shared() -> None:
    own = json.loads(Note(cluster=ClusterSpec(name=WEST, provider="aws")).to_json())["cluster"]
    assert not own.keys() & {"storage", "storage_of"}  # an earlier guard refuses unknown keys
    shared = SharedStorageSpec(cluster=EAST, region="us-east-1", bucket="b", prefix="a", key="alias/k")
    spec = ClusterSpec(name=WEST, provider="aws", storage_of=EAST, storage=shared)
    text = Note(cluster=spec).to_json()
    assert Note.of(text).cluster.storage == shared
    assert "account" not in json.loads(text)["cluster"]["storage"]  # nor does it know this one
    named = spec.model_copy(update={"storage": shared.model_copy(update={"account": "crname"})})
    assert Note.of(Note(cluster=named).to_json()).cluster.storage == named.storage
