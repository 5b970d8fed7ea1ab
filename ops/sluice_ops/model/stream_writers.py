"""Which incarnations of a tier may write its streams, as Kafka's control topic says it (decision record 0047). Pure.

The owner record in ZooKeeper decides. A driver repeats it in the topic before it begins, so that a run which ZooKeeper no longer reaches
hears of it where it writes. `pipeline/sluice/driver/engine/WriterFence.java` has the same rule as `Writers.end`, in each executor.
"""

from sluice_ops.model.ids import Incarnation
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.resources import Frozen

VALID_SECONDS = 20.0
"""So long an executor writes after it has read the topic to its end; then it waits until it can do so again."""


class Writers(Frozen):
    """The value for a tier. Of two values the one with the greater `order` holds, in whatever order they were written."""

    term: int = 0
    """Grows where ZooKeeper's data was lost or restored, and epochs begin again below those in the topic."""
    epoch: int
    """Of the owner record that this repeats."""
    members: tuple[Incarnation, ...]

    @property
    def order(self) -> tuple[int, int]:
        """Compare two values by it."""
        return self.term, self.epoch

    def end(self, claim: "Writers", me: int) -> bool:
        """Tell whether the right that incarnation `me` has by its `claim` is over by this value."""
        return self.order > claim.order and not (self.term == claim.term and me in self.members)


def writers_of(record: OwnerRecord, term: int = 0) -> Writers:
    """Repeat the owner record: whoever is or may soon be told to run is a member."""
    members = {number for number in (record.owner, record.next, record.standby) if number is not None}
    return Writers(term=term, epoch=record.epoch, members=tuple(sorted(members)))


def disagrees(heard: Writers, mine: Writers) -> bool:
    """Tell whether the topic has what ZooKeeper cannot have said before `mine`, which repeats the record as it is there now."""
    return heard != mine and heard.order >= mine.order


def claim(heard: Writers | None, record: OwnerRecord, *, term: int | None, fresh: bool) -> Writers | None:
    """Return the value by which a run may begin; None where only ZooKeeper can give it the right, by what was `heard` in the topic.

    `term` is that of its last claim. `fresh`: `record` was read from ZooKeeper after `heard` was read. A higher epoch in the topic is then
    one of a tree that was lost, for whoever writes the topic has read its record in ZooKeeper before. Without that nobody goes by a higher
    value, though it names the run's number: the number may be that of another tree's incarnation.
    """
    if heard is None:
        return writers_of(record, term or 0)
    mine, known = writers_of(record, heard.term), fresh or (term or 0) == heard.term
    if not disagrees(heard, mine):
        return mine if known else None
    return writers_of(record, heard.term + 1) if fresh else None
