"""For all tests: profiles of the property tests, and the rotation of the long tests.

In continuous integration the property tests take the same examples each time; elsewhere they
explore. They have no deadline, because an example's time depends on the machine's load.
"""

import os
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.rotation import PARTS, divide, key_of, recorded_seconds

settings.register_profile("elsewhere", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "elsewhere")


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives all scenarios to one process, because they share one platform; the integration tests of
    a file, because they share a lab, and those of the provider, because they share Airflow's
    database; other tests to any.

    With `--no-loadscope-reorder`, the tests start in their order: the scenarios come last and have
    the machine to themselves, and files of integration tests come in the order of their limits.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    for folder in ("tests/scenarios/", "tests/integration/sluice_airflow/"):
        if nodeid.startswith(folder):
            return folder
    return nodeid.partition("::")[0] if nodeid.startswith("tests/integration/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long-part",
        type=int,
        metavar="N",
        help=f"of the long tests, run only part N modulo {PARTS}; tests/rotation.py divides them",
    )


def is_in_rotation(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None and item.get_closest_marker("endurance") is None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if all(item.nodeid.startswith("tests/integration/") for item in items):
        longest_first(items)
    number = config.getoption("--long-part")
    if number is None:
        return
    seconds = recorded_seconds()
    chosen = set(divide(seconds)[number % PARTS])
    key_of_item = {item: key_of(item.nodeid, seconds) for item in items if is_in_rotation(item)}
    if unrecorded := sorted({item.nodeid for item, key in key_of_item.items() if key is None}):
        message = (
            f"tests/long_seconds.json has no duration for {', '.join(unrecorded)}: measure it and add it"
        )
        raise pytest.UsageError(message)
    left_out = {item for item, key in key_of_item.items() if key not in chosen}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Accept a part that has no tests in the given folders."""
    if (
        exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        and session.config.getoption("--long-part") is not None
    ):
        session.exitstatus = pytest.ExitCode.OK


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by the sum of the time limits of their scope, so that no process has a long file
    left when the others are done.
    """
    limits: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("timeout")
        limits[scope_of(item.nodeid)] += marker.args[0] if marker is not None else 0
    items.sort(key=lambda item: (-limits[scope_of(item.nodeid)], scope_of(item.nodeid)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    number = config.getoption("--long-part")
    if number is None:
        return
    seconds = recorded_seconds()
    measured: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and "long" in report.keywords:
                measured[key_of(report.nodeid, seconds) or report.nodeid] += report.duration
    part, total = number % PARTS, sum(measured.values())
    terminalreporter.section(f"long tests: part {part} of 0 to {PARTS - 1}, {total:.0f} s")
    for key, duration in sorted(measured.items()):
        terminalreporter.line(f"{duration:5.0f} s (recorded: {seconds.get(key, 0):.0f} s) {key}")
