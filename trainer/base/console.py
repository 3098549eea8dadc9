"""The outer layer of every trainer command: exit codes for errors, and the late import of torch."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer.base.errors import ConfigError, DependencyError, NonFiniteLossError, PeerError, TrainerError

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


def guarded(command: Callable[[], int], *, note: Callable[[str], None] | None = None) -> int:
    """Run a command; print every error that a user can act on as one line, and return its exit code.

    `note` receives the text of that error. Any other exception is raised.
    """
    try:
        return command()
    except TrainerError as error:
        return _complain(error, note)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        return _complain(TrainerError(f"cannot write {error.filename or 'a file'}: {error.strerror}"), note)
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        return _complain(lost_peer(), note)


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether one of torch's errors means that another rank is lost; torch has no separate class for it."""
    text = " ".join(str(error).lower().split())
    return any(sign in text for sign in LOST_PEER)


def lost_peer() -> PeerError:
    """Return the error for a lost rank."""
    return PeerError(
        "lost contact with another rank: it failed or was ended (its own log shows why), "
        "or it did not answer within PROCESS_GROUP_TIMEOUT_SECONDS",
    )


@contextmanager
def importing_torch() -> Iterator[None]:
    """Surround an import that needs torch: silence the libraries' warnings, and explain a failed import.

    Importing torch takes seconds, so commands do it only after they have checked their arguments.

    Raises:
        DependencyError: a package is missing, or the versions do not fit; it names what to install.
    """
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
    """Silence deprecation warnings of the libraries, and print each of the trainer's warnings once."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch|trainer")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch|fbgemm_gpu")
    registration = r"fbgemm::dense_embedding_codegen_lookup_function"  # its gradients are tested to be right
    warnings.filterwarnings("ignore", category=UserWarning, message=registration)
    for name in ("torchrec", "torch.fx", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    ours = logging.getLogger("trainer")
    if not ours.handlers:
        ours.addHandler(_FirstTime())
    root = logging.getLogger()
    if not root.handlers:
        # fbgemm_gpu calls logging.info() when it is imported, which adds a handler to a root logger
        # without one. That handler would print the trainer's warnings a second time, on every rank. Records
        # are still propagated, for handlers that a user or a test adds.
        others = logging.StreamHandler()
        others.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        others.addFilter(lambda record: record.name.partition(".")[0] != "trainer")
        root.addHandler(others)


class _FirstTime(logging.Handler):
    """Prints each warning once, on the first rank of each machine."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        text = record.getMessage()
        if text not in self._printed and os.environ.get("LOCAL_RANK", "0") == "0":
            self._printed.add(text)
            print(f"warning: {text}", file=sys.stderr, flush=True)


def _complain(error: TrainerError, note: Callable[[str], None] | None) -> int:
    """Print one line on stderr; on a shared terminal, only rank 0 prints an error that all ranks raise."""
    if note:
        note(str(error))
    common = isinstance(error, (ConfigError, NonFiniteLossError)) and sys.stderr.isatty()
    if not common or os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code
