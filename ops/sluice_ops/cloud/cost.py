"""What instances cost, by the prices of the site file: the limit of a day, and the receipt.

A spot instance counts with the same price, which is the most that it may cost.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sluice_ops.cloud.errors import QuotaError
from sluice_ops.cloud.instance import Instance
from sluice_ops.site.ec2_config import Ec2Config

HOUR = 3600.0


def refuse_too_expensive(instances: Iterable[Instance], count: int, config: Ec2Config, now: float) -> None:
    """Raise QuotaError if `count` more instances could make the day cost more than it may.

    All instances are taken to run until midnight UTC. Instances that ended earlier do not count.
    """
    limit = config.max_cost_per_day
    if limit is None:
        return
    begin = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = (begin + timedelta(days=1)).timestamp()
    running = list(instances)
    unknown = sorted({each.instance_type for each in running} - config.price_per_hour.keys())
    if unknown:
        message = (
            f"the price of {', '.join(unknown)} is not known, of which instances run: "
            "add it to ec2.price_per_hour in the site file"
        )
        raise QuotaError(message)
    present = sum(
        config.price_per_hour[each.instance_type] * (end - max(each.launched_at, begin.timestamp())) / HOUR
        for each in running
    )
    more = count * _highest_price(config) * (end - now) / HOUR
    if present + more > limit:
        message = (
            f"{count} more instances could cost {more:.2f} until midnight UTC, beside {present:.2f} of the "
            f"{len(running)} that run: more than ec2.max_cost_per_day, {limit:.2f}. Ask for fewer workers, "
            "leave EC2 first (`sluice leave`, or leave_ec2), or raise the limit in the site file"
        )
        raise QuotaError(message)


def most_per_hour(count: int, config: Ec2Config) -> float | None:
    """Return the most that `count` more instances cost an hour; None if a price is not known."""
    all_priced = config.price_per_hour.keys() >= {*config.instance_types}
    return round(count * _highest_price(config), 4) if all_priced else None


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
