"""Drivers that keep to the contract and carry no records: processes that agents start in the place of `sluice.driver`.

What one of them does not do, files in the home say: `warms-entry-2` has the second incarnation of `entry` never be ready.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from sluice_ops.channel import Channel, ChannelAwayError, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.incarnation import OwnerRecord, State
from sluice_ops.model.tier import TierSpec
from sluice_ops.site import endpoints
from tests.simulation.actors import Log, SimDriver

STEP_SECONDS = 0.05
WARMS, LAGS, HANGS = "warms", "lags", "hangs"
"""It is not ready; it does not come level with the owner; it hangs as it should stop."""


def stand_in(code: Path, folder: Path) -> Path:
    """Make a folder that holds the code, with these drivers in the place of the pipeline's."""
    driver = folder / "pipeline" / "sluice" / "driver"
    driver.mkdir(parents=True)
    for name in ("ops", "tests"):
        (folder / name).symlink_to(code / name)
    for package in (driver.parent, driver):
        (package / "__init__.py").touch()
    (driver / "__main__.py").write_text(
        "from tests.integration.sluice_ops.agent.driving import main\n\nmain()\n"
    )
    return folder


class Positions(Log):
    """Grow with the clock, so that all incarnations know the same."""

    @property
    def committed(self) -> int:
        return int(time.time() * 100)

    @committed.setter
    def committed(self, _value: int) -> None:
        return


class Driver(SimDriver):
    """One that does not do everything."""

    def _is(self, what: str) -> bool:
        return (endpoints.file().parent / f"{what}-{self.spec.name}-{self.number}").exists()

    def _stand_by(self, record: OwnerRecord) -> None:
        if self.state is not State.WARMING or not self._is(WARMS):
            super()._stand_by(record)

    def _run(self, record: OwnerRecord) -> None:
        if self.state is not State.RUNNING or self.caught_up or not self._is(LAGS):
            super()._run(record)

    def _exit(self, record: OwnerRecord | None) -> None:
        while self._is(HANGS):
            time.sleep(STEP_SECONDS)
        super()._exit(record)


def main() -> None:
    """Follow the owner record until it is to end."""
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: leaving.append(number))
    with Channel(endpoints.load().zookeeper) as channel:
        spec = channel.read(paths.tier(sys.argv[1]), TierSpec)
        assert spec is not None
        driver = Driver(channel, spec.value, int(sys.argv[2]), Positions(), (time.monotonic, time.time))
        while not driver.ended:
            with suppress(ChannelAwayError, ConflictError):
                driver.stop() if leaving else driver.step()
            time.sleep(STEP_SECONDS)
    os._exit(0)
