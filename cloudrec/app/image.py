"""The use cases of images: build the trainer's image, and push it to a cluster's registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.choosing import choose
from cloudrec.errors import UsageError
from cloudrec.image import builders, records, work
from cloudrec.provider import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.app.context import AppContext
    from cloudrec.image.builders import Command
    from cloudrec.image.records import BuiltImage, PushedImage
    from cloudrec.image.work import BuildWish


def build_image(
    app: AppContext, wish: BuildWish, *, builder: str | None, decide: Callable[[Command], bool]
) -> BuiltImage | None:
    """Build the trainer's image; None where `decide`, which is shown the builder's call, said no.

    Raises:
        UsageError: the builder's name is none that is known.
        PreflightError: no builder works here, or there is nothing to build from.
        CloudrecError: the build failed; its last lines are told.
    """
    return work.build(app.home, wish, builders.find(builder), decide=decide, report=app.report)


def push_image(
    app: AppContext,
    *,
    name: str | None,
    cluster_name: str | None,
    repository: str | None,
    tag: str | None,
    decide: Callable[[BuiltImage, str], bool],
) -> PushedImage | None:
    """Push an image to a cluster's registry, or to a repository that the user is logged in to.

    Args:
        app: what every use case works with.
        name: the image; the one built last when None.
        cluster_name: whose registry; the only cluster's when None.
        repository: a repository in its place.
        tag: what to call it there; made from its name and its time when None.
        decide: is shown the image and where it would go; None is returned where it says no.

    Raises:
        UsageError: no such image was built, or it does not serve the cluster's fabric.
        PreflightError: no cluster is up, it has no registry, or the registry refuses.
    """
    if repository is not None and cluster_name is not None:
        raise UsageError("--repository and --cluster name two places", remedy="give one of them")
    image = _built(app, name)
    if repository is not None:
        cluster, registry = "", Registry(address=repository.partition("/")[0], repository=repository)
    else:
        cluster, registry = _registry(app, cluster_name, image)
    if not decide(image, f"{registry.repository}:{tag or work.destination_tag(image)}"):
        return None
    return work.push(app.home, image, registry, cluster=cluster, tag=tag, report=app.report)


def _registry(app: AppContext, cluster_name: str | None, image: BuiltImage) -> tuple[str, Registry]:
    cluster = choose(app, provider_name=None, cluster_name=cluster_name)
    provider = app.provider(cluster.provider)
    work.check_fit(image, str(provider.access(cluster).details.get("fabric", "")), cluster.title)
    return cluster.title, provider.registry(cluster)


def _built(app: AppContext, name: str | None) -> BuiltImage:
    known = records.built(app.home)
    found = [image for image in known if name in {None, image.name}]
    if not found:
        names = f"; there are {', '.join(image.name for image in known)}" if known else ""
        raise UsageError(
            f"no image {name!r} was built here{names}" if name else "no image was built here yet",
            remedy="cloudrec image build",
        )
    return found[-1]
