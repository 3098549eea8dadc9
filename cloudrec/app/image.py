"""The use cases of images: build the trainer's image, and push it to a cluster's registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.choosing import choose
from cloudrec.errors import PreflightError, UsageError
from cloudrec.image import builders, records, work
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.protocol import HasRegistry, Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.app.context import AppContext
    from cloudrec.image.builders import BuildCommand
    from cloudrec.image.records import BuiltImage, PushedImage
    from cloudrec.image.work import BuildWish


def build_image(
    app: AppContext, wish: BuildWish, *, builder: str | None, decide: Callable[[BuildCommand], bool]
) -> BuiltImage | None:
    """Build the trainer's image; None if `decide`, which receives the builder's command, returns False.

    Raises:
        UsageError: there is no builder of this name.
        PreflightError: no builder works here, or the build's source is missing.
        CloudrecError: the build failed; the message has its last lines.
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
        app: the context of the use case.
        name: the image; None for the last one built.
        cluster_name: the cluster with the registry; None for the only one.
        repository: a repository, instead of a cluster's registry.
        tag: its tag there; None for one made from its name and time.
        decide: called with the image and the target; False ends the use case, which then returns None.

    Raises:
        UsageError: no such image was built, or it does not support the cluster's fabric.
        PreflightError: no cluster is up, it has no registry, or the registry refuses.
    """
    if repository is not None and cluster_name is not None:
        raise UsageError("--repository and --cluster name two registries", remedy="give one of them")
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
    provider = app.provider(cluster.provider, complete=True)
    if not isinstance(provider, HasRegistry):
        raise PreflightError(
            f"cluster {cluster.title!r} has no registry: it runs the trainer without an image",
            remedy="name another cluster with --cluster",
        )
    access = provider.access(cluster)
    if isinstance(access, KubernetesAccess):
        work.check_fit(image, access.target.fabric, cluster.title)
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
