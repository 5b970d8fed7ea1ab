"""What instances cost, by the prices of the site file: what a day could cost, and the receipt.

A spot instance counts with the same price, which is the most that it may cost.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sluice_ops.cloud.errors import QuotaError
from sluice_ops.cloud.instance import Instance
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.launch import Launch
from sluice_ops.model.scaler import Readings
from sluice_ops.site.ec2_config import Ec2Config

HOUR = 3600.0
MILLION = 1e6


def launch_of(receipts: Iterable[InstanceReceipt], count: int, config: Ec2Config, now: float) -> Launch:
    """Return what the day could cost with `count` more instances.

    `receipts` are those of all instances. What ran today counts, also if it has ended. Raise
    QuotaError if a day has a limit, and the price of an instance that ran today is not known.
    """
    limit = config.max_cost_per_day
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin, end = midnight.timestamp(), (midnight + timedelta(days=1)).timestamp()
    today = [each for each in receipts if each.ended_at is None or each.ended_at > begin]
    unknown = sorted({each.instance_type for each in today} - config.price_per_hour.keys())
    if unknown and count and limit is not None:
        message = (
            f"the price of {', '.join(unknown)} is not known, of which instances ran today: "
            "add it to ec2.price_per_hour in the site file"
        )
        raise QuotaError(message)
    per_hour = most_per_hour(count, config)
    if unknown or per_hour is None:
        return Launch(instances=count, per_hour=per_hour, budget=limit)
    return Launch(
        instances=count,
        per_hour=per_hour,
        could_cost=per_hour * (end - now) / HOUR,
        spent=sum(
            _cost(each, max(each.launched_at, begin), now if each.ended_at is None else each.ended_at, config)
            for each in today
        ),
        running_could_cost=sum(_cost(each, now, end, config) for each in today if each.ended_at is None),
        budget=limit,
    )


def _cost(receipt: InstanceReceipt, since: float, until: float, config: Ec2Config) -> float:
    return config.price_per_hour[receipt.instance_type] * max(0.0, until - since) / HOUR


def most_per_hour(count: int, config: Ec2Config) -> float | None:
    """Return the most that `count` more instances cost an hour; None if a price is not known."""
    all_priced = config.price_per_hour.keys() >= {*config.instance_types}
    return round(count * _highest_price(config), 4) if all_priced else None


def per_million(launch: Launch, k: int, readings: Readings | None) -> float | None:
    """Return what a million records cost on new instances whose `k` workers are always busy.

    Less if some of these workers find room on hosts that run already. `readings` are those of the
    scaler. None: nothing is launched, or the price or the rate of a
    worker is not known.
    """
    rate = None if readings is None else readings.per_worker
    if not launch.instances or launch.per_hour is None or not rate:
        return None
    return round(launch.per_hour / (k * rate * HOUR) * MILLION, 6)


def per_million_in_words(cost: float | None) -> list[str]:
    """Return the sentence on the cost of a million records; none if it is not known."""
    if cost is None:
        return []
    price = f"{float(f'{cost:.2g}'):,g}"  # two digits, and no exponent for prices above a hundred
    return [f"a million records cost {price} on the new instances, if their workers are always busy"]


def receipt(instance: Instance, config: Ec2Config, now: float) -> str:
    """Return how long an instance has run, and what it cost if the price is known."""
    hours = (now - instance.launched_at) / HOUR
    price = config.price_per_hour.get(instance.instance_type)
    cost = "" if price is None else f" and cost {hours * price:.2f} ({price:g} an hour)"
    return f"{instance} ran for {hours:.2f} hours{cost}"


def total(instances: Iterable[Instance], config: Ec2Config, now: float) -> float | None:
    """Return what instances have cost until now; None if a price is not known."""
    ended = list(instances)
    if any(each.instance_type not in config.price_per_hour for each in ended):
        return None
    hours = ((now - each.launched_at) / HOUR * config.price_per_hour[each.instance_type] for each in ended)
    return round(sum(hours), 4)


def _highest_price(config: Ec2Config) -> float:
    return max(config.price_per_hour[name] for name in config.instance_types)
