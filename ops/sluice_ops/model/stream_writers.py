"""The incarnations that may write a tier's streams, in Kafka's control topic (decision 47).
Pure.

The owner record in ZooKeeper decides. A driver copies it into the topic before it begins. So a run
that is cut off from ZooKeeper learns of a new owner in Kafka, where it writes.
`pipeline/sluice/driver/engine/WriterFence.java` has the same rule as `Writers.end`, in each
executor.
"""

from sluice_ops.model.ids import Incarnation
from sluice_ops.model.incarnation import OwnerRecord
from sluice_ops.model.resources import Frozen

VALID_SECONDS = 20.0
"""How long an executor may write after it read the topic to its end. Unit: seconds.

Then it waits until it has read the topic to its end again.
"""


class Writers(Frozen):
    """The writers of one tier's streams.

    Of two values, the one with the higher `order` is valid, in whatever order they were written.
    """

    term: int = 0
    """Grows after ZooKeeper's data was lost or restored, and epochs begin again at lower
    numbers.
    """
    epoch: int
    """The epoch of the copied owner record."""
    members: tuple[Incarnation, ...]

    @property
    def order(self) -> tuple[int, int]:
        """The key for comparing two values."""
        return self.term, self.epoch

    def end(self, claim: "Writers", me: int) -> bool:
        """Return whether this value ends the right of incarnation `me`, which it has by its
        `claim`.
        """
        return self.order > claim.order and not (self.term == claim.term and me in self.members)


def writers_of(record: OwnerRecord, term: int = 0) -> Writers:
    """Return the writers by an owner record: all incarnations that run, or may soon be
    told to run.
    """
    members = {number for number in (record.owner, record.next, record.standby) if number is not None}
    return Writers(term=term, epoch=record.epoch, members=tuple(sorted(members)))


def disagrees(heard: Writers, mine: Writers) -> bool:
    """Return whether the topic has a value that contradicts ZooKeeper's data.

    `mine` copies the present owner record. ZooKeeper cannot have had a value of the same or a
    higher order before.
    """
    return heard != mine and heard.order >= mine.order


def claim(heard: Writers | None, record: OwnerRecord, *, term: int | None, fresh: bool) -> Writers | None:
    """Return the value with which a run may begin; None if the run first has to read ZooKeeper
    again.

    `heard` is the topic's value, and `term` the term of the run's last claim. `fresh` tells whether
    `record` was read from ZooKeeper after `heard` was read.

    If `fresh`, a higher epoch in the topic comes from a lost ZooKeeper tree, because each writer of
    the topic reads its record in ZooKeeper first. If not, no run may rely on a higher value, even
    if the value names the run's number: the number may belong to an incarnation of another tree.
    """
    if heard is None:
        return writers_of(record, term or 0)
    mine, known = writers_of(record, heard.term), fresh or (term or 0) == heard.term
    if not disagrees(heard, mine):
        return mine if known else None
    return writers_of(record, heard.term + 1) if fresh else None
