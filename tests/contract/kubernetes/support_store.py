"""A bucket that pods of the stand-in can reach, with the variables that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.standins.identity import pod_identity
from tests.standins.servers import moto_server


@contextmanager
def bucket(folder: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """An empty bucket named `bucket`: its file system in this process, and the variables for pods."""
    with (
        pytest.MonkeyPatch.context() as patch,
        pod_identity() as identity,
        moto_server(folder / "log") as port,
    ):
        for name, value in (("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")):
            patch.setenv(name, value)
        endpoint = f"http://127.0.0.1:{port}"
        import s3fs  # noqa: PLC0415 - an extra

        files = s3fs.S3FileSystem(endpoint_url=endpoint, use_listings_cache=False)  # pods change it
        files.mkdir("bucket")
        yield (
            files,
            {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": identity,
                "OMP_NUM_THREADS": "1",
            },
        )
