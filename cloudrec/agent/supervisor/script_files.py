"""What the agent does for a user's script: code and requirements, checkpoints, and the summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.agent.lease import leader
from cloudrec.agent.upload.checkpoints import CheckpointFolder
from cloudrec.errors import StorageError
from cloudrec.launchers.base.results_store import is_remote, open_place
from cloudrec.launchers.base.script.finish import note_finished
from cloudrec.launchers.base.script.prepare import NodeFolders, fetch, prepare
from cloudrec.launchers.base.script_program import CHECKPOINTS, KEY, UserScript
from cloudrec_contract.exit_codes import FINISHED
from cloudrec_contract.layout import storage_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.agent.exits.classify import Ending
    from cloudrec.agent.settings import PodSettings
    from cloudrec.agent.supervisor.command import TorchrunCommand


def script_files(
    command: TorchrunCommand, settings: PodSettings, say: Callable[[str], None]
) -> ScriptFiles | None:
    """Return the files of the script that a command runs; None if it runs cloudrec's trainer."""
    document = command.config().get(KEY)
    if document is None:
        return None
    checkpoints = command.settings().checkpoint_dir
    copied = None
    if is_remote(checkpoints):
        copied = CheckpointFolder(settings.folder.path / CHECKPOINTS, open_place(checkpoints), say=say)
    return ScriptFiles(script=UserScript.of(document), settings=settings, checkpoints=copied, say=say)


@dataclass(frozen=True, kw_only=True)
class ScriptFiles:
    """The files of a script on this node.

    Args:
        script: the script.
        settings: the pod's settings.
        checkpoints: the folder that is copied to the storage; None if its checkpoints are on a file system.
        say: prints a line to the pod's log.
    """

    script: UserScript
    settings: PodSettings
    checkpoints: CheckpointFolder | None
    say: Callable[[str], None]

    def prepare(self) -> None:
        """Prepare the node, and restore the checkpoints.

        Raises:
            DataError: the code is missing in the storage, or damaged.
            UsageError: pip refuses the requirements.
            StorageError: the storage or the disk refuses.
        """
        results = self.settings.results
        storage = storage_of(results)
        # On a file system that the nodes share, one node installs for all, and for later runs.
        shared = bool(results) and not is_remote(results)
        base = Path(storage.removeprefix("file://")) if shared else self.settings.work
        folders = NodeFolders(run=self.settings.folder.path, layers=base / "layers")
        prepare(self.script, folders, lambda: fetch(storage, self.script.digest), self.say)
        if self.checkpoints:
            self.checkpoints.restore()
            self.checkpoints.start()

    def finish(self, ending: Ending, *, within_s: float) -> None:
        """Copy the last checkpoints; write the summary if the run has finished and this pod has rank 0."""
        folder = self.settings.folder
        if self.checkpoints and not self.checkpoints.finish(within_s=within_s):
            self.say(f"WARNING: not all checkpoints were copied to the storage in {within_s:g} s")
        if ending.code == FINISHED and leader.held(folder) is not None:
            try:
                note_finished(folder)
            except StorageError as error:
                self.say(f"warning: {error.message}")
