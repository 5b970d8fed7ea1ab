"""The next version, as the tests of a rolling upgrade make it of this one, can still be made: they themselves run seldom."""

import pytest

from tests.versions import EDITS, edited


@pytest.mark.parametrize("name", EDITS)
def test_what_the_next_version_changes_is_there(name: str) -> None:
    compile(edited(name), name, "exec")
