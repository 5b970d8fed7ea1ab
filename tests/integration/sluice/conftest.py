"""A lab, or a small Spark in this process, for each module that asks for one."""

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluice_ops.site.java import home_for_spark
from tests.integration.sluice.given import Feed
from tests.integration.sluice.runs import local_session
from tests.lab import Lab, opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Publish the shipped pipeline, or what a test's module names as its PIPELINE_MODULE, at a site that is as its SITE says."""
    more = request.getfixturevalue("site") if hasattr(request.module, "site") else "hosts: []\n"
    with opened(
        tmp_path_factory.mktemp("pipeline"), getattr(request.module, "PIPELINE_MODULE", None), more
    ) as made:
        yield made


@pytest.fixture(scope="module")
def feed(lab: Lab) -> Feed:
    """Play the tier before those that hold state."""
    return Feed(lab)


@pytest.fixture(scope="module")
def driver_session(lab: Lab) -> Iterator[SparkSession]:
    with local_session(lab) as made:
        yield made


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home_for_spark(tmp_path_factory.mktemp("java"))))
        made = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    yield made
    made.stop()
