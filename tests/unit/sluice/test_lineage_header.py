"""The lineage of a record in one header, or in the five headers of former versions."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.lineage_header import HEADER, WORDS, arriving, headers, texts

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
NUMBERS = st.integers(0, 10**12).map(str)
PLACES = st.builds("{}:{}".format, NUMBERS, NUMBERS)
ORIGINS = st.one_of(
    PLACES,
    st.builds("{}:{}".format, PLACES, NUMBERS),
    st.builds("{}/{}".format, NAMES, PLACES),
    st.builds("{}&{}".format, PLACES, NAMES),
)
PATHS = st.one_of(
    NUMBERS,
    st.builds("{}/{}:{}".format, NUMBERS, NAMES, NUMBERS),
    st.builds("{}/again:{}".format, NUMBERS, ORIGINS),
)
LINEAGES = st.fixed_dictionaries(
    {
        "origin": ORIGINS,
        "path": PATHS,
        "from": st.builds("{}/{}".format, NAMES, PLACES),
        "by": st.builds("{}/{}".format, NAMES, NUMBERS),
        "t0": NUMBERS,
    }
)


@given(LINEAGES)
def test_both_forms_have_the_same_words(words: dict[str, str]) -> None:
    packed, former = headers(words, packed=True), headers(words, packed=False)
    assert (set(packed), set(former)) == ({HEADER}, set(WORDS))
    assert texts(packed.items()) == texts(former.items()) == words


@given(LINEAGES, st.booleans())
def test_a_new_arrival_changes_nothing_else(words: dict[str, str], packed: bool) -> None:
    old = headers(words, packed=packed) | {"acked": b"5"}
    new = arriving(old, 7)
    assert set(new) == set(old)
    assert texts(new.items()) == words | {"t0": "7", "acked": "5"}


def test_other_headers_and_later_words_do_no_harm() -> None:
    found = texts([("acked", b"5"), (HEADER, b"0:1 0 hits/0:1 entry/3 9 later"), ("empty", None)])
    assert found == {
        "acked": "5",
        "origin": "0:1",
        "path": "0",
        "from": "hits/0:1",
        "by": "entry/3",
        "t0": "9",
    }


def test_a_record_without_headers_has_no_lineage() -> None:
    assert texts(None) == {}
