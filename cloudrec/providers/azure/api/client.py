"""One subscription in one region: its credential, its clients, and reads that are retried.

A changing call is made once. The engine decides whether to make it again, after it has looked whether the
call had its effect (see `Driver`). So the clients have none of the SDK's policies that retry calls or
register a resource provider without being asked; only reads are retried here.
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest

from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError, SpecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api.clients import Clients
from cloudrec.providers.azure.api.rows import place, plain
from cloudrec.providers.azure.prices import shipped
from cloudrec.providers.base import reading
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from azure.core.rest import HttpResponse

    from cloudrec.providers.azure.account import Caller
    from cloudrec.providers.azure.api import models
    from cloudrec.providers.base.prices import Prices

_PHYSICAL = "Physical"
P = ParamSpec("P")
T = TypeVar("T")
# The SDK and its logins log a response that they cannot parse, with a traceback; cloudrec raises an error.
for _name in ("azure", "msal"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Azure(Clients):
    """One subscription in one region, as the environment's credentials reach it.

    Args:
        environment: variables with the names that Azure's tools use (AZURE_SUBSCRIPTION_ID, AZURE_TENANT_ID,
            AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, AZURE_AUTHORITY_HOST), AZURE_REGION, and for another
            endpoint AZURE_RESOURCE_MANAGER_ENDPOINT_URL and AZURE_CA_BUNDLE. Without a client secret, the
            credential is the login of Azure's tools.
        region: the region; the environment's own when None.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        super().__init__(environment)
        self._environment = environment
        self._region = region
        self.clock = Clock.of(environment)
        self.grants = errors.Grants(self.clock)
        self.prices = shipped().within(self.given_region)

    @property
    def given_region(self) -> str:
        """The given region in Azure's spelling, not checked; empty if none is given."""
        region = self._region or self._environment.get("AZURE_REGION") or ""
        return region.lower().replace(" ", "")

    def prices_at(self, location: str | None) -> Prices:
        """Return the prices in a resource's region, which may not be this one: a list covers all regions."""
        return self.prices.within(place(location))

    @cached_property
    def region(self) -> str:
        """The region.

        Raises:
            PreflightError: no region is given.
            SpecError: the subscription has no region of this name.
        """
        region = self.given_region
        if not region:
            raise PreflightError(
                "no Azure region is given", remedy="give --region eastus, or set AZURE_REGION"
            )
        if region not in self.regions:
            raise SpecError(
                f"subscription {self.subscription} has no region {region!r}",
                remedy=did_you_mean(region, self.regions),
            )
        return region

    @cached_property
    def regions(self) -> Sequence[str]:
        """The physical regions of the subscription; a logical one, such as `europe`, has no resources."""
        listed = self.rows(self.subscriptions.subscriptions.list_locations, self.subscription)
        metadata = {place(row.name): row.metadata for row in listed}
        return sorted(
            name for name, data in metadata.items() if data and plain(data.region_type) == _PHYSICAL
        )

    @cached_property
    def subscription(self) -> str:
        """The subscription's id: the environment's, or the only enabled one.

        Raises:
            PreflightError: none is given, and the credentials can use none or several.
        """
        given = self._environment.get("AZURE_SUBSCRIPTION_ID")
        if given:
            return given.lower()
        rows = self.rows(self.subscriptions.subscriptions.list)
        enabled = {str(row.subscription_id): row.display_name for row in rows if row.state == "Enabled"}
        if len(enabled) == 1:
            return next(iter(enabled)).lower()
        usable = ", ".join(f"{one} ({name})" for one, name in enabled.items()) or "none"
        raise PreflightError(
            f"no Azure subscription is chosen; the credentials can use: {usable}",
            remedy="set AZURE_SUBSCRIPTION_ID, or log in to a subscription that is enabled",
        )

    @cached_property
    def account(self) -> models.subscriptions.Subscription:
        """The SDK's model of the subscription, with its state, tenant_id and display_name."""
        return self.read(self.subscriptions.subscriptions.get, self.subscription)

    @property
    def caller(self) -> Caller:
        """The principal that the credentials belong to."""
        return self.read(lambda: self.login.caller)

    def read(self, operation: Callable[P, T], *arguments: P.args, **parameters: P.kwargs) -> T:
        """Make a call that changes nothing; retry it on network errors, rate limits and server errors.

        Raises:
            azure.core.exceptions.AzureError: Azure refuses or cannot be reached, or there are no credentials.
        """
        speed = self.clock.speed
        return reading.read(
            partial(operation, *arguments, **parameters),
            again=partial(errors.again, speed=speed),
            speed=speed,
        )

    def get(self, operation: Callable[P, T], *arguments: P.args, **parameters: P.kwargs) -> T | None:
        """Read one resource; None if it or its parent does not exist."""
        try:
            return self.read(operation, *arguments, **parameters)
        except HttpResponseError as error:
            if errors.is_absent(error):
                return None
            raise

    def rows(
        self, operation: Callable[P, Iterable[T]], *arguments: P.args, **parameters: P.kwargs
    ) -> list[T]:
        """Read all pages of a list; an empty list if the parent does not exist."""
        # A list fetches its pages lazily: all of them are read inside the retried call.
        return self.get(lambda: list(operation(*arguments, **parameters))) or []

    def send(self, method: str, path: str, *, api_version: str = "") -> HttpResponse:
        """Make one call that no client has, and return the response; raises the SDK's errors.

        Args:
            method: "GET" or "POST".
            path: below the endpoint, or a complete URL from a response of Azure.
            api_version: of the call; empty if the path has it.
        """
        parameters = {"api-version": api_version} if api_version else {}
        request = HttpRequest(method, path, params=parameters)
        response = self.resources.send_request(request)
        response.raise_for_status()
        return response

    def resource_skus(self) -> Sequence[models.compute.ResourceSku]:
        """Return the rows of `resource_skus.list` for the region: thousands of rows, read once."""
        return self._skus

    @cached_property
    def _skus(self) -> Sequence[models.compute.ResourceSku]:
        return self.rows(self.compute.resource_skus.list, filter=f"location eq '{self.region}'")
