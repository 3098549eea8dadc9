"""The journal of clusters and their resources; a crash at any moment leaves a record to continue from.

The engine writes an intent before each create call, and the resource's identity right after it. One SQLite
file holds all clusters. It is in write-ahead mode, so that several commands can read while one writes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed
from cloudrec.errors import StorageError
from cloudrec.home import make_private
from cloudrec.spec import REQUEST_VERSION
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cloudrec.engine.graph import Resource

_SCHEMA_VERSION = 4
_BUSY_S = 30.0  # the longest wait for the lock while another command writes
_ENTRIES = """create table entries (
    cluster text not null, key text not null, kind text not null, name text not null,
    identity text, tags text not null, hourly_usd real, holds_data integer not null,
    written real not null, operation text not null default '', primary key (cluster, key)
)"""
_SCHEMA = (
    """create table clusters (
        name text primary key, provider text not null, request text not null, created real not null,
        is_down integer not null default 0, request_version integer not null default 1,
        account text not null default '', missing text not null default ''
    )""",
    _ENTRIES,
    """create table events (
        time real not null, cluster text not null, key text not null, event text not null,
        detail text not null
    )""",
    "create index events_by_cluster on events (cluster, time)",
)
# The statements that upgrade each shipped schema to the next one.
_UPGRADES: tuple[tuple[str, ...], ...] = (
    ("alter table entries add column operation text not null default ''",),
    (
        "alter table clusters add column request_version integer not null default 1",
        "alter table clusters add column account text not null default ''",
        "alter table clusters add column missing text not null default ''",
    ),
    # Up to schema 3, 0 was written for a free resource and for one of unknown price: both become unknown.
    (
        "alter table entries rename to entries_3",
        _ENTRIES,
        """insert into entries select cluster, key, kind, name, identity, tags, nullif(hourly_usd, 0),
        holds_data, written, operation from entries_3""",
        "drop table entries_3",
    ),
)
# What this version reads and writes. A newer schema that has all of it can be used for removal.
_COLUMNS = {
    "clusters": {
        *("name", "provider", "request", "created", "is_down", "request_version", "account", "missing"),
    },
    "entries": {
        *("cluster", "key", "kind", "name", "identity", "tags", "hourly_usd", "holds_data", "written"),
        "operation",
    },
    "events": {"time", "cluster", "key", "event", "detail"},
}
_MISSING_VERSION = 1  # format of the column `missing`
_DAMAGED = ("no such table", "no such column", "already exists")  # SQLite's errors for a foreign schema


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A part that a cluster lacks and that runs need.

    Attributes:
        what: its name ("add-ons").
        reason: why the cluster lacks it.
        remedy: what the user can do, with the command.
    """

    what: str
    reason: str
    remedy: str


_UNKNOWN = Missing(
    what="record",
    reason="what the journal says of its add-ons cannot be read",
    remedy="run the same `cloudrec up` again",
)


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """A cluster that `up` was called for: enough to rebuild its graph, or to remove it.

    Attributes:
        name: its name.
        provider: its provider's name.
        request: the arguments of `up`, as `spec.requests` reads them; empty if unreadable.
        created: when, in seconds since the epoch; None if unreadable.
        is_down: whether `down --keep-data` removed all but its data.
        request_version: the format of the request.
        account: its account, as `CreatesClusters.account_of` returns it; empty if the provider has no
            accounts, or an earlier version of cloudrec wrote the row.
        missing: the parts that it lacks, although all of its resources exist.
        problem: why the request is unreadable; empty if it is readable.
    """

    name: str
    provider: str
    request: Mapping[str, Any]
    created: float | None
    is_down: bool = False
    request_version: int = REQUEST_VERSION
    account: str = ""
    missing: Sequence[Missing] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class JournalEvent:
    """One step of a resource's creation, change or removal, or its failure."""

    time: float
    key: str
    event: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A cloud's operation in progress on one resource; see `engine.graph.Resumable`."""

    kind: str
    identity: str
    operation: str


