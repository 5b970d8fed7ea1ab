"""The description of a state leaves out the numbers that Spark assigns anew in each plan."""

import pytest

from sluice.checks.state_plans import without_numbers


@pytest.mark.parametrize(
    ("text", "aliases", "expected"),
    [
        ("who#12", {}, "who"),
        ("count(1) AS hits#31L", {}, "count(1)"),
        ("sum(id#7L) AS ids#33L", {}, "sum(id)"),
        (
            "window#20-T360000ms",
            {"20": "named_struct(start, time#3-T360000ms - 10)"},
            "named_struct(start, time - 10)",
        ),
        ("(id#1L = hit#2L)", {"2": "cast(x#9 as bigint)"}, "(id = cast(x as bigint))"),
        ("a#1", {"1": "b#2", "2": "c#3"}, "c"),
        ("Sum(who#1, id#2L)#40", {}, "Sum(who, id)"),
        ("loop#1", {"1": "loop#1"}, "loop"),
    ],
)
def test_numbers_are_replaced_by_names(text, aliases, expected):
    assert without_numbers(text, aliases) == expected
