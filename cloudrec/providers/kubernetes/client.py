"""One cluster as one context reaches it, and whether it is still the one that was adopted."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.kubeconfig import write
from cloudrec.engine.journal import Journal
from cloudrec.errors import MissingExtraError, PreflightError
from cloudrec.kube.client import Kube
from cloudrec.kube.target import Target
from cloudrec.providers.kubernetes import contexts, private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.home import Home
    from cloudrec.providers.kubernetes.settings import KubernetesSettings
    from cloudrec.spec.models import ClusterSpec

CLUSTER = "cluster"  # the kind that stands for the adoption; its identity begins with the cluster's
_AT = "@"  # in a location: CONTEXT@KUBECONFIG


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster is: a context, whole in itself.

    Attributes:
        context: its name.
        config: a kubeconfig of that context alone.
        location: as `Provider.search` takes it.
    """

    context: str
    config: Mapping[str, Any]
    location: str


class Adopted:
    """A cluster at a place.

    Args:
        place: where it is.
        folder: a private folder for the file that the client reads.
    """

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        path = folder / f"{len(list(folder.iterdir()))}.kubeconfig"
        write(path, place.config)
        target = Target(kubeconfig=str(path), context=place.context, namespace="", service_account="")
        try:
            self.kube = Kube.connect(target)
        except ModuleNotFoundError as error:
            raise MissingExtraError("kubernetes", module=str(error.name)) from error
        weakref.finalize(self, self.kube.close)

    @cached_property
    def uid(self) -> str:
        """The cluster's identity, which no two clusters share."""
        return self.kube.identity()


class Clusters:
    """The clusters that the user's kubeconfig, and those that were adopted before, lead to.

    Args:
        home: where private copies are.
        environment: KUBECONFIG and HOME, as Kubernetes' own tools know them.
    """

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._reached: dict[str, Adopted] = {}

    @cached_property
    def _folder(self) -> Path:
        """A folder that nobody else can look into, as long as this object is there."""
        folder = Path(tempfile.mkdtemp(prefix="cloudrec-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def location(self, cluster: ClusterSpec, settings: KubernetesSettings) -> str | None:
        """Return where the spec says that the cluster is; None where it leaves that open."""
        if settings.context is None:
            return cluster.region
        return f"{settings.context}{_AT}{settings.kubeconfig}" if settings.kubeconfig else settings.context

    def place(self, title: str, location: str | None, *, kubeconfig: str | None = None) -> Place:
        """Find a cluster's context: the one named, the one adopted before, or the only one.

        Raises:
            PreflightError: there is none, or there are several.
        """
        wanted, _, named = (location or "").partition(_AT)
        files = contexts.paths(named or kubeconfig, self._environment)
        known = contexts.read(files)
        copy = private.read(self._home, title)
        if not wanted and copy is not None:
            wanted = copy["current-context"]
        if copy is not None and wanted == copy["current-context"] and wanted not in known:
            known = {**known, wanted: copy}  # gone from the user's file, which need not mean from the world
        chosen = contexts.choose(known, wanted or None, files)
        where = f"{chosen}{_AT}{files[0]}" if named or kubeconfig else chosen
        return Place(context=chosen, config=known[chosen], location=where)

    def places(self) -> Sequence[Place]:
        """Return where to look when nobody says where: the current context, and what was adopted before."""
        files = contexts.paths(None, self._environment)
        known, found = contexts.read(files), list[Place]()
        current = contexts.current(files)
        if current in known:
            found.append(Place(context=current, config=known[current], location=current))
        for title in private.titles(self._home):
            copy = private.read(self._home, title)
            if copy is not None and all(copy["current-context"] != place.context for place in found):
                name = str(copy["current-context"])
                found.append(Place(context=name, config=known.get(name, copy), location=name))
        return found

    def at(self, place: Place) -> Adopted:
        """Return the cluster at a place, the same one every time."""
        key = json.dumps(place.config, sort_keys=True)
        if key not in self._reached:
            self._reached[key] = Adopted(place, self._folder)
        return self._reached[key]

    def check(self, title: str, settings: KubernetesSettings, adopted: Adopted) -> None:
        """Refuse another cluster than the one that was adopted under this name, with PreflightError."""
        expected = settings.identity or self._journalled(title)
        if expected and adopted.uid != expected:
            raise PreflightError(
                f"context {adopted.place.context!r} leads to another cluster than the one that {title!r} is: "
                f"its identity is {adopted.uid}, and {expected} was expected",
                remedy="name the right context; or, if the cluster was made anew and the old one is gone: "
                f"cloudrec up kubernetes --cluster {title} --set cluster.settings.identity={adopted.uid}",
            )

    def _journalled(self, title: str) -> str:
        """Return the identity of the cluster that was adopted under this name; empty where none was."""
        if not self._home.journal.exists():
            return ""
        known = Journal(self._home.journal).known(title)
        return next((e.identity.partition("/")[0] for e in known if e.kind == CLUSTER and e.identity), "")