class Journal:
    """The record of this home's clusters, their resources and their events. Safe for several threads.

    Every method raises StorageError if the file cannot be used. A journal of a newer cloudrec is read, and
    what is removed is written to it, but it takes no cluster of this version.
    """

    def __init__(self, path: Path) -> None:
        make_private(path.parent)
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0  # the process that opened it: SQLite forbids use of a connection after a fork
        self._newer = 0  # the schema of a newer cloudrec, if it is one
        with self._connected() as connection:
            if _version(connection) != _SCHEMA_VERSION:
                self._upgrade(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Create the tables, or upgrade them to the current schema."""
        # Take the write lock before the version is read: another command may be upgrading the file.
        connection.execute("begin immediate")
        version = _version(connection)
        if version > _SCHEMA_VERSION:
            self._newer = version
            if _has_columns(connection):
                return  # its version stays, for the newer cloudrec
            raise self._refused("lacks what this one reads")
        steps = _UPGRADES[version - 1 :] if version else (_SCHEMA,)
        for statement in chain.from_iterable(steps) if version < _SCHEMA_VERSION else ():
            connection.execute(statement)
        connection.execute(f"pragma user_version = {_SCHEMA_VERSION}")

    def _refused(self, why: str) -> StorageError:
        return StorageError(
            f"{self._path} is of a newer cloudrec (schema {self._newer}; this one knows {_SCHEMA_VERSION}) "
            f"and {why}",
            remedy="upgrade cloudrec, or set CLOUDREC_HOME to another folder",
        )

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, which all threads share, for one transaction."""
        try:
            with self._lock, self._open() as connection:
                yield connection
        # SQLite raises it for a full disk and for a lock, but also for missing tables and columns.
        except sqlite3.OperationalError as error:
            if any(words in str(error) for words in _DAMAGED):
                raise self._damaged(error) from error
            free = shutil.disk_usage(self._path.parent).free
            raise StorageError(
                f"the journal {self._path} cannot be used: {error} ({free:,} bytes are free on its disk)",
                remedy="free some space, look at its permissions, or set CLOUDREC_HOME to another folder",
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> StorageError:
        return StorageError(
            f"the journal {self._path} is damaged: {error}",
            remedy=f"move it away, with what is called {self._path.name}-wal and -shm beside it: "
            "`cloudrec down PROVIDER` finds resources by their tags without it",
        )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():
            if not self._path.exists():  # SQLite gives its other files the same mode
                with suppress(OSError):  # which SQLite explains
                    os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, check_same_thread=False)
            weakref.finalize(self, connection.close)
            connection.text_factory = _text
            connection.execute("pragma journal_mode = wal")
            # Faster than "full", and safe if the process dies. Only a power failure can lose the last
            # entries; their resources are then found by their tags.
            connection.execute("pragma synchronous = normal")
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def put_cluster(
        self,
        name: str,
        provider: str,
        request: Mapping[str, Any],
        *,
        account: str = "",
        missing: Sequence[Missing] = (),
    ) -> None:
        """Write a cluster's request, provider and account; called before any of its resources is created."""
        if self._newer:
            raise self._refused("takes no cluster of this one; `status` and `down` work")
        with self._connected() as connection:
            connection.execute(
                "insert into clusters (name, provider, request, created, request_version, account, missing) "
                "values (?, ?, ?, ?, ?, ?, ?) on conflict (name) do update set provider = excluded.provider, "
                "request = excluded.request, is_down = 0, request_version = excluded.request_version, "
                "account = excluded.account, missing = excluded.missing",
                (name, provider, json.dumps(request), time.time(), REQUEST_VERSION, account, _list(missing)),
            )

    def set_account(self, name: str, account: str) -> None:
        """Write a cluster's account."""
        with self._connected() as connection:
            connection.execute("update clusters set account = ? where name = ?", (account, name))

    def set_missing(self, name: str, missing: Sequence[Missing]) -> None:
        """Write the parts that a cluster lacks; none if it is ready."""
        with self._connected() as connection:
            connection.execute("update clusters set missing = ? where name = ?", (_list(missing), name))

    def clusters(self) -> Sequence[ClusterRecord]:
        """Return every cluster that is not removed, by name; an unreadable one has its `problem`."""
        with self._connected() as connection:
            rows = connection.execute(
                "select name, provider, request, created, is_down, request_version, account, "
                "missing from clusters order by name"
            ).fetchall()
        return [_record(row) for row in rows]

    def mark_down(self, name: str) -> None:
        """Record that a cluster was removed and its data kept; `put_cluster` ends that state."""
        with self._connected() as connection:
            connection.execute("update clusters set is_down = 1 where name = ?", (name,))

    def forget_cluster(self, name: str) -> None:
        """Delete a cluster without remaining resources, and its entries; its events are kept."""
        with self._connected() as connection:
            connection.execute("delete from clusters where name = ?", (name,))
            connection.execute("delete from entries where cluster = ?", (name,))

    def intend(self, cluster: str, resource: Resource) -> None:
        """Write the intent to create a resource, before the create call."""
        with self._connected() as connection:
            self._put(connection, cluster, resource, None)
            self._event(connection, cluster, resource.key, "creating")

    def identify(self, cluster: str, key: str, identity: str) -> None:
        """Write the identity that the cloud gave a new resource."""
        with self._connected() as connection:
            connection.execute(
                "update entries set identity = ?, written = ? where cluster = ? and key = ?",
                (identity, time.time(), cluster, key),
            )

    def operate(self, cluster: str, key: str, operation: str) -> None:
        """Write the operation in progress on a resource; empty after it has ended."""
        with self._connected() as connection:
            connection.execute(
                "update entries set operation = ? where cluster = ? and key = ? and operation != ?",
                (operation, cluster, key, operation),
            )

    def operations(self, cluster: str) -> Sequence[Operation]:
        """Return the operations of a cluster that were in progress when they were last written."""
        with self._connected() as connection:
            rows = connection.execute(
                "select kind, identity, operation from entries "
                "where cluster = ? and identity is not null and operation != ''",
                (cluster,),
            ).fetchall()
        return [Operation(kind=kind, identity=identity, operation=what) for kind, identity, what in rows]

    def adopt(self, cluster: str, resource: Resource, identity: str) -> None:
        """Write an existing resource, unless the journal has it with this identity."""
        with self._connected() as connection:
            known = connection.execute(
                "select identity from entries where cluster = ? and key = ?", (cluster, resource.key)
            ).fetchone()
            if known is None or known[0] != identity:
                self._put(connection, cluster, resource, identity)

    def forget(self, cluster: str, key: str, identity: str | None = None) -> None:
        """Delete the entry of a resource that is gone.

        Args:
            cluster: the cluster's name.
            key: the resource's key.
            identity: delete only an entry with this identity, or with none; None deletes any. The key's entry
                may already be that of a successor.
        """
        with self._connected() as connection:
            connection.execute(
                "delete from entries where cluster = ? and key = ? "
                "and (? is null or identity is null or identity = ?)",
                (cluster, key, identity, identity),
            )

    def _put(
        self, connection: sqlite3.Connection, cluster: str, resource: Resource, identity: str | None
    ) -> None:
        connection.execute(
            "insert or replace into entries values (?, ?, ?, ?, ?, ?, ?, ?, ?, '')",
            (
                cluster,
                resource.key,
                resource.kind,
                resource.name,
                identity,
                json.dumps(dict(resource.tags)),
                resource.hourly_usd,
                resource.holds_data,
                time.time(),
            ),
        )

    @staticmethod
    def _event(connection: sqlite3.Connection, cluster: str, key: str, event: str, detail: str = "") -> None:
        connection.execute(
            "insert into events values (?, ?, ?, ?, ?)", (time.time(), cluster, key, event, detail)
        )

    def known(self, cluster: str) -> Sequence[Observed]:
        """Return the cluster's entries, oldest first; an intent has an empty identity."""
        with self._connected() as connection:
            rows = connection.execute(
                "select key, kind, name, identity, tags, hourly_usd, holds_data from entries "
                "where cluster = ? order by written",
                (cluster,),
            ).fetchall()
        return [
            Observed(
                kind=str(kind),
                name=str(name),
                identity=str(identity or ""),
                condition=Condition.PENDING,
                tags=_tags(tags) or {TAG_CLUSTER: cluster, TAG_KEY: str(key)},
                hourly_usd=_number(hourly_usd),
                holds_data=bool(holds_data),
            )
            for key, kind, name, identity, tags, hourly_usd, holds_data in rows
        ]

    def note(self, cluster: str, key: str, event: str, detail: str = "") -> None:
        """Write an event, which `status --events` shows."""
        with self._connected() as connection:
            self._event(connection, cluster, key, event, detail)

    def events(self, cluster: str) -> Sequence[JournalEvent]:
        """Return a cluster's events, oldest first."""
        with self._connected() as connection:
            rows = connection.execute(
                "select time, key, event, detail from events where cluster = ? order by time, rowid",
                (cluster,),
            ).fetchall()
        return [
            JournalEvent(time=_number(when) or 0.0, key=str(key), event=str(event), detail=str(detail))
            for when, key, event, detail in rows
        ]


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("pragma user_version").fetchone()[0]
    return version


def _has_columns(connection: sqlite3.Connection) -> bool:
    """Return whether each table has the columns that this version uses, and no other must be given."""
    for table, wanted in _COLUMNS.items():
        rows = connection.execute('select name, "notnull", dflt_value from pragma_table_info(?)', (table,))
        found = {str(name): not required or default is not None for name, required, default in rows}
        if not wanted <= found.keys() or not all(found[name] for name in found.keys() - wanted):
            return False
    return True


def _text(value: bytes) -> str:
    """Return a column's text."""
    # One damaged byte must not make all rows unreadable.
    return value.decode("utf-8", errors="replace")


def _record(row: Sequence[object]) -> ClusterRecord:
    """Return a row of the table `clusters`, with a problem instead of an error if it is damaged."""
    name, provider, request, created, is_down, version, account, missing = row
    stored, problem = _object(request), ""
    if stored is None:
        problem = "what was asked for is no JSON object"
    elif not isinstance(version, int):
        problem = f"its version is {version!r}, which is no number"
    return ClusterRecord(
        name=str(name),
        provider=str(provider),
        request=stored or {},
        created=_number(created),
        is_down=bool(is_down),
        request_version=version if isinstance(version, int) else REQUEST_VERSION,
        account=str(account),
        missing=_missing(missing),
        problem=problem,
    )


def _list(missing: Sequence[Missing]) -> str:
    """Return the text of the column `missing`; empty if the cluster lacks nothing."""
    if not missing:
        return ""
    return json.dumps({"schema_version": _MISSING_VERSION, "missing": [asdict(each) for each in missing]})


def _missing(text: object) -> Sequence[Missing]:
    """Return the parts in the column `missing`; one of unknown name if the column is unreadable."""
    if not text:
        return ()
    # An unreadable column must not pass for a cluster that is ready: each failure below returns _UNKNOWN.
    document = _object(text) or {}
    listed = document.get("missing")
    if document.get("schema_version") != _MISSING_VERSION or not isinstance(listed, list):
        return (_UNKNOWN,)
    try:
        return tuple(
            Missing(**{key: str(each[key]) for key in ("what", "reason", "remedy")}) for each in listed
        )
    except (TypeError, KeyError):
        return (_UNKNOWN,)


def _object(text: object) -> dict[str, Any] | None:
    """Return a column's JSON object; None if it holds anything else."""
    try:
        return safe_object(str(text), numbers="any")  # the error then names the key
    except ValueError:
        return None


def _tags(text: object) -> dict[str, str]:
    return {str(name): str(value) for name, value in (_object(text) or {}).items()}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
