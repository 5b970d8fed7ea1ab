"""`sluice agent` and `sluice controller` hand what was typed to the processes that they become."""

import os
import sys

import pytest
from typer.testing import CliRunner

from sluice_ops.agent.__main__ import arguments_of
from sluice_ops.main import app


class Became(Exception):  # noqa: N818 - no error: it stands for the end of this process
    pass


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch):
    def run(*words: str) -> list[str]:
        became: list[str] = []

        def replace(program: str, arguments: list[str]) -> None:
            became.extend([program, *arguments[1:]])
            raise Became

        monkeypatch.setattr(os, "execvp", replace)
        CliRunner().invoke(app, words)
        return became

    return run


def test_an_agent_is_given_what_was_typed(become) -> None:
    words = become(
        "agent",
        "--host",
        "h9",
        "--zookeeper",
        "z:2181/sluice/hits",
        "--address",
        "10.0.0.9",
        "--cpu",
        "4",
        "--memory",
        "4g",
    )
    assert words[:3] == [sys.executable, "-m", "sluice_ops.agent"]
    given = arguments_of(words[3:])
    assert (given.host, given.zookeeper, given.address, given.cpu, given.memory) == (
        "h9",
        "z:2181/sluice/hits",
        "10.0.0.9",
        4,
        "4g",
    )
    assert (given.zone, given.labels, given.stop_all) == ("onprem", "", False), (
        "what was not typed is left to the agent"
    )
    assert arguments_of(become("agent", "--host", "h9", "--stop-all")[3:]).stop_all


def test_a_host_has_to_be_named(become) -> None:
    assert become("agent") == []


def test_a_controller_is_given_what_was_typed(become) -> None:
    words = become("controller", "--name", "c1", "--metrics", "10.0.0.5:9464")
    assert words == [sys.executable, "-m", "sluice_ops.controller", "--name=c1", "--metrics=10.0.0.5:9464"]
    assert become("controller") == [sys.executable, "-m", "sluice_ops.controller"]
