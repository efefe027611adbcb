"""A real Slurm of four nodes, for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_cluster import Cluster, UnavailableError, slurm_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
            yield made
    except UnavailableError as error:
        pytest.skip(f"Slurm cannot be started here: {error}")
