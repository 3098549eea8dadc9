"""Resource providers and their preview features: what a subscription has registered.

`registered` of /_control: namespaces to register at once, ["*"] for all; `unregistered` removes some.
Durations: provider-registration, feature-registration. A feature takes effect once its provider has been
registered again after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import durations, kinds, route, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

REGISTERED, REGISTERING, NOT_REGISTERED = "Registered", "Registering", "NotRegistered"
INFINIBAND = "Microsoft.ContainerService/AKSInfinibandSupport"
_ALWAYS = ("Microsoft.Authorization", "Microsoft.Features", "Microsoft.Resources")
_NAMESPACES = (
    *_ALWAYS,
    "Microsoft.AlertsManagement",
    "Microsoft.Compute",
    "Microsoft.ContainerRegistry",
    "Microsoft.ContainerService",
    "Microsoft.DevTestLab",
    "Microsoft.Insights",
    "Microsoft.Logic",
    "Microsoft.ManagedIdentity",
    "Microsoft.Monitor",
    "Microsoft.Network",
    "Microsoft.OperationalInsights",
    "Microsoft.OperationsManagement",
    "Microsoft.Storage",
    "Microsoft.StorageCache",
)
_FEATURES = (INFINIBAND, "Microsoft.ContainerService/ManagedGPUExperiencePreview")

durations({"provider-registration": 60, "feature-registration": 600})


@dataclass
class Registrations:
    """States by namespace, and by namespace/feature; features in effect."""

    providers: dict[str, str] = field(default_factory=lambda: dict.fromkeys(_ALWAYS, REGISTERED))
    features: dict[str, str] = field(default_factory=dict)
    effective: set[str] = field(default_factory=set)


def check(call: Call, type_: str) -> None:
    """Refuse a resource whose provider is not registered."""
    check_namespace(call.world, type_.partition("/")[0], call.path.subscription)


def check_namespace(world: World, namespace: str, subscription: str) -> None:
    """Refuse a call that needs a provider that is not registered."""
    if state(world, namespace) != REGISTERED:
        raise ArmError(
            "MissingSubscriptionRegistration",
            f"The subscription is not registered to use namespace '{namespace}'. See "
            f"https://aka.ms/rps-not-found for "
            f"how to register subscriptions. (subscription '{subscription}')",
            status=HTTPStatus.CONFLICT,
        )


def state(world: World, namespace: str) -> str:
    """Return a namespace's state of registration."""
    return world.state(Registrations).providers.get(namespace, NOT_REGISTERED)


def has_feature(world: World, feature: str) -> bool:
    """Return whether a feature is registered, and its provider registered again since."""
    return feature in world.state(Registrations).effective


def _namespace(call: Call, name: str) -> str:
    for known in _NAMESPACES:
        if known.lower() == name.lower():
            return known
    raise ArmError(
        "InvalidResourceNamespace",
        f"The resource namespace '{name}' is invalid. (subscription '{call.path.subscription}')",
        status=HTTPStatus.NOT_FOUND,
    )


def _row(call: Call, namespace: str) -> dict[str, Any]:
    types = [kind for kind in kinds.values() if kind.type.startswith(f"{namespace}/")]
    return {
        "id": f"/subscriptions/{call.path.subscription}/providers/{namespace}",
        "namespace": namespace,
        "registrationState": state(call.world, namespace),
        "registrationPolicy": "RegistrationFree" if namespace in _ALWAYS else "RegistrationRequired",
        "resourceTypes": [
            {
                "resourceType": kind.type.partition("/")[2],
                "locations": list(kind.regions or REGIONS),
                "apiVersions": list(kind.apis),
            }
            for kind in types
        ],
    }


@route("GET", "Microsoft.Resources/providers")
def read(call: Call) -> dict[str, Any]:
    """Return one provider, or all."""
    if call.path.is_item:
        return _row(call, _namespace(call, call.path.name))
    return {"value": [_row(call, namespace) for namespace in _NAMESPACES]}


