"""An interrupted bench ends the processes that it waits for."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

import psutil
import pytest

from tests.bench.flow import sent
from tests.lab import run_command

SLEEP = "import time; time.sleep(60)"


class Interrupt(BaseException):
    """An exception of a signal's handler, like that of Ctrl-C."""


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Interrupt the main thread half a second later."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_wait_ends_the_load() -> None:
    load = subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, text=True)
    with pytest.raises(Interrupt):
        sent(load)
    assert load.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_command_ends() -> None:
    before = psutil.Process().children()
    with pytest.raises(Interrupt):
        run_command("timeit", "-n1", "-r1", SLEEP, env={})
    assert psutil.Process().children() == before
