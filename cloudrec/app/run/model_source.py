"""The module of a user's own model, for nodes that do not read this machine's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.home import open_file
from cloudrec_contract.settings import TrainerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.spec.load import Loaded

KEY = "model_source"
MOST_BYTES = 200_000  # a ConfigMap holds 1 MiB, with the rest of trainer.yaml


def with_model_source(config: Mapping[str, Any], flags: Sequence[str], loaded: Loaded) -> dict[str, Any]:
    """Return the trainer's configuration with the text of the module of `--model MODULE:FACTORY`.

    The module is a file of the working folder (`--workdir`). A name without such a file is left alone: the
    image may have an installed package of that name.

    Args:
        config: the trainer's configuration.
        flags: flags of the trainer, which win over the configuration.
        loaded: the spec.

    Raises:
        SpecError: the file cannot be read, is too large, or is no Python.
    """
    model = TrainerSettings.asked(config, flags).values.get("model")
    module, colon, _ = model.partition(":") if isinstance(model, str) else ("", "", "")
    if not colon or not module.isidentifier() or config.get(KEY) is not None:
        return dict(config)
    from_file = loaded.origins.get(("train", "workdir"), "").startswith(f"{loaded.file} ")
    base = loaded.file.parent if from_file and loaded.file is not None else Path.cwd()
    path = base / loaded.spec.train.workdir / f"{module}.py"
    try:
        with open_file(path) as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return dict(config)
    except OSError as error:
        raise SpecError(
            f"the model's module {path} cannot be read: {error.strerror}", remedy="make it readable"
        ) from error
    if len(text) > MOST_BYTES:
        raise SpecError(
            f"the model's module {path} has more than {MOST_BYTES:,} bytes, which is the limit",
            remedy="name a smaller file, or install it in the image as a package",
        )
    try:
        source = text.decode("utf-8")
        compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # a null byte or wrong UTF-8 is a ValueError
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else str(path)
        raise SpecError(f"{where}: no Python module: {error}", remedy="correct the file") from error
    return {**config, KEY: source}
