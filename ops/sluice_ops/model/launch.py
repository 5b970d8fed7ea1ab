"""The instances that a burst launches, and what they could cost."""

from pydantic import Field

from sluice_ops.model.resources import Frozen
from sluice_ops.model.wording import counted


class Launch(Frozen):
    """Instances, and money in the currency of `ec2.price_per_hour`.

    Every instance is taken to run until midnight UTC.
    """

    instances: int = Field(ge=0)
    per_hour: float | None = None
    """The price of all these instances for an hour; None: a price is not known."""
    could_cost: float | None = None
    """What they could cost until midnight; None: a price is not known."""
    spent: float = 0.0
    """What the instances of today have cost so far."""
    running_could_cost: float = 0.0
    """What the instances that run now could cost more until midnight."""
    budget: float | None = None
    """`ec2.max_cost_per_day` of the site file; None: no limit."""

    @property
    def day(self) -> float | None:
        """What the day could cost; None: a price is not known."""
        return None if self.could_cost is None else self.spent + self.running_could_cost + self.could_cost

    @property
    def does(self) -> str:
        """What happens, in one sentence."""
        price = "" if self.per_hour is None else f", for {self.per_hour:g} an hour"
        return f"{counted(self.instances, 'instance')} would be launched{price}"

    def above(self, limit: float | None) -> str:
        """Say how the day could pass a limit; empty: it cannot, or nothing is launched."""
        if limit is None or not self.instances:
            return ""
        launched = counted(self.instances, "instance")
        if self.could_cost is None or self.day is None:
            return (
                f"the cost of {launched} is not known, and the limit of a day is {limit:.2f}: add the "
                "missing prices to ec2.price_per_hour in the site file"
            )
        if self.day <= limit:
            return ""
        more = (
            f", and the running instances could cost {self.running_could_cost:.2f} more"
            if self.running_could_cost
            else ""
        )
        return (
            f"{launched} could cost {self.could_cost:.2f} until midnight UTC; the day has spent "
            f"{self.spent:.2f} of {limit:.2f}{more}"
        )
