"""The accounting of scripts/slurm_cluster.py: the configuration of slurmdbd and of its mariadbd.

The database is a folder below the cluster's own one. It listens on a socket there and on no port, and its
only user is the one of the system that started it, so that there is no password either.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAMS = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",  # which mariadb-install-db asks
}
ACCOUNTS = {"ads": True, "research": False}  # by name: whether the user who starts the cluster may use it
OFF = "AccountingStorageType=accounting_storage/none"
_ON = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations"""
_MAKE_S = 120.0
_SMALL = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2")
_CONFIG = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny
DbdAddr=127.0.0.1
DbdHost={host}
DbdPort={port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def settings(folder: Path, port: int) -> str:
    """Return the lines of slurm.conf by which Slurm keeps accounts at a slurmdbd."""
    return _ON.format(folder=folder, port=port)


def variables(folder: Path) -> Mapping[str, str]:
    """Return the variables by which slurmdbd finds the database."""
    return {"MYSQL_UNIX_PORT": str(socket_of(folder))}


def socket_of(folder: Path) -> Path:
    """Return the socket of the database."""
    return folder / "mariadb.socket"


def make(folder: Path, *, host: str, port: int, install_db: str) -> str:
    """Write slurmdbd's settings and an empty database; return an error message, or an empty text.

    Args:
        folder: the cluster's folder.
        host: this machine's name.
        port: where slurmdbd is to listen.
        install_db: the path of mariadb-install-db.
    """
    config = folder / "slurmdbd.conf"
    config.touch(mode=0o600)  # slurmdbd refuses one that others can read
    config.write_text(_CONFIG.format(folder=folder, host=host, port=port), encoding="utf-8")
    words = [install_db, "--no-defaults", f"--datadir={folder}/database", "--user=root", "--skip-test-db"]
    identity = ["--auth-root-authentication-method=socket", "--auth-root-socket-user=root"]
    done = subprocess.run(
        [*words, *identity, *_SMALL],
        capture_output=True,
        text=True,
        timeout=_MAKE_S,
        check=False,
    )
    return f"mariadb-install-db: {done.stdout[-300:]} {done.stderr[-300:]}" if done.returncode else ""


def database_flags(folder: Path) -> list[str]:
    """Return mariadbd's flags."""
    return [
        *("--no-defaults", f"--datadir={folder}/database", "--user=root", "--skip-networking", *_SMALL),
        *(f"--socket={socket_of(folder)}", f"--pid-file={folder}/mariadb.pid"),
        *(f"--log-error={folder}/mariadb.log", "--skip-log-bin", "--innodb-lock-wait-timeout=900"),
    ]


def orders(cluster: str, user: str) -> list[list[str]]:
    """Return sacctmgr's commands that add the cluster, its accounts and their users."""
    commands = [["add", "cluster", cluster]]
    for account, is_open in ACCOUNTS.items():
        commands.append(["add", "account", account, f"Cluster={cluster}"])
        if is_open:
            commands.append(["add", "user", user, f"Account={account}", f"Cluster={cluster}"])
    return [["sacctmgr", "--immediate", *words] for words in commands]
