"""The image of a run's pods: the one that the user names, or pushed last, or a published one with Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec_contract.settings import TrainerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cloudrec.kubernetes.client.target import PodSetup
    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.providers.base.access import Access
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec


def pods_image(
    loaded: Loaded,
    cluster: ClusterSpec,
    access: Access,
    launcher: Launcher,
    *,
    pushed: str,
    config: Mapping[str, Any],
    flags: Sequence[str],
) -> tuple[str, PodSetup | None]:
    """Return the image of a run's pods, and what they install in it; None if it has the trainer.

    Args:
        loaded: the spec.
        cluster: the journal's specification of its cluster.
        access: the access to it.
        launcher: what starts the pods.
        pushed: the image that was pushed last for the cluster; empty if none was.
        config: the trainer's configuration.
        flags: more flags for the trainer.

    Raises:
        PreflightError: an image is needed that cloudrec does not know, or the code cannot be delivered.
    """
    train, wanted = loaded.spec.train, loaded.spec.cluster
    own = train.image or pushed
    if own or not isinstance(access, KubernetesAccess):
        return own, None
    from cloudrec.launchers.kubernetes.launcher import KubeLauncher  # noqa: PLC0415 - runs in pods

    if not isinstance(launcher, KubeLauncher):
        return own, None
    from cloudrec.image.bases import BASE, TRAINER, base_for, setup_for  # noqa: PLC0415 - runs with an image

    settings = TrainerSettings.asked(config, flags)
    image = base_for(
        access.target,
        cluster.title,
        wanted=wanted.base_image or cluster.base_image,
        allow_tcp=train.allow_tcp,
    )
    setup = setup_for(
        (*BASE, *TRAINER, launcher.engine.extra),
        uris=(access.storage, settings.dataset_path, settings.checkpoint_dir, settings.init_from),
        extra=providers.needs(cluster.provider).extra,
        index=wanted.package_index or cluster.package_index,
    )
    return image, setup
