"""What ARM itself refuses, whatever the type."""

from __future__ import annotations

import pytest

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, headers_of, refused

API = "api-version=2026-03-01"
NETWORK = "Microsoft.Network/virtualNetworks"


def nat(**changes: object) -> dict[str, object]:
    return {"location": LOCATION, "sku": {"name": "Standard"}, **changes}


def put(azure: Azure, body: object, *, name: str = "nat", **options: object) -> object:
    gateways = azure.client("network").nat_gateways
    return azure.done(gateways.begin_create_or_update, GROUP, name, body, seconds=60, **options)


def test_a_second_put_overwrites_the_resource(azure: Azure) -> None:
    azure.group()
    put(azure, nat(tags={"owner": "me"}))
    put(azure, nat(tags={"owner": "you"}))
    assert azure.client("network").nat_gateways.get(GROUP, "nat").tags == {"owner": "you"}
    puts = [line["status"] for line in azure.calls() if line["action"] == "Put natGateways"]
    assert puts == [201, 200]


def test_a_put_can_be_conditional(azure: Azure) -> None:
    azure.group()
    put(azure, nat())
    with refused("PreconditionFailed", status=412):
        put(azure, nat(), headers={"If-None-Match": "*"})
    with refused("PreconditionFailed", status=412):
        put(azure, nat(), headers={"If-Match": 'W/"other"'})
    etag = azure.client("network").nat_gateways.get(GROUP, "nat").etag
    put(azure, nat(), headers={"If-Match": etag})


def test_a_failed_operation_is_reported_with_status_200(azure: Azure) -> None:
    azure.group()
    azure.control(faults=[{"kind": "async", "code": "AllocationFailed", "message": "none left"}])
    path = f"{azure.id('Microsoft.Network/natGateways', 'nat')}?{API}"
    status, headers, told = azure.raw("PUT", path, nat())
    assert (status, told["properties"]["provisioningState"], int(headers["retry-after"]) > 0) == (
        201,
        "Creating",
        True,
    )
    where = headers["azure-asyncoperation"].removeprefix(azure.endpoint)
    status, _, told = azure.raw("GET", where)
    assert (status, told["status"]) == (200, "InProgress")
    azure.advance(60)
    status, _, told = azure.raw("GET", where)
    assert (status, told["status"], told["error"]) == (
        200,
        "Failed",
        {"code": "AllocationFailed", "message": "none left"},
    )
    assert azure.raw("GET", path)[2]["properties"]["provisioningState"] == "Failed"


def test_an_operation_resumes_from_its_token_in_another_client(azure: Azure) -> None:
    azure.group()
    gateways = azure.client("network").nat_gateways
    token = azure.begin(gateways.begin_create_or_update, GROUP, "nat", nat()).continuation_token()
    azure.advance(60)
    made = azure.begin(gateways.begin_create_or_update, GROUP, "nat", nat(), continuation_token=token)
    assert made.result(30).properties.provisioning_state == "Succeeded"


def test_too_many_calls_are_refused_with_a_retry_after_header(azure: Azure) -> None:
    azure.control(rates={"arm-write": [2, 0.5]})
    azure.group("one")
    azure.group("two")
    with refused("SubscriptionRequestsThrottled", status=429) as caught:
        azure.group("three")
    wait = int(headers_of(caught.value)["Retry-After"])
    assert wait == 2
    azure.advance(wait)
    azure.group("three")


def test_a_concurrent_write_is_a_429_that_is_not_throttling(azure: Azure) -> None:
    azure.group()
    gateways = azure.client("network").nat_gateways
    azure.begin(gateways.begin_create_or_update, GROUP, "nat", nat())
    with refused("RetryableErrorDueToAnotherOperation", status=429):
        gateways.begin_create_or_update(GROUP, "nat", nat())


def test_an_unregistered_provider_creates_nothing(azure: Azure) -> None:
    azure.group()
    azure.control(unregistered=["Microsoft.Network"])
    with refused("MissingSubscriptionRegistration", "Microsoft.Network", status=409):
        put(azure, nat())
    providers = azure.client("resource").providers
    assert providers.register("Microsoft.Network").registration_state == "Registering"
    with refused("MissingSubscriptionRegistration", status=409):
        put(azure, nat())
    azure.advance(60)
    assert providers.get("Microsoft.Network").registration_state == "Registered"
    put(azure, nat())


