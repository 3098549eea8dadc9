"""Image pushes: the uploaded image, the record of it, the messages, and secrecy of the password."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from cloudrec.errors import PreflightError, StorageError, UsageError
from cloudrec.home import Home
from cloudrec.image import records, work
from cloudrec.image.records import PushedImage, newest
from cloudrec.providers.base.protocol import Registry
from tests.standins.registry import RegistryStandIn
from tests.unit.image.support import Machine, built, make_machine

REPOSITORY = "team/trainer"


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStandIn]:
    with RegistryStandIn(REPOSITORY) as stand_in:
        stand_in.readers.add("reader")
        yield stand_in


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = make_machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_STANDIN", str(made.notes))
    monkeypatch.setenv("HOME", str(tmp_path))
    return made


def login(registry: RegistryStandIn, repository: str = REPOSITORY, **more: str) -> Registry:
    return Registry(
        address=registry.address,
        repository=f"{registry.address}/{repository}",
        username=more.get("username", registry.username),
        password=SecretStr(more.get("password", registry.password)),
    )


def push(home: Home, where: Registry, lines: list[str] | None = None, builder: str = "docker") -> PushedImage:
    image = built(builder=builder, name="tiny:1" if builder == "buildah" else "cloudrec:1.0-plain")
    report = (lines if lines is not None else []).append
    return work.push(home, image, where, cluster="dev", tag=None, report=report)


def test_a_pushed_image_is_recorded_with_the_digest_of_the_registry(
    machine: Machine, registry: RegistryStandIn
) -> None:
    pushed = push(machine.home, login(registry))
    held = registry.repositories[REPOSITORY]
    assert held.tags[pushed.tag] == pushed.digest
    assert pushed.reference == f"{registry.address}/{REPOSITORY}@{pushed.digest}"
    assert newest(machine.home, f"{registry.address}/{REPOSITORY}") == pushed
    assert newest(machine.home, f"{registry.address}/other") is None


def test_the_password_appears_in_no_argument_output_or_remaining_file(
    machine: Machine, registry: RegistryStandIn, tmp_path: Path
) -> None:
    lines: list[str] = []
    push(machine.home, login(registry), lines)
    assert registry.password not in str(machine.calls())
    assert registry.password not in "".join(lines)
    config = Path(machine.call("--password-stdin")[1])
    assert not config.exists()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and "auth" in path.read_text()]
    assert kept == []


def test_a_tag_has_the_build_time_so_that_immutable_tags_are_possible() -> None:
    assert work.destination_tag(built()) == "1.0-plain-20261121101112"


def test_an_image_without_the_fabric_of_the_nodes_is_refused() -> None:
    for fabric in ("", "none", "tcp"):
        work.check_fit(built(fabric="efa"), fabric, "dev")
    work.check_fit(built(fabric="gcp"), "tcpxo", "dev")
    with pytest.raises(UsageError, match="use infiniband") as caught:
        work.check_fit(built(fabric="plain"), "infiniband", "dev")
    assert caught.value.remedy == "cloudrec image build --fabric ib"


REFUSALS = [
    ({"password": "wrong"}, REPOSITORY, "refuses the login"),
    ({"username": "reader"}, REPOSITORY, "or a push with it"),
    ({}, "no/such", "no such repository"),
]


@pytest.mark.parametrize(("who", "repository", "told"), REFUSALS)
def test_a_registry_error_is_reported_with_its_remedy(
    machine: Machine,
    registry: RegistryStandIn,
    who: dict[str, str],
    repository: str,
    told: str,
) -> None:
    with pytest.raises(PreflightError, match=told) as caught:
        push(machine.home, login(registry, repository, **who))
    assert caught.value.remedy
    assert records.pushed(machine.home) == []


def test_without_a_login_the_credentials_of_the_user_are_used(
    machine: Machine, registry: RegistryStandIn
) -> None:
    own = Registry(address=registry.address, repository=f"{registry.address}/{REPOSITORY}")
    with pytest.raises(PreflightError, match="refuses the login"):  # no one has logged in
        push(machine.home, own)
    assert "--config" not in machine.call("push")


@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed: `make image-tools`")
def test_buildah_pushes_its_image_and_reports_the_digest_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: RegistryStandIn
) -> None:
    store = f'[storage]\ndriver = "vfs"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/graph"\n'
    (tmp_path / "storage.conf").write_text(store)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    build = ["buildah", "bud", "--isolation", "chroot", "--tag", "tiny:1", str(tmp_path)]
    made = subprocess.run(build, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"buildah cannot build here: {made.stderr.strip().splitlines()[-1]}")
    pushed = push(Home(root=tmp_path / "home"), login(registry), builder="buildah")
    assert registry.repositories[REPOSITORY].tags[pushed.tag] == pushed.digest
    with pytest.raises(PreflightError, match="refuses the login"):
        push(Home(root=tmp_path / "home"), login(registry, username="nobody"), builder="buildah")
    nowhere = replace(login(registry), address="127.0.0.1:9", repository="127.0.0.1:9/x")
    with pytest.raises(StorageError, match="does not answer"):
        push(Home(root=tmp_path / "home"), nowhere, builder="buildah")
