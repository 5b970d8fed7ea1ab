"""The lineage of a record in Kafka's headers. Pure; `sluice.records` has the same as Spark columns.

One header `lineage` has five words, with a space between two of them:

    0:17 0/3 hits/3:9 enrich/4 1764450000123

Former versions wrote a header for each word (decision 98). No word contains a space.
"""

from collections.abc import Iterable, Mapping

HEADER = "lineage"
WORDS = ("origin", "path", "from", "by", "t0")
"""The words in their order. A later version may add words at the end."""


def texts(headers: Iterable[tuple[str, bytes | None]] | None) -> dict[str, str]:
    """Return the texts of a record's headers by name, and the words of its lineage by theirs."""
    by_name = {key: value.decode(errors="replace") for key, value in headers or () if value is not None}
    packed = by_name.pop(HEADER, None)
    return by_name if packed is None else by_name | dict(zip(WORDS, packed.split(" "), strict=False))


def headers(words: Mapping[str, str], *, packed: bool) -> dict[str, bytes]:
    """Return the headers that have these words: one header, or the five of former versions."""
    if packed:
        return {HEADER: " ".join(words[name] for name in WORDS).encode()}
    return {name: words[name].encode() for name in WORDS}


def arriving(old: Mapping[str, bytes], at: int) -> dict[str, bytes]:
    """Return a record's headers with another time of arrival (epoch ms), in the same form."""
    own = {name: value for name, value in old.items() if name != HEADER and name not in WORDS}
    words = texts(old.items()) | {"t0": str(at)}
    return headers(words, packed=HEADER in old) | own
