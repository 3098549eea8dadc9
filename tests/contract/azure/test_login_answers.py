"""A login that Entra ID does not answer is repeated, and is no refusal of the credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import errors, token
from cloudrec.providers.azure.api.client import Azure
from tests.conformance.support_clouds import stand_in
from tests.standins.faults import Fault, FaultyProxy

ANSWERS = {
    "a page": Fault(kind="html"),
    "a page for the tenant": Fault(kind="html", holding="openid-configuration"),
    "half a document": Fault(kind="truncate"),
    "no object": Fault(kind="answer", status=200, body=b"[]", method="POST"),
    "a document without a token": Fault(kind="answer", status=200, body=b"null", method="POST"),
    "a server error": Fault(kind="answer", status=503, body=b"busy", method="POST"),
    "a cut connection": Fault(kind="reset"),
}


class LoginProxy(FaultyProxy):
    """A proxy through which clients get all that the login service names in its answers."""

    is_hidden = True


@pytest.fixture(scope="module")
def entra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoginProxy, dict[str, str]]]:
    """A proxy before the stand-in's login service, and the variables by which it is used."""
    with stand_in("azure") as cloud:
        upstream, authority = urlsplit(cloud.env["AZURE_AUTHORITY_HOST"]), cloud.env["AZURE_CA_BUNDLE"]
        assert upstream.port
        with LoginProxy(upstream.port, authority=authority) as proxy:
            bundle = tmp_path_factory.mktemp("login") / "authorities.pem"
            bundle.write_bytes(Path(authority).read_bytes() + Path(proxy.authority).read_bytes())
            yield (
                proxy,
                {
                    **cloud.env,
                    "AZURE_AUTHORITY_HOST": proxy.address,
                    "AZURE_CA_BUNDLE": str(bundle),
                    "CLOUDREC_SANDBOX_SPEED": "1000",
                },
            )


@pytest.mark.parametrize("name", ANSWERS)
def test_a_login_without_an_answer_is_repeated(entra: tuple[LoginProxy, dict[str, str]], name: str) -> None:
    proxy, environment = entra
    fault = ANSWERS[name]
    fault.times, proxy.faults = 1, [fault]
    assert token.token(Azure(environment))["status"]
    assert fault.times == 0, "the login was not disturbed"
    fault.times, proxy.faults = 2, [fault]
    assert Azure(environment).caller.object_id


def test_a_page_in_place_of_a_token_prints_no_traceback(entra: tuple[LoginProxy, dict[str, str]]) -> None:
    """In a separate process, since pytest handles what libraries log."""
    proxy, environment = entra
    proxy.faults = [Fault(kind="html", method="POST", times=1000)]
    command = [sys.executable, "-P", "-m", "cloudrec.providers.azure.token"]
    given = {**os.environ, **environment}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=120)
    proxy.faults = []
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("Entra ID, where Azure's tools log in, does not answer"), done.stderr
    assert "Traceback" not in done.stderr


# The SDK itself repeats these for a while.
LASTING = ("half a document", "a server error", "a cut connection")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LASTING else ()) for name in ANSWERS]
)
def test_a_login_without_an_answer_is_no_refusal_of_the_credentials(
    entra: tuple[LoginProxy, dict[str, str]], name: str
) -> None:
    proxy, environment = entra
    fault = ANSWERS[name]
    fault.times, proxy.faults = 1000, [fault]
    with pytest.raises(errors.REFUSALS) as caught:
        token.token(Azure(environment))
    proxy.faults = []
    explained = errors.explain(caught.value)
    assert isinstance(explained, PreflightError)
    assert "Entra ID" in explained.message
    assert "\n" not in explained.message
    assert "AZURE_AUTHORITY_HOST" in str(explained.remedy)
    assert "az login" not in str(explained.remedy)
    azure = Azure(environment)
    assert errors.verdict(caught.value, azure.grants) is ErrorVerdict.RETRY  # the call itself was not sent


@pytest.mark.parametrize(
    "change", [{"AZURE_CLIENT_SECRET": "wrong"}, {"AZURE_TENANT_ID": "99999999-8888-4777-8666-555555555555"}]
)
def test_a_refused_login_is_not_repeated(
    entra: tuple[LoginProxy, dict[str, str]], change: dict[str, str]
) -> None:
    proxy, environment = entra
    proxy.faults = []
    before = len(proxy.requests)
    with pytest.raises(errors.REFUSALS) as caught:
        token.token(Azure({**environment, **change}))
    assert "az login" in str(errors.explain(caught.value).remedy)
    assert len(proxy.requests) - before <= 4
