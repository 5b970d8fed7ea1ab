"""Driver processes without records: agents start them in place of `sluice.driver`.

They keep to the driver's contract. A file in the home disables one part of it: with
`warms-entry-2`, the second incarnation of `entry` is never ready.
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
"""WARMS: the driver is never ready.

LAGS: it never catches up with the owner. HANGS: it hangs when it should stop.
"""


def make_checkout(code: Path, folder: Path) -> Path:
    """Make a checkout in which these drivers replace the pipeline's."""
    driver = folder / "pipeline" / "sluice" / "driver"
    driver.mkdir(parents=True)
    for name in ("ops", "tests"):
        (folder / name).symlink_to(code / name)
    for package in (driver.parent, driver):
        (package / "__init__.py").touch()
    # the simulated drivers choose spares as the real ones do
    (driver / "spark").symlink_to(code / "pipeline" / "sluice" / "driver" / "spark")
    (driver / "__main__.py").write_text(
        "from tests.integration.sluice_ops.agent.stand_in_drivers import main\n\nmain()\n"
    )
    return folder


class Positions(Log):
    """Positions that grow with the clock, so that all incarnations have the same."""

    @property
    def committed(self) -> int:
        return int(time.time() * 100)

    @committed.setter
    def committed(self, _value: int) -> None:
        return


class Driver(SimDriver):
    """A driver that leaves out what files in the home name."""

    def _disabled(self, part: str) -> bool:
        return (endpoints.file().parent / f"{part}-{self.spec.name}-{self.number}").exists()

    def _stand_by(self, record: OwnerRecord) -> None:
        if self.state is not State.WARMING or not self._disabled(WARMS):
            super()._stand_by(record)

    def _run(self, record: OwnerRecord) -> None:
        if self.state is not State.RUNNING or self.caught_up or not self._disabled(LAGS):
            super()._run(record)

    def _exit(self, record: OwnerRecord | None) -> None:
        while self._disabled(HANGS):
            time.sleep(STEP_SECONDS)
        super()._exit(record)


def main() -> None:
    """Follow the owner record until the driver has ended."""
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop_signals.append(number))
    with Channel(endpoints.load().zookeeper) as channel:
        spec = channel.read(paths.tier(sys.argv[1]), TierSpec)
        assert spec is not None
        driver = Driver(channel, spec.value, int(sys.argv[2]), Positions(), (time.monotonic, time.time))
        while not driver.ended:
            with suppress(ChannelAwayError, ConflictError):
                driver.stop() if stop_signals else driver.step()
            time.sleep(STEP_SECONDS)
    os._exit(0)