@route("POST", "Microsoft.Resources/providers/register")
def register(call: Call) -> dict[str, Any]:
    """Begin a registration; a registered provider is registered again."""
    namespace = _namespace(call, call.path.names[0])
    # A registration of a registered provider is no empty call: it brings new features into effect.
    if state(call.world, namespace) == NOT_REGISTERED:
        call.world.state(Registrations).providers[namespace] = REGISTERING
    call.world.after(call.world.duration("provider-registration"), registered, namespace)
    return _row(call, namespace)


@route("POST", "Microsoft.Resources/providers/unregister")
def unregister(call: Call) -> dict[str, Any]:
    """Unregister a provider."""
    namespace = _namespace(call, call.path.names[0])
    call.world.state(Registrations).providers[namespace] = NOT_REGISTERED
    return _row(call, namespace)


def registered(world: World, namespace: str) -> None:
    """End a registration; from now on the namespace's features take effect."""
    known = world.state(Registrations)
    known.providers[namespace] = REGISTERED
    known.effective |= {
        name
        for name, value in known.features.items()
        if value == REGISTERED and name.startswith(f"{namespace}/")
    }


def _feature(call: Call) -> str:
    namespace, name = call.path.names[0], call.path.names[1]
    for known in _FEATURES:
        if known.lower() == f"{namespace}/{name}".lower():
            return known
    raise ArmError(
        "FeatureNotFound", f"The feature '{name}' could not be found.", status=HTTPStatus.NOT_FOUND
    )


def _feature_row(call: Call, feature: str) -> dict[str, Any]:
    namespace, _, name = feature.partition("/")
    root = f"/subscriptions/{call.path.subscription}/providers/Microsoft.Features"
    where = f"{root}/providers/{namespace}/features/{name}"
    known = call.world.state(Registrations).features
    return {
        "id": where,
        "name": feature,
        "type": "Microsoft.Features/providers/features",
        "properties": {"state": known.get(feature, NOT_REGISTERED)},
    }


@route("GET", "Microsoft.Features/providers/features")
def read_feature(call: Call) -> dict[str, Any]:
    """Return one feature, or a namespace's."""
    if call.path.is_item:
        return _feature_row(call, _feature(call))
    prefix = f"{call.path.names[0]}/".lower()
    return {"value": [_feature_row(call, name) for name in _FEATURES if name.lower().startswith(prefix)]}


@route("GET", "Microsoft.Features/features")
def read_features(call: Call) -> dict[str, Any]:
    """Return all features."""
    return {"value": [_feature_row(call, name) for name in _FEATURES]}


@route("POST", "Microsoft.Features/providers/features/register")
def register_feature(call: Call) -> dict[str, Any]:
    """Begin the registration of a feature."""
    feature = _feature(call)
    known = call.world.state(Registrations).features
    if known.get(feature, NOT_REGISTERED) == NOT_REGISTERED:
        known[feature] = REGISTERING
        call.world.after(call.world.duration("feature-registration"), registered_feature, feature)
    return _feature_row(call, feature)


@route("POST", "Microsoft.Features/providers/features/unregister")
def unregister_feature(call: Call) -> dict[str, Any]:
    """Unregister a feature."""
    feature, known = _feature(call), call.world.state(Registrations)
    known.features[feature] = NOT_REGISTERED
    known.effective.discard(feature)
    return _feature_row(call, feature)


def registered_feature(world: World, feature: str) -> None:
    """End the registration of a feature."""
    world.state(Registrations).features[feature] = REGISTERED


def _write(world: World, wishes: Sequence[str]) -> None:
    for name in _NAMESPACES if "*" in wishes else wishes:
        if name not in _NAMESPACES:
            raise ValueError(f"unknown namespace {name!r}; there are: {', '.join(_NAMESPACES)}")
        world.state(Registrations).providers[name] = REGISTERED


def _take(world: World, wishes: Sequence[str]) -> None:
    for name in wishes:
        world.state(Registrations).providers[name] = NOT_REGISTERED


def _read(world: World) -> list[str]:
    return [name for name, value in world.state(Registrations).providers.items() if value == REGISTERED]


setting("registered", read=_read, write=_write)
setting("unregistered", read=lambda world: sorted(set(_NAMESPACES) - set(_read(world))), write=_take)
