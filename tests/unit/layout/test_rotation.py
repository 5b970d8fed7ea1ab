"""The rotation of the long tests: every test is in one part, and no part takes too long."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.rotation import PART_SECONDS, PARTS, divide, key_of, recorded_seconds

ROOT = Path(__file__).resolve().parents[3]
KEYS = st.text("abc", min_size=1, max_size=4)


@given(st.dictionaries(KEYS, st.floats(0, 700), max_size=30), st.integers(1, 9))
def test_every_key_is_in_exactly_one_part(seconds: dict[str, float], parts: int) -> None:
    division = divide(seconds, parts)
    assert len(division) == parts
    assert sorted(key for keys in division for key in keys) == sorted(seconds)
    totals = [sum(seconds[key] for key in keys) for keys in division]
    assert max(totals) - min(totals) <= max(seconds.values(), default=0) + 1e-6


def test_no_part_takes_longer_than_continuous_integration_has() -> None:
    seconds = recorded_seconds()
    for keys in divide(seconds):
        assert sum(seconds[key] for key in keys) <= PART_SECONDS, keys


def test_the_pages_say_how_many_parts_there_are() -> None:
    files = ("CONTRIBUTING.md", ".ci/run")
    contributing, ci = (" ".join((ROOT / file).read_text().split()) for file in files)
    assert f"one of {PARTS} parts of the long tests" in contributing
    assert f"at most {PART_SECONDS // 60} minutes" in contributing
    assert f"one of {PARTS} parts of the long tests" in ci.replace("# ", "")


def test_a_test_belongs_to_its_most_specific_key() -> None:
    keys = ["tests/a.py", "tests/a.py::test_x", "tests/a.py::test_x[2]", "tests/ab.py"]
    assert key_of("tests/a.py::test_x[2]", keys) == "tests/a.py::test_x[2]"
    assert key_of("tests/a.py::test_x[3]", keys) == "tests/a.py::test_x"
    assert key_of("tests/a.py::test_xy", keys) == "tests/a.py"
    assert key_of("tests/abc.py::test_x", keys) is None


def test_every_key_names_existing_tests() -> None:
    for key in recorded_seconds():
        file, _, test = key.partition("::")
        text = (ROOT / file).read_text()
        assert "mark.long" in text, key
        assert not test or re.search(rf"^def {re.escape(test.partition('[')[0])}\(", text, re.MULTILINE), key
