"""Several sinks of one tier: each gets every record (decision 109).

Everything but the name and the columns is asked of each of the `members`. `sluice.sinks.ledger`
writes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sluice.api.declarations import DeclarationError
from sluice.api.sink import Sink


@dataclass(frozen=True, init=False)
class Sinks(Sink):
    """Several sinks of one tier, each with every record of the tier.

    The ledger counts the rows of the first one, and names the tier's output after it.
    """

    each: tuple[Sink, ...]

    def __init__(self, *each: Sink) -> None:
        """Raise DeclarationError for sinks that one tier cannot write together."""
        object.__setattr__(self, "each", each)
        names = ", ".join(sink.name for sink in each)
        if problems := [f"Sinks({names}): {problem}" for problem in _problems(each)]:
            raise DeclarationError("\n".join(problems))
        columns: dict[str, str] = {}
        for sink in each:
            columns |= sink.columns | columns
        super().__init__(each[0].name, columns)

    @property
    def members(self) -> tuple[Sink, ...]:
        return self.each


def _problems(sinks: tuple[Sink, ...]) -> Iterator[str]:
    """Return why one tier cannot write these sinks together, and what to write instead."""
    if not sinks:
        yield "it has no sink; name two or more: Sinks(Once(…), KafkaTopic(…))"
    for sink in sinks:
        if isinstance(sink, Sinks):
            yield f"{sink.name} is itself several sinks; name each of them here"
        if sink.replaces:
            yield (
                f"{sink.name} keeps the results of a tier with state, which writes one sink; give that tier "
                "an output stream, and let another tier read the stream and write the other sinks"
            )
    services = [sink.name for sink in sinks if not (sink.transactional or sink.exactly_once)]
    if len(services) > 1:
        yield (
            f"{' and '.join(services)} would get records again whenever one of them is away; "
            "keep one of them, and let another tier with the same input write the other"
        )
    for name in _repeated(sink.name for sink in sinks):
        yield f'two sinks have the name "{name}"; give each its own name'
    for folder in _repeated(folder for sink in sinks for folder in sink.folders):
        yield (
            f'two sinks write files into the folder "{folder}", and files of one would replace files of '
            "the other; give each its own folder"
        )


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]
