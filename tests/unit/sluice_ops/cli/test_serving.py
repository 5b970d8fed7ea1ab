"""`sluice agent` and `sluice controller` pass the typed options to their new processes."""

import os
import sys

import pytest
from typer.testing import CliRunner

from sluice_ops.agent.__main__ import arguments_of
from sluice_ops.main import app


class Became(Exception):  # noqa: N818 - no error: stands for the end of this process
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


def test_the_agent_gets_the_typed_options(become) -> None:
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
    arguments = arguments_of(words[3:])
    assert (arguments.host, arguments.zookeeper, arguments.address, arguments.cpu, arguments.memory) == (
        "h9",
        "z:2181/sluice/hits",
        "10.0.0.9",
        4,
        "4g",
    )
    assert (arguments.zone, arguments.labels, arguments.stop_all) == ("onprem", "", False), (
        "the agent itself sets options that were not typed"
    )
    assert arguments_of(become("agent", "--host", "h9", "--stop-all")[3:]).stop_all


def test_an_agent_needs_a_host(become) -> None:
    assert become("agent") == []


def test_the_controller_gets_the_typed_options(become) -> None:
    words = become("controller", "--name", "c1", "--metrics", "10.0.0.5:9464")
    assert words == [sys.executable, "-m", "sluice_ops.controller", "--name=c1", "--metrics=10.0.0.5:9464"]
    assert become("controller") == [sys.executable, "-m", "sluice_ops.controller"]
