"""A lab for each module that asks for one."""

from collections.abc import Iterator

import pytest

from tests.lab import Lab, opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Publish the shipped pipeline, or what a test's module names as its PIPELINE_MODULE."""
    with opened(tmp_path_factory.mktemp("pipeline"), getattr(request.module, "PIPELINE_MODULE", None)) as made:
        yield made
