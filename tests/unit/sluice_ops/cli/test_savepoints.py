"""`sluice savepoint`, `savepoints` and `start --from` pass on what was typed."""

import pytest

from tests.unit.sluice_ops.cli.test_serving import become

__all__ = ["become"]


@pytest.mark.parametrize(
    ("typed", "passed"),
    [
        (("savepoint", "by-user"), ("take", "by-user")),
        (("savepoint", "by-user", "before-fix", "--json"), ("take", "by-user", "before-fix", "--json")),
        (("savepoint", "by-user", "before-fix", "--remove"), ("remove", "by-user", "before-fix")),
        (("savepoints", "--json"), ("list", "--json")),
        (("start", "by-user", "--from", "before-fix"), ("start", "by-user", "before-fix")),
        (
            ("start", "by-user", "--from", "a", "--yes", "--dry-run", "--json"),
            ("start", "by-user", "a", "--yes", "--dry-run", "--json"),
        ),
        (("savepoint", "by-user", "--remove"), ()),
        (("start", "by-user", "--yes"), ()),
    ],
)
def test_typed_words_reach_the_command(become, typed: tuple[str, ...], passed: tuple[str, ...]) -> None:
    assert become(*typed)[3:] == list(passed)
