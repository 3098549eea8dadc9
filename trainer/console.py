"""The edge of every command of the trainer: errors become one line and an exit code, torch comes late."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer.errors import ConfigError, DependencyError, NonFiniteLossError, PeerError, TrainerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REMEDY = (
    "install a matching trio, such as torch 2.13.0, fbgemm-gpu 1.8.0 (fbgemm-gpu-cpu without a GPU) and "
    "torchrec 1.8.0: `make setup` does"
)
LOST_PEER = (
    *("connection closed by peer", "connection reset by peer", "timed out", "timeout", "broken pipe"),
    *("ncclremoteerror", "remote process exit", "failed to recv, got 0 bytes"),  # nccl's, the store's
)


def guarded(command: Callable[[], int]) -> int:
    """Run a command, and turn every error that a person can act on into one line and its exit code."""
    try:
        return command()
    except TrainerError as error:
        return _complain(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        return _complain(TrainerError(f"cannot write {error.filename or 'a file'}: {error.strerror}"))
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        return _complain(lost_peer())


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether one of torch's errors means that another rank is gone; it has no class of its own."""
    text = " ".join(str(error).lower().split())
    return any(sign in text for sign in LOST_PEER)


def lost_peer(*, resumable: bool = False) -> PeerError:
    """What to tell of it; `resumable` where there is a checkpoint to go on from."""
    return PeerError(
        "lost contact with another rank: it failed or was ended (its own log tells why), "
        "or it did not answer within PROCESS_GROUP_TIMEOUT_SECONDS",
        resumable=resumable,
    )


@contextmanager
def importing_torch() -> Iterator[None]:
    """Around an import of what needs torch: slow, so it comes late; where it fails, tell what to install."""
    _quieten()
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "trainer":
            raise
        raise DependencyError(f"the trainer needs {error.name}, which is not installed; {REMEDY}") from error
    except (ImportError, OSError, AttributeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DependencyError(
            f"torch, fbgemm and torchrec do not fit one another ({first}); {REMEDY}"
        ) from error


def _quieten() -> None:
    """Keep what the libraries say about their own future from people who can do nothing about it."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch|trainer")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch|fbgemm_gpu")
    registration = r"fbgemm::dense_embedding_codegen_lookup_function"  # its gradients are tested to be right
    warnings.filterwarnings("ignore", category=UserWarning, message=registration)
    for name in ("torchrec", "torch.fx", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    ours = logging.getLogger("trainer")
    if not ours.handlers:
        ours.addHandler(_FirstTime())


class _FirstTime(logging.Handler):
    """Tells a warning once, and on the first rank only."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        text = record.getMessage()
        if text not in self._told and os.environ.get("RANK", "0") == "0":
            self._told.add(text)
            print(f"warning: {text}", file=sys.stderr, flush=True)


def _complain(error: TrainerError) -> int:
    """One line on stderr; on a shared terminal, an error that all ranks find is told by the first alone."""
    common = isinstance(error, (ConfigError, NonFiniteLossError)) and sys.stderr.isatty()
    if not common or os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code
