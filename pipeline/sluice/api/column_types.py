"""The columns of streams and tables: how their text is read, and which types exist. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

ALIASES = {
    "int": "integer",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}
"""Spark's aliases of types → the names of the types."""
_OF_SPARK = """
array bigint binary boolean char character date decimal double float integer interval map smallint
string struct time timestamp timestamp_ltz timestamp_ntz tinyint variant varchar void
"""
_OF_POSTGRESQL = """
bigint bigserial bit bool boolean box bpchar bytea char character cidr circle date datemultirange
daterange dec decimal double float float4 float8 inet int int2 int4 int4multirange int4range int8
int8multirange int8range integer interval json jsonb jsonpath line lseg macaddr macaddr8 money name
national nchar numeric nummultirange numrange oid path pg_lsn point polygon real serial serial2
serial4 serial8 smallint smallserial text time timestamp timestamptz timetz tsmultirange tsquery
tsrange tstzmultirange tstzrange tsvector uuid varbit varchar xid8 xml
"""
_OF_EXTENSIONS = """
citext cube ean13 geography geometry halfvec hstore isbn isbn13 ismn issn lquery ltree ltxtquery
raster seg sparsevec upc vector
"""
STREAM_TYPES = frozenset({*_OF_SPARK.split(), *ALIASES})
"""The first words of Spark's types."""
TABLE_TYPES = frozenset({*_OF_POSTGRESQL.split(), *_OF_EXTENSIONS.split()})
"""The first words of PostgreSQL's types, and the types of usual extensions."""
CLOSE = 0.8
"""How alike a word is to the type that was meant."""
OPENS, CLOSES = "<(", ">)"
NAMED = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\s:`]+))(?:\s*:\s*|\s+)(?P<kind>\S.*?)\s*", re.DOTALL
)
SUFFIX = re.compile(r"\s+(not\s+null|comment\s+(['\"]).*\2)\s*$", re.IGNORECASE | re.DOTALL)
"""Text after a type that is not part of the type."""
WORD = re.compile(r"\s*(?P<word>[A-Za-z_]\w*)\s*(?:<(?P<inner>.*)>)?", re.DOTALL)
"""The first word of a type, and what stands between its angle brackets."""


def columns(text: str) -> dict[str, str]:
    """Parse columns that are written as SQL, such as `id string, at bigint`: name → type.

    Raise ValueError if a part is not a name and a type.
    """
    kinds: dict[str, str] = {}
    for part in _parts(text):
        named = NAMED.fullmatch(part)
        if named is None:
            message = (
                f"columns {text!r}: {part.strip()!r} is not a name and a type; "
                "write columns like `id string, at bigint`"
            )
            raise ValueError(message)
        kinds[named["quoted"] or named["plain"]] = _kind(named["kind"])
    return kinds


def unknown_in_stream(text: str) -> Iterator[str]:
    """Yield a sentence for each type in the columns of a stream that Spark does not have."""
    for part in _parts(text):
        named = NAMED.fullmatch(part)
        if named is None:
            continue
        name = named["quoted"] or named["plain"]
        for word in _words(named["kind"]):
            if word.lower() not in STREAM_TYPES:
                near = get_close_matches(word.lower(), STREAM_TYPES, 1, CLOSE)
                advice = f"write {near[0]}" if near else f"known types: {', '.join(sorted(STREAM_TYPES))}"
                yield f'the column "{name}" has the type {word}, which does not exist; {advice}'


def unknown_in_table(kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each type in the columns of a table that looks like a typing error.

    A database may have types of its own, so another unknown word is left to PostgreSQL. A type with
    its schema, such as `public.mood`, is never refused.
    """
    for name, kind in kinds.items():
        typed = WORD.match(kind)
        word = "" if typed is None else typed["word"].lower()
        if typed is None or word in TABLE_TYPES or kind[typed.end("word") :].startswith("."):
            continue
        if near := get_close_matches(word, TABLE_TYPES, 1, CLOSE):
            yield (
                f'the column "{name}" has the type {typed["word"]}, which does not exist; write {near[0]}, '
                f"or for a type of your own its schema, too, such as public.{word}"
            )


def _words(kind: str) -> Iterator[str]:
    """Yield the first word of a type, and those of the types within it."""
    typed = WORD.match(kind)
    if typed is None:
        return
    yield typed["word"]
    inner = typed["inner"]
    if inner is None:
        return
    for part in _parts(inner):
        named = NAMED.fullmatch(part) if typed["word"].lower() == "struct" else None
        yield from _words(part if named is None else named["kind"])


def _kind(text: str) -> str:
    while (shorter := SUFFIX.sub("", text)) != text:
        text = shorter
    return re.sub(r"[a-z]+", lambda word: ALIASES.get(word[0], word[0]), re.sub(r"\s+", "", text.lower()))


def _parts(text: str) -> Iterable[str]:
    """Split at the commas outside brackets and quotes."""
    depth, begin, quote = 0, 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in OPENS:
            depth += 1
        elif letter in CLOSES:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]
