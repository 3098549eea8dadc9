"""The journal: intent is written before a call, identity right after it; a crash between loses neither.

One SQLite file for all clusters, in write-ahead mode, so that several commands may read while one writes.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition, Observed
from cloudrec.errors import StorageError
from cloudrec.home import make_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cloudrec.engine.graph import Resource

_SCHEMA_VERSION = 2
_BUSY_S = 30.0  # while another command writes
_SCHEMA = (
    """create table clusters (
        name text primary key, provider text not null, request text not null, created real not null,
        is_down integer not null default 0
    )""",
    """create table entries (
        cluster text not null, key text not null, kind text not null, name text not null,
        identity text, tags text not null, hourly_usd real not null, holds_data integer not null,
        written real not null, operation text not null default '', primary key (cluster, key)
    )""",
    """create table events (
        time real not null, cluster text not null, key text not null, event text not null,
        detail text not null
    )""",
    "create index events_by_cluster on events (cluster, time)",
)
# From each schema that was shipped to the next.
_UPGRADES = ("alter table entries add column operation text not null default ''",)


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """A cluster that `up` was asked for: enough to rebuild its graph, or to take it down."""

    name: str
    provider: str
    request: Mapping[str, Any]
    created: float
    is_down: bool = False  # taken down, its data kept


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that was done, or failed, to one resource."""

    time: float
    key: str
    event: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What a cloud was at with one resource: see `engine.graph.Resumable`."""

    kind: str
    identity: str
    operation: str


class Journal:
    """What this machine knows of the clusters that it made."""

    def __init__(self, path: Path) -> None:
        make_private(path.parent)
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0  # that opened it: a connection must not be used on the other side of a fork
        with self._connected() as connection:
            if _version(connection) != _SCHEMA_VERSION:
                self._upgrade(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Bring the file to this schema, whichever of several processes comes first."""
        connection.execute("begin immediate")
        version = _version(connection)
        if version > _SCHEMA_VERSION:
            raise StorageError(
                f"{self._path} is of a newer cloudrec (schema {version}; this one knows {_SCHEMA_VERSION})",
                remedy="upgrade cloudrec, or set CLOUDREC_HOME to another folder",
            )
        statements = _UPGRADES[version - 1 :] if version else _SCHEMA
        for statement in statements if version < _SCHEMA_VERSION else ():
            connection.execute(statement)
        connection.execute(f"pragma user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, which all threads share, for one transaction."""
        try:
            with self._lock, self._open() as connection:
                yield connection
        except sqlite3.OperationalError as error:  # the disk or a lock, not the content
            free = shutil.disk_usage(self._path.parent).free
            raise StorageError(
                f"the journal {self._path} cannot be used: {error} ({free:,} bytes are free on its disk)",
                remedy="free some space, look at its permissions, or set CLOUDREC_HOME to another folder",
            ) from error
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"the journal {self._path} cannot be used: {error}",
                remedy="if it is damaged, move it away: `cloudrec down` finds resources by tag without it",
            ) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, check_same_thread=False)
            weakref.finalize(self, connection.close)
            connection.execute("pragma journal_mode = wal")
            # What a process wrote outlives its death; only a dead machine may lose the last entries, and
            # what those named is found by its tags.
            connection.execute("pragma synchronous = normal")
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def put_cluster(self, name: str, provider: str, request: Mapping[str, Any]) -> None:
        """Remember that this cluster was asked for, before anything of it is created."""
        with self._connected() as connection:
            connection.execute(
                "insert into clusters values (?, ?, ?, ?, 0) on conflict (name) "
                "do update set provider = excluded.provider, request = excluded.request, is_down = 0",
                (name, provider, json.dumps(request), time.time()),
            )

    def clusters(self) -> Sequence[ClusterRecord]:
        """Return every cluster that was asked for and not yet taken down."""
        with self._connected() as connection:
            rows = connection.execute(
                "select name, provider, request, created, is_down from clusters order by name"
            ).fetchall()
        return [
            ClusterRecord(name=n, provider=p, request=json.loads(r), created=c, is_down=bool(d))
            for n, p, r, c, d in rows
        ]

    def mark_down(self, name: str) -> None:
        """Remember that a cluster was taken down and its data kept, until `up` asks for it again."""
        with self._connected() as connection:
            connection.execute("update clusters set is_down = 1 where name = ?", (name,))

    def forget_cluster(self, name: str) -> None:
        """Drop a cluster of which nothing is left."""
        with self._connected() as connection:
            connection.execute("delete from clusters where name = ?", (name,))
            connection.execute("delete from entries where cluster = ?", (name,))

    def intend(self, cluster: str, resource: Resource) -> None:
        """Write that this resource is about to be created."""
        with self._connected() as connection:
            self._put(connection, cluster, resource, None)
            self._event(connection, cluster, resource.key, "creating")

    def identify(self, cluster: str, key: str, identity: str) -> None:
        """Write the identity that the cloud gave it."""
        with self._connected() as connection:
            connection.execute(
                "update entries set identity = ?, written = ? where cluster = ? and key = ?",
                (identity, time.time(), cluster, key),
            )

    def operate(self, cluster: str, key: str, operation: str) -> None:
        """Write the operation that is under way on what is known; empty once it has ended."""
        with self._connected() as connection:
            connection.execute(
                "update entries set operation = ? where cluster = ? and key = ? and operation != ?",
                (operation, cluster, key, operation),
            )

    def operations(self, cluster: str) -> Sequence[Operation]:
        """Return what was under way when it was last written."""
        with self._connected() as connection:
            rows = connection.execute(
                "select kind, identity, operation from entries "
                "where cluster = ? and identity is not null and operation != ''",
                (cluster,),
            ).fetchall()
        return [Operation(kind=kind, identity=identity, operation=what) for kind, identity, what in rows]

    def adopt(self, cluster: str, resource: Resource, identity: str) -> None:
        """Make sure that a resource which was found is known here, as made by another home."""
        with self._connected() as connection:
            known = connection.execute(
                "select identity from entries where cluster = ? and key = ?", (cluster, resource.key)
            ).fetchone()
            if known is None or known[0] != identity:
                self._put(connection, cluster, resource, identity)

    def forget(self, cluster: str, key: str, identity: str | None = None) -> None:
        """Drop a resource that is proven to be gone; with `identity`, only if known by that one or none."""
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
        """Return what was created and not yet seen gone; an intent without identity has an empty one."""
        with self._connected() as connection:
            rows = connection.execute(
                "select kind, name, identity, tags, hourly_usd, holds_data from entries "
                "where cluster = ? order by written",
                (cluster,),
            ).fetchall()
        return [
            Observed(
                kind=kind,
                name=name,
                identity=identity or "",
                condition=Condition.PENDING,
                tags=json.loads(tags),
                hourly_usd=hourly_usd,
                holds_data=bool(holds_data),
            )
            for kind, name, identity, tags, hourly_usd, holds_data in rows
        ]

    def note(self, cluster: str, key: str, event: str, detail: str = "") -> None:
        """Keep an event for `status --events`."""
        with self._connected() as connection:
            self._event(connection, cluster, key, event, detail)

    def events(self, cluster: str) -> Sequence[Event]:
        """Return what happened to a cluster, oldest first."""
        with self._connected() as connection:
            rows = connection.execute(
                "select time, key, event, detail from events where cluster = ? order by time, rowid",
                (cluster,),
            ).fetchall()
        return [Event(time=when, key=key, event=event, detail=detail) for when, key, event, detail in rows]


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("pragma user_version").fetchone()[0]
    return version
