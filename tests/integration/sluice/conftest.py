"""A lab, or a small Spark in this process, for modules that need one."""

import sys
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluice import testing
from sluice_ops.local import fetch_jars
from sluice_ops.local.layout import LOWEST_BASE, Layout, Ports
from sluice_ops.site.java import home_for_spark
from tests.integration.sluice.state_feed import Feed
from tests.integration.sluice.stateful_runs import local_session
from tests.lab import ROOT, Lab, opened
from tests.testing_session import end_session


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Start a lab with the shipped pipeline, or the module's PIPELINE_MODULE.

    The module's fixture `site` gives the rest of the site file.
    """
    more = request.getfixturevalue("site") if hasattr(request.module, "site") else "hosts: []\n"
    with opened(
        tmp_path_factory.mktemp("pipeline"), getattr(request.module, "PIPELINE_MODULE", None), more
    ) as opened_lab:
        yield opened_lab


@pytest.fixture(scope="module")
def feed(lab: Lab) -> Feed:
    """Write input of tiers with state, as the tier before them would."""
    return Feed(lab)


@pytest.fixture(scope="module")
def driver_session(lab: Lab) -> Iterator[SparkSession]:
    with local_session(lab) as session:
        yield session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home_for_spark(tmp_path_factory.mktemp("java"))))
        session = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def session_with_packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the session of `sluice.testing` have the packages of formats, and end it."""
    folder = tmp_path_factory.mktemp("home")
    layout = Layout(home=folder, ports=Ports.above(LOWEST_BASE), site=ROOT / "site.yaml")
    layout.make_folders()
    fetch_jars.fetch(layout, threading.Event())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_HOME", str(folder))
        testing.session()
    yield
    end_session()
