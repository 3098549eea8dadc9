"""`cloudrec.Client`: what the command line does, as a Python API that prints nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cloudrec import app
from cloudrec.client.runs import LaunchedRun
from cloudrec.errors import DeclinedError, UsageError
from cloudrec.home import Home, refuse_shared
from cloudrec.spec.load import load

if TYPE_CHECKING:
    from cloudrec.app import AppContext, ClusterCost, ClusterView, GpuMachine, PreparedRun, Removal
    from cloudrec.app.leak_search import LeakSearch
    from cloudrec.client.fields import ClusterFields, TrainFields
    from cloudrec.engine.plan import Plan
    from cloudrec.findings import Finding
    from cloudrec.spec.load import Flags, Loaded


class Client:
    """Creates clusters, launches runs, and removes clusters, as the commands of the same names do.

    Every method raises a subclass of `cloudrec.errors.CloudrecError` for what can go wrong; its `remedy` says
    what to do, and `exit_code` is the command line's. Nothing is printed and nothing is asked: a call is the
    consent to its cost. Pass `approve` to see the plan and its price first.
    """

    def __init__(
        self,
        *,
        home: Path | str | None = None,
        environment: Mapping[str, str] | None = None,
        file: Path | str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Use a home and a spec.

        Args:
            home: the folder of runs and clusters; None for CLOUDREC_HOME, or ~/.cloudrec.
            environment: the variables with credentials and CLOUDREC_* settings; None for the process's own.
            file: the spec; None for cloudrec.yaml in the current folder, if there is one.
            progress: called with a line for each step of `up` and `down`; None to drop them.

        Raises:
            StorageError: other users may write to the home.
        """
        self._environment = dict(os.environ if environment is None else environment)
        if home is not None:
            self._environment["CLOUDREC_HOME"] = str(home)
        found = Home.from_environment(self._environment)
        refuse_shared(found.root, self._environment)
        self._file = None if file is None else Path(file)
        self._context: AppContext = app.AppContext(
            home=found, environment=self._environment, report=progress or (lambda _line: None)
        )

    def up(
        self,
        provider: str | None = None,
        *,
        cluster: str | None = None,
        approve: Callable[[Plan], bool] | None = None,
        max_price: float | None = None,
        **fields: Unpack[ClusterFields],
    ) -> ClusterView:
        """Create a cluster, or reconcile one that exists; return its state, with what it still lacks.

        Args:
            provider: aws, azure, gcp, kubernetes or local; None for the spec's.
            cluster: the cluster's name; None for the spec's, or the provider's name.
            approve: called with the plan, its price and its end; False creates nothing. None approves.
            max_price: with `capacity="block"`, the most that the block may cost, in USD.
            fields: keys of the spec's section `cluster:`.

        Raises:
            SpecError: a key or a value is wrong.
            PreflightError: something that must be there first is not.
            NoCapacityError: no candidate has capacity.
            DeclinedError: `approve` returned False.
        """
        loaded = self._load(provider=provider, cluster=cluster, section="cluster", fields=fields).spec
        spec = loaded.asked_cluster
        if spec.capacity == "block" and max_price is None:
            raise UsageError(
                "capacity='block' buys a block of capacity, which is not refunded",
                remedy="pass max_price, the most that it may cost in USD",
            )
        approved = True

        def decide(plan: Plan) -> bool:
            nonlocal approved
            approved = approve is None or approve(plan)
            return approved

        app.up(self._context, spec, decide=decide, most_upfront_usd=max_price)
        if not approved:
            raise DeclinedError(f"cluster {spec.title!r} is not created: `approve` returned False")
        return self.cluster(spec.title)

    def clusters(self) -> Sequence[ClusterView]:
        """Return all clusters of this home, as `cloudrec status` shows them."""
        return app.clusters(self._context)

    def cluster(self, name: str) -> ClusterView:
        """Return one cluster; UsageError if there is none of this name."""
        found = app.clusters(self._context, name)
        if not found:
            raise UsageError(f"there is no cluster {name!r}", remedy="`Client.clusters` lists them")
        return found[0]

    def doctor(self, provider: str | None = None, **fields: Unpack[ClusterFields]) -> Sequence[Finding]:
        """Return what the account and this machine have and lack, as `cloudrec doctor` shows it."""
        loaded = self._load(provider=provider, cluster=None, section="cluster", fields=fields)
        return app.doctor(self._context, loaded.spec.cluster)

    def train(
        self,
        script: Path | str | None = None,
        arguments: Sequence[str] = (),
        *,
        dataset: str | None = None,
        name: str | None = None,
        cluster: str | None = None,
        provider: str | None = None,
        trainer: Mapping[str, Any] | None = None,
        approve: Callable[[PreparedRun], bool] | None = None,
        **fields: Unpack[TrainFields],
    ) -> LaunchedRun:
        """Launch a run and return once it has started. It continues without this process.

        Args:
            script: a torchrun script of yours; None for cloudrec's trainer.
            arguments: arguments of the script, or flags of the trainer.
            dataset: the dataset; with the script None.
            name: the run's name; None for one that is made of the time.
            cluster: the cluster; None for the only one.
            provider: the cluster's provider; None for any.
            trainer: settings of the trainer, such as {"num_epochs": 2}.
            approve: called with what would be launched and its price; False launches nothing. None approves.
            fields: keys of the spec's section `train:`.

        Raises:
            SpecError: a key or a value is wrong, or the trainer refuses its configuration.
            PreflightError: no cluster is up, or it lacks something.
            UsageError: the name is in use.
            DeclinedError: `approve` returned False.
        """
        more: dict[tuple[str, ...], tuple[str, Any]] = {
            ("train", "name"): ("name", name),
            ("train", "script"): ("script", None if script is None else str(script)),
            ("trainer", "dataset_path"): ("dataset", dataset),
            **{("trainer", key): (f"trainer[{key!r}]", value) for key, value in (trainer or {}).items()},
        }
        loaded = self._load(provider=provider, cluster=cluster, section="train", fields=fields, more=more)
        decide = approve or (lambda _prepared: True)
        folder = app.train(self._context, loaded, tuple(arguments), decide=decide)
        if folder is None:
            raise DeclinedError("no run is launched: `approve` returned False")
        return LaunchedRun(self._context, folder.name)

    def runs(self) -> Sequence[LaunchedRun]:
        """Return all runs of this home, newest first."""
        return [LaunchedRun(self._context, each.name) for each in app.runs(self._context)]

    def run(self, name: str) -> LaunchedRun:
        """Return one run; UsageError if there is none of this name."""
        return LaunchedRun(self._context, app.run_folder(self._context, name).name)

    def costs(self, cluster: str | None = None) -> Sequence[ClusterCost]:
        """Return what clusters have cost, those that were removed included, or only the ones of a name."""
        return app.costs(self._context, cluster)

    def gpus(self, gpu: str, provider: str | None = None) -> Sequence[GpuMachine]:
        """Return the machine types with a GPU model such as "H100", with their prices and their dates."""
        return app.gpu_machines(self._context, gpu, provider)

    def leaks(self, provider: str, *, regions: Sequence[str] = (), everywhere: bool = False) -> LeakSearch:
        """Search an account for resources of cloudrec; the result also says what was not searched.

        Args:
            provider: the cloud.
            regions: the regions to search; if empty, the default one and those of known clusters.
            everywhere: whether to search every region that is enabled for the account.
        """
        return app.leaks(self._context, provider, locations=tuple(regions), everywhere=everywhere)

    def down(
        self,
        cluster: str | None = None,
        *,
        provider: str | None = None,
        keep_data: bool = False,
        approve: Callable[[Removal], bool] | None = None,
    ) -> Removal | None:
        """Remove a cluster with its runs, and search for what is left.

        Args:
            cluster: the cluster's name; None for the only one.
            provider: the cluster's provider; None for any.
            keep_data: whether storage and runs are kept.
            approve: called with what would be removed; False removes nothing. None approves.

        Returns:
            What was removed; None if no cluster is up.

        Raises:
            ResourcesRemainError: resources are left; each is named with its price.
            UsageError: several clusters fit.
            DeclinedError: `approve` returned False.
        """
        approved = True

        def decide(removal: Removal) -> bool:
            nonlocal approved
            approved = approve is None or approve(removal)
            return approved

        removal = app.down(
            self._context, provider_name=provider, cluster_name=cluster, keep_data=keep_data, decide=decide
        )
        if not approved:
            raise DeclinedError("nothing is removed: `approve` returned False")
        return removal

    def _load(
        self,
        *,
        provider: str | None,
        cluster: str | None,
        section: str,
        fields: Mapping[str, Any],
        more: Flags | None = None,
    ) -> Loaded:
        """Return the spec of the file, the environment, and these arguments, which win."""
        given: dict[tuple[str, ...], tuple[str, Any]] = {
            ("cluster", "provider"): ("provider", provider),
            ("cluster", "name"): ("cluster", cluster),
            **{(section, key): (key, _plain(value)) for key, value in fields.items()},
            **(more or {}),
        }
        flags = {path: pair for path, pair in given.items() if pair[1] is not None}
        return load(self._file, environment=self._environment, flags=flags, folder=Path.cwd())


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of the spec
    """Return a value as a YAML file would hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value
