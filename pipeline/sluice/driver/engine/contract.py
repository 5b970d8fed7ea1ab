"""The interface of an engine (`Engine`), and what an engine asks its process (`Control`).

`sluice.driver.process.life` drives an engine. `sluice.driver.control.control_channel` answers as
its control.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sluice.driver.control.routing_epochs import LocalAgreement, RoutingAgreement
from sluice.kafka.truncation import Logs
from sluice_ops.model.incarnation import Receipt

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class Control(RoutingAgreement, Protocol):
    """What an engine asks about its incarnation while it runs. The answers change over time."""

    @property
    def owns(self) -> bool:
        """Whether this incarnation owns the tier.

        If not, it runs beside the owner, ready to take over.
        """

    @property
    def epoch(self) -> int:
        """The epoch of the last owner record that told this incarnation to run."""

    @property
    def admitted(self) -> float | None:
        """How many records the tier may let in each second, because a later tier lags
        (backpressure); None: the tier is not throttled.
        """

    @property
    def seconds_without_controller(self) -> float:
        """How long the tier has been throttled without a controller that could end it."""

    def standby_is_ready(self) -> bool:
        """Tell whether a warm standby could take over at once."""

    def complete_positions(self) -> list[dict[str, int]]:
        """Return the positions before which all output was complete, as incarnations of the tier
        reported them.
        """

    def receipts(self) -> list[Receipt]:
        """Return the receipts that incarnations of the tier reported when they started or
        settled.
        """


class Standalone(LocalAgreement):
    """The control of an engine without a control channel: it owns the tier, and no other
    incarnation exists.
    """

    @property
    def owns(self) -> bool:
        """Always true."""
        return True

    @property
    def epoch(self) -> int:
        """Always 0."""
        return 0

    @property
    def admitted(self) -> float | None:
        """Always None: backpressure comes from the channel."""
        return None

    @property
    def seconds_without_controller(self) -> float:
        """Always 0, because the tier is never throttled."""
        return 0.0

    def standby_is_ready(self) -> bool:
        """Return False: no standby exists."""
        return False

    def complete_positions(self) -> list[dict[str, int]]:
        """Return nothing: no incarnation has reported."""
        return []

    def receipts(self) -> list[Receipt]:
        """Return nothing: no incarnation has reported."""
        return []


class Engine(ABC):
    """One tier's query: warmed up, run, held, and run again."""

    def plan(self) -> None:  # noqa: B027 — not every engine can
        """Plan the query once without data.

        A fresh JVM needs seconds for this plan, and executors start meanwhile.
        """

    @abstractmethod
    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run the query without output until it is quick, or until `go_on` returns False."""

    @abstractmethod
    def run(self) -> Receipt:
        """Start or continue; return the positions where the run begins."""

    @abstractmethod
    def hold(self) -> Receipt:
        """Stop the query with no record half done, and return the positions.

        The session stays open.
        """

    @abstractmethod
    def check(self) -> None:
        """Restart a query that has ended by itself; raise its error if it may not restart."""

    @abstractmethod
    def caught_up(self) -> bool:
        """Tell whether the query has processed what was in the inputs when it began."""

    @abstractmethod
    def gap(self) -> float | None:
        """Return the largest gap in the output over the handover, once it is known.

        Unit: seconds.
        """

    def silence(self) -> float | None:
        """Return how long nothing came out before this incarnation's first output.

        Time without input does not count. None: not known yet. Unit: seconds.
        """
        return self.gap()

    @abstractmethod
    def positions(self) -> dict[str, int]:
        """Return the next offset of each input partition, as far as is known now."""

    @abstractmethod
    def last_batch(self) -> "StreamingQueryProgress | None":
        """Return Spark's progress report of the query's last batch, if the query runs."""

    def batch_runs(self) -> bool:
        """Tell whether a micro-batch runs now. Only of a tier that writes streams."""
        return False

    def settled(self) -> dict[str, int]:
        """Return positions before which all output is complete; empty if they are the same as at
        the last call.
        """
        return {}

    def logs(self) -> Logs:
        """Return the topic ids and leader epochs that the positions belong to, as far as they are
        known.
        """
        return Logs()

    def offset_sum(self) -> int | None:
        """Return the sum of the next offsets that the query will read; None if the sum of
        `positions` is exact enough.
        """
        return None

    def complete_floor(self) -> dict[str, int]:
        """Return offsets of input partitions before which all output is certainly complete.

        The call is cheap. The offsets are often old.
        """
        return {}

    def internal_state(self, receipt: Receipt) -> bytes:
        """Return the positions as JSON, for a tier whose hooks return no internal state."""
        return json.dumps({"positions": receipt.positions}).encode()

    def tick(self) -> None:  # noqa: B027 — not every engine has something to do
        """Do work that is due between two checks."""

    def idle_work(self) -> None:  # noqa: B027 — likewise
        """Do work that fits a time without records; a handover does not wait for it."""

    def close(self) -> None:  # noqa: B027 — likewise
        """Finish work that may wait until the tier runs elsewhere."""
