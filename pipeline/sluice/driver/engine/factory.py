"""Chooses the engine of a tier."""

from sluice.driver.engine.contract import Control, Engine
from sluice.driver.engine.settings import EngineConfig


def create_engine(config: EngineConfig, control: Control) -> Engine:
    """Return the engine for the tier's output: streams, a sink, or a sink behind state.

    Only that engine's module is imported.
    """
    sink = config.tier.sink
    if sink is None:
        from sluice.driver.engine.streams import StreamsEngine  # noqa: PLC0415 — one engine only

        return StreamsEngine(config, control)
    from sluice.driver.engine.sink import SinkEngine  # noqa: PLC0415 — as above
    from sluice.driver.engine.stateful import StatefulEngine  # noqa: PLC0415 — as above
    from sluice.driver.state.checkpoint_store import Folder  # noqa: PLC0415 — as above
    from sluice.sinks.table import Latest  # noqa: PLC0415 — as above

    if isinstance(sink, Latest):
        return StatefulEngine(config, control, sink, config.depot or Folder(config.checkpoints))
    return SinkEngine(config, control, sink)
