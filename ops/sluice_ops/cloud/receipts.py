"""The receipts of instances in the channel: those that run, and those that ended in the last week.

EC2 forgets an instance an hour after its end. Every launch, termination and reap keeps the receipts
of all instances up to date. So an instance that ended by itself is noticed within an hour.
"""

from collections.abc import Collection, Iterable, Iterator

from sluice_ops.channel import Channel
from sluice_ops.cloud.instance import Instance
from sluice_ops.model import paths
from sluice_ops.model.instance_receipt import InstanceReceipt

KEPT_SECONDS = 7 * 86_400.0
"""How long the receipt of an ended instance is kept."""


def receipts_now(channel: Channel, running: Iterable[Instance], now: float) -> list[InstanceReceipt]:
    """Return the receipts as of now, when `running` are all instances that run. Write nothing."""
    return [after for _, _, after in _compared(channel, running, now) if after is not None]


def keep_receipts(
    channel: Channel, running: Iterable[Instance], now: float, ended: Collection[str] = ()
) -> None:
    """Write the receipts as of now, and delete old ones.

    `running` are all instances that ran a moment ago; `ended` are the ids of those that were
    terminated meanwhile.
    """
    for path, before, after in _compared(channel, running, now, ended):
        if after is None:
            channel.delete(path)
        elif after != before:
            channel.put(path, after)


def _compared(
    channel: Channel, running: Iterable[Instance], now: float, ended: Collection[str] = ()
) -> Iterator[tuple[str, InstanceReceipt | None, InstanceReceipt | None]]:
    """Yield the path of each receipt, its value in the channel, and its value as of now."""
    kept = [paths.instance(name) for name in channel.children(paths.INSTANCES)]
    before = dict(zip(kept, channel.read_many(kept, InstanceReceipt), strict=True))
    present = {paths.instance(each.id): each for each in running}
    for path, each in present.items():
        read = before.get(path)
        joined_at = None if read is None else read.value.joined_at
        receipt = InstanceReceipt(
            instance_type=each.instance_type,
            launched_at=each.launched_at,
            joined_at=channel.made_at(paths.host(each.host)) if joined_at is None else joined_at,
            ended_at=now if each.id in ended else None,
        )
        yield path, None if read is None else read.value, receipt
    for path, read in before.items():
        if path not in present and read is not None:
            ended_at = now if read.value.ended_at is None else read.value.ended_at
            is_old = ended_at < now - KEPT_SECONDS
            yield path, read.value, None if is_old else read.value.model_copy(update={"ended_at": ended_at})
