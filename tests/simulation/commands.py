"""Commands that carry out changes in a simulated world."""

from contextlib import nullcontext
from types import SimpleNamespace

from sluice_ops.operations import requests


def run_in(world, command, monkeypatch):
    """Let a command use the world's channel; the world's clock runs while the command waits."""
    monkeypatch.setattr(command, "open_channel", lambda: nullcontext(world.channel))
    monkeypatch.setattr(command, "ended_as_by_ctrl_c", lambda: None)
    clock = SimpleNamespace(sleep=lambda _: world.tick(), time=world.wall, monotonic=world.clock)
    for module in (requests, command):
        monkeypatch.setattr(module, "time", clock)
