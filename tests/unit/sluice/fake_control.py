"""The control of an engine under test: each answer is an attribute that the test sets."""

from collections.abc import Callable

from sluice.driver.engine.contract import Standalone
from sluice_ops.model.incarnation import Receipt


class FakeControl(Standalone):
    """The control of one engine, without a channel."""

    owns = True
    epoch = 1
    admitted: float | None = None
    seconds_without_controller = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.positions: Callable[[], list[dict[str, int]]] = list
        self.stored_receipts: Callable[[], list[Receipt]] = list

    def complete_positions(self) -> list[dict[str, int]]:
        return self.positions()

    def receipts(self) -> list[Receipt]:
        return self.stored_receipts()