def test_a_feature_is_active_after_its_provider_is_registered_again(azure: Azure) -> None:
    name = "Microsoft.ContainerService/features/AKSInfinibandSupport"
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Features/providers/{name}"

    def state(method: str = "GET", word: str = "") -> str:
        told: str = azure.raw(method, f"{path}{word}?api-version=2021-07-01")[2]["properties"]["state"]
        return told

    assert (state(), state("POST", "/register"), state()) == ("NotRegistered", "Registering", "Registering")
    azure.advance(600)
    assert state() == "Registered"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MissingApiVersionParameter"),
        ("?api-version=yesterday", "InvalidApiVersionParameter"),
        ("?api-version=2010-01-01", "NoRegisteredProviderFound"),
    ],
)
def test_an_api_version_is_required_and_must_be_known(azure: Azure, query: str, code: str) -> None:
    azure.group()
    status, _, told = azure.raw("GET", azure.id("Microsoft.Network/natGateways", "nat") + query)
    assert (status, told["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"properties": {"addressSpaces": {}}}, "properties.addressSpaces: no such member"),
        ({"properties": {"addressSpace": {"addressPrefixes": "10.0.0.0/16"}}}, "addressPrefixes: not a list"),
        ({"properties": {"provisioningState": "Succeeded"}}, "properties.provisioningState: read-only"),
        ({"properties": {"enableDdosProtection": "yes"}}, "'yes' is no bool"),
        ({"properties": {"privateEndpointVNetPolicies": "Some"}}, "'Some' is none of Disabled, Basic"),
        ([], "the body: not an object"),
    ],
)
def test_a_body_must_match_the_model_of_the_sdk(azure: Azure, body: object, words: str) -> None:
    azure.group()
    if isinstance(body, dict):
        body = {"location": LOCATION, **body}
    status, _, told = azure.raw("PUT", f"{azure.id(NETWORK, 'net')}?{API}", body)
    assert (status, told["error"]["code"]) == (400, "InvalidRequestFormat")
    assert words in told["error"]["message"]


def test_a_location_is_required_known_and_immutable(azure: Azure) -> None:
    azure.group()
    with refused("LocationRequired", status=400):
        put(azure, {"sku": {"name": "Standard"}})
    with refused("LocationNotAvailableForResourceType", "'moon'", status=400):
        put(azure, nat(location="moon"))
    put(azure, nat())
    with refused("InvalidResourceLocation", "already exists in location 'eastus'", status=409):
        put(azure, nat(location="westus2"))
    put(azure, nat(location="East US"))


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ({f"tag{number}": "" for number in range(51)}, "InvalidTagCount"),
        ({"a<b": "c"}, "InvalidTagNameCharacters"),
        ({"a" * 513: "b"}, "InvalidTagName"),
        ({"a": "b" * 257}, "InvalidTagValueLength"),
    ],
)
def test_tags_have_limits(azure: Azure, tags: dict[str, str], code: str) -> None:
    with refused(code, status=400):
        azure.client("resource").resource_groups.create_or_update(GROUP, {"location": LOCATION, "tags": tags})


def test_names_and_types_are_case_insensitive(azure: Azure) -> None:
    azure.group()
    put(azure, nat(), name="Nat")
    path = azure.id("microsoft.network/NATGATEWAYS", "nAt", group=GROUP.upper())
    status, _, told = azure.raw("GET", f"{path}?{API}")
    assert (status, told["id"]) == (200, azure.id("Microsoft.Network/natGateways", "Nat"))
    put(azure, nat(), name="NAT")
    assert len(list(azure.client("network").nat_gateways.list(GROUP))) == 1


def test_lists_are_paged(azure: Azure) -> None:
    for number in range(5):
        azure.group(f"group{number}")
    path = f"/subscriptions/{azure.subscription}/resourcegroups?api-version=2025-04-01&$top=2"
    _, _, told = azure.raw("GET", path)
    assert (len(told["value"]), "nextLink" in told) == (2, True)
    names = [group.name for group in azure.client("resource").resource_groups.list(top=2)]
    assert names == [f"group{number}" for number in range(5)]


def test_deleting_a_missing_resource_succeeds(azure: Azure) -> None:
    azure.group()
    azure.done(azure.client("network").nat_gateways.begin_delete, GROUP, "none")
    assert azure.calls()[-1]["status"] == 204
