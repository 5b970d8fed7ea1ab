"""The warm-up of a tier that writes streams: its query over recent records, into streams that nobody reads."""

import shutil
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.driver.engine.contract import Setting, is_idle, recent
from sluice.driver.engine.warm_up import Outflow
from sluice.driver.spark.slots import records_read
from sluice.records import lineage

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def warm_up(
    setting: Setting, start: "Callable[[dict[str, int], str], StreamingQuery]", go_on: Callable[[], bool]
) -> None:
    """Have a query `start` from offsets, with its checkpoint in a folder, and stop it once it puts out as fast as it ever will."""
    streams = [name + lineage.WARM_UP for name in setting.outputs]
    begins, wanted = recent(setting)
    before = out = sum(setting.streams.bounds(streams).ends.values())
    folder = tempfile.mkdtemp(prefix=f"sluice-warm-{setting.tier.name}-")
    query, flow = start(begins, folder), Outflow(wanted, time.monotonic())
    while go_on() and query.exception() is None:
        at_work = is_idle(query) or records_read(setting.session)[1] > 0
        if flow.settled(time.monotonic(), out - before, at_work=at_work):
            break
        time.sleep(0.2)
        out = sum(setting.streams.bounds(streams).ends.values())
    failed = query.exception()
    query.stop()
    shutil.rmtree(folder, ignore_errors=True)
    if failed is not None:
        raise failed
