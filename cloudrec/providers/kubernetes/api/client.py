"""Clients of adopted clusters, and the check that a context still leads to the adopted one."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.engine.journal import Journal
from cloudrec.errors import MissingExtraError, PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.providers.base.kubeconfig import write
from cloudrec.providers.kubernetes.api import contexts, private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.home import Home
    from cloudrec.providers.kubernetes.settings import KubernetesSettings
    from cloudrec.spec.models import ClusterSpec

CLUSTER = "cluster"  # the kind that represents the adoption; its identity begins with the cluster's uid
_AT = "@"  # in a location: CONTEXT@KUBECONFIG


@dataclass(frozen=True, kw_only=True)
class KubeContext:
    """A context with all that a client needs.

    Attributes:
        context: its name.
        config: a kubeconfig with that context only.
        location: the context's name, or CONTEXT@KUBECONFIG, as `Provider.search` takes it.
    """

    context: str
    config: Mapping[str, Any]
    location: str


class Adopted:
    """A client of the cluster that a context leads to.

    Args:
        place: the context.
        folder: a private folder for the kubeconfig that the client reads.
    """

    def __init__(self, place: KubeContext, folder: Path) -> None:
        self.place = place
        path = folder / f"{len(list(folder.iterdir()))}.kubeconfig"
        write(path, place.config)
        target = ClusterTarget(kubeconfig=str(path), context=place.context, namespace="", service_account="")
        try:
            self.kube = Kube.connect(target)
        except ModuleNotFoundError as error:
            raise MissingExtraError("kubernetes", module=str(error.name)) from error
        weakref.finalize(self, self.kube.close)

    @cached_property
    def uid(self) -> str:
        """The cluster's unique identity: the uid of its namespace kube-system."""
        return self.kube.identity()


class Clusters:
    """The clusters of the user's kubeconfig and of the private copies of adopted contexts.

    Args:
        home: holds the private copies.
        environment: KUBECONFIG and HOME, as kubectl uses them.
    """

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._reached: dict[str, Adopted] = {}

    @cached_property
    def _folder(self) -> Path:
        """A temporary folder that only its owner can read; removed with this object."""
        folder = Path(tempfile.mkdtemp(prefix="cloudrec-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def location(self, cluster: ClusterSpec, settings: KubernetesSettings) -> str | None:
        """Return the location that the spec names; None if it names none."""
        if settings.context is None:
            return cluster.region
        return f"{settings.context}{_AT}{settings.kubeconfig}" if settings.kubeconfig else settings.context

    def place(self, title: str, location: str | None, *, kubeconfig: str | None = None) -> KubeContext:
        """Return a cluster's context: the named one, the one adopted under this title, or the only one.

        Raises:
            PreflightError: there is no such context, or there are several and none is named.
        """
        wanted, _, named = (location or "").partition(_AT)
        files = contexts.paths(named or kubeconfig, self._environment)
        known = contexts.read(files)
        copy = private.read(self._home, title)
        if not wanted and copy is not None:
            wanted = copy["current-context"]
        if copy is not None and wanted == copy["current-context"] and wanted not in known:
            # The user may have removed the context from the kubeconfig while the cluster still exists.
            known = {**known, wanted: copy}
        chosen = contexts.choose(known, wanted or None, files)
        where = f"{chosen}{_AT}{files[0]}" if named or kubeconfig else chosen
        return KubeContext(context=chosen, config=known[chosen], location=where)

    def places(self) -> Sequence[KubeContext]:
        """Return the contexts to search by default: the current one, and those that were adopted."""
        files = contexts.paths(None, self._environment)
        known, found = contexts.read(files), list[KubeContext]()
        current = contexts.current(files)
        if current in known:
            found.append(KubeContext(context=current, config=known[current], location=current))
        for title in private.titles(self._home):
            copy = private.read(self._home, title)
            if copy is not None and all(copy["current-context"] != place.context for place in found):
                name = str(copy["current-context"])
                found.append(KubeContext(context=name, config=known.get(name, copy), location=name))
        return found

    def at(self, place: KubeContext) -> Adopted:
        """Return the client of a context; the same object for the same kubeconfig."""
        key = json.dumps(place.config, sort_keys=True)
        if key not in self._reached:
            self._reached[key] = Adopted(place, self._folder)
        return self._reached[key]

    def check(self, title: str, settings: KubernetesSettings, adopted: Adopted) -> None:
        """Raise PreflightError if the context leads to another cluster than the one adopted by this name."""
        expected = settings.identity or self._journalled(title)
        if expected and adopted.uid != expected:
            raise PreflightError(
                f"context {adopted.place.context!r} leads to another cluster than the one that {title!r} is: "
                f"its identity is {adopted.uid}, and {expected} was expected",
                remedy="name the right context; or, if the cluster was recreated and the old one is gone: "
                f"cloudrec up kubernetes --cluster {title} --set cluster.settings.identity={adopted.uid}",
            )

    def _journalled(self, title: str) -> str:
        """Return the uid of the cluster that was adopted under this title; empty if there is none."""
        if not self._home.journal.exists():
            return ""
        known = Journal(self._home.journal).known(title)
        return next((e.identity.partition("/")[0] for e in known if e.kind == CLUSTER and e.identity), "")
