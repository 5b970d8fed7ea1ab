"""Answers requests for logs in a thread, which ends with the test."""

from contextlib import AbstractContextManager

from sluice_ops.operations.log_requests import LogServer
from tests.repeating import repeated


def serving(server: LogServer) -> AbstractContextManager[None]:
    return repeated(server.look, every=0.01)
