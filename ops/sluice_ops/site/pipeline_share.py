"""The check of the pipeline's share against the shares of its tiers and of batch."""

from collections.abc import Iterable, Iterator, Mapping

from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Amount, Numbers, PipelineShare, Share, room_of


def check_minimums(
    pipeline: PipelineShare, shares: Mapping[str, Share], shifts: Mapping[str, Mapping[str, Numbers]]
) -> None:
    """Raise ValueError if minimums of the site file, or of one of its shifts, contradict the
    pipeline's share.

    A number of slots and a per cent are not compared, because that needs the hosts.
    """
    for where, minimums in _minimums(shares, shifts):
        batch = minimums.pop(BATCH, 0)
        alike = {
            tier: amount
            for tier, amount in minimums.items()
            if isinstance(amount, int) is isinstance(pipeline.maximum, int)
        }
        total = sum(room_of(amount) for amount in alike.values())
        if total > room_of(pipeline.maximum):
            message = (
                f"the minimums of {', '.join(sorted(alike))}{where} add up to {_text(alike.values())}, but "
                f"the tiers have at most {pipeline.maximum} together; lower a minimum, or raise maximum"
            )
            raise ValueError(message)
        both = (pipeline.minimum, batch)
        if all(isinstance(amount, str) for amount in both) and sum(map(room_of, both)) > 1:
            message = (
                f"its minimum of {pipeline.minimum} and the minimum of batch of {batch}{where} are more than "
                "the cluster; lower one of them"
            )
            raise ValueError(message)


def _minimums(
    shares: Mapping[str, Share], shifts: Mapping[str, Mapping[str, Numbers]]
) -> Iterator[tuple[str, dict[str, Amount]]]:
    """Yield the minimum of each tenant, by the site file alone and in each shift."""
    base = {tenant: share.minimum for tenant, share in shares.items()}
    yield "", dict(base)
    for shift, numbers in shifts.items():
        of_shift = {tenant: each.minimum for tenant, each in numbers.items() if each.minimum is not None}
        if of_shift:
            yield f" in the shift {shift}", {**base, **of_shift}


def _text(amounts: Iterable[Amount]) -> str:
    """Return a sum of numbers, or of per cents."""
    all_amounts = [*amounts]
    total = sum(room_of(amount) for amount in all_amounts)
    return f"{float(total * 100):g}%" if isinstance(all_amounts[0], str) else str(total)
