"""The comparison's pure parts: records of templates, waits, the search of a rate, ratios."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexmark import LATENESS
from nexmark.events import LONGEST_MS, event
from sluice.records.state_inputs import APART
from tests.bench.figures import CLOSE, Rung, climbed, highest, keeps_up, waits
from tests.bench.records import from_templates, read, written
from tests.bench.short import checks, pools
from tests.bench.short.ratios import ratios
from tests.bench.short.shares import bound, part
from tests.bench.short.tiers import QUERIES
from tests.bench.short.workloads import SQL, TABLES

MILLISECONDS = {"p50": 10.0, "p99": 50.0}


def test_a_record_waits_until_the_output_counts_it() -> None:
    assert waits([10.0, 10.1, 10.2], [(10.05, 0), (10.15, 2), (10.25, 2), (10.5, 3)]) == pytest.approx(
        [0.15, 0.05, 0.3]
    )


def test_records_that_are_not_out_have_no_wait() -> None:
    assert len(waits([10.0, 10.1, 10.2], [(10.15, 2)])) == 2
    assert waits([10.0], []) == []


@given(st.lists(st.floats(0, 5), min_size=1, max_size=50))
def test_looking_all_the_time_gives_the_waits_of_an_ordered_output(delays: list[float]) -> None:
    dues = [100.0 + number for number in range(len(delays))]
    outs = sorted(due + delay for due, delay in zip(dues, delays, strict=True))
    found = waits(dues, [(at, number) for number, at in enumerate(outs, start=1)])
    assert found == pytest.approx([out - due for out, due in zip(outs, dues, strict=True)])


def test_a_wait_that_grows_to_the_end_is_not_sustained() -> None:
    steady = [0.05] * 100
    assert keeps_up(steady, 10, 1.0)
    assert keeps_up([2.0, 0.1] * 50, 10, 1.0)
    assert not keeps_up([number / 20 for number in range(100)], 10, 1.0)


@given(st.integers(1, 5_000), st.integers(1, 500_000))
def test_the_search_ends_close_below_the_limit(first: int, limit: int) -> None:
    rungs = climbed(lambda rate: Rung(rate, rate <= limit, min(rate, limit)), first, lambda: False)
    found = highest(rungs)
    assert found <= limit
    assert limit <= found * CLOSE + 2
    assert len(rungs) < 40


def test_the_throughput_of_a_rate_that_is_too_high_is_tried_next() -> None:
    rungs = climbed(lambda rate: Rung(rate, rate <= 27_000, 27_000.0), 10_000, lambda: False)
    assert [rung.rate for rung in rungs][:4] == [10_000, 20_000, 40_000, 27_000]


def test_the_search_ends_when_its_time_is_over() -> None:
    rungs = climbed(lambda rate: Rung(rate, True, rate), 10, iter([False, False, True]).__next__)
    assert [rung.rate for rung in rungs] == [10, 20, 40]
    assert highest([Rung(10, False, 5.0)]) == 0


def test_a_template_makes_the_event_of_the_first_turn() -> None:
    made = from_templates(pools.events())
    for number in (0, 1, 4, 77):
        assert json.loads(made(number, 1_700_000_000_123_000_000)) == event(
            1, pools.FIRST_EVENT + number, 1_700_000_000_123
        )


def test_later_turns_differ_in_ids_and_times_only() -> None:
    made = read(written(pools.events()))
    first, later = (json.loads(made(number, 0)) for number in (2, 2 + pools.SIZE))
    assert {name: later[name] - first[name] for name in first if later[name] != first[name]} == {
        "id": 300,
        "seller": 100,
    }
    hit = json.loads(read(written(pools.hits()))(7 + 3 * pools.SIZE, 5_000_000))
    assert (hit["id"], hit["at"]) == (f"hit-{7 + 3 * pools.SIZE}", 5)


def figures(highest_rate: int | None, processor: int, *, at_5000: bool = True, by: float = 1.0) -> Any:
    milliseconds = {share: value * by for share, value in MILLISECONDS.items()}
    return {
        "rate": {"highest": highest_rate},
        "latency": {
            "1000": {"milliseconds": milliseconds, "processor_seconds_per_million": 3 * processor},
            "5000": {
                "milliseconds": milliseconds if at_5000 else None,
                "processor_seconds_per_million": processor,
            },
        },
    }


def test_each_ratio_is_sluices_figure_by_flinks() -> None:
    sides = {"sluice": figures(10_000, 300, by=2.0), "flink": figures(40_000, 100)}
    assert ratios({"a": sides}) == {
        "a": {
            "rate": 0.25,
            "processor": 3.0,
            "p50": 2.0,
            "p99": 2.0,
            "processor_at": 5000,
            "latency_at": 1000,
        }
    }


def test_processor_time_is_compared_at_a_rate_that_both_sustain() -> None:
    sides = {"sluice": figures(2_000, 300, at_5000=False), "flink": figures(None, 100)}
    assert ratios({"d": sides})["d"] == {
        "rate": None,
        "processor": 3.0,
        "p50": 1.0,
        "p99": 1.0,
        "processor_at": 1000,
        "latency_at": 1000,
    }


def test_a_system_that_failed_has_no_ratio() -> None:
    failed = {"latency": {}, "rate": {"highest": None}}
    found = ratios({"c": {"sluice": figures(2_000, 300), "flink": failed}})["c"]
    assert {found[name] for name in ("rate", "processor", "p50", "p99")} == {None}


def test_the_bound_names_the_processors_only_if_they_are_busy() -> None:
    assert bound({"all": 1.95, "Kafka": 0.3, "executors": 1.2}, 2) == (
        "processors: 1.95 of 2 are busy (executors 1.20, Kafka 0.30)"
    )
    assert bound({"all": 0.9, "TaskManager": 0.5}, 2).startswith("not the processors: 0.90 of 2")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["java", "-Xmx1g", "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"], "TaskManager"),
        (["java", "kafka.Kafka", "server.properties"], "Kafka"),
        (["python", "-m", "sluice.driver", "first"], "drivers' Python"),
        (["zookeeper"], "others"),
    ],
)
def test_a_command_line_belongs_to_a_part(command: list[str], name: str) -> None:
    assert part(command) == name


def test_both_systems_answer_and_check_the_same_queries() -> None:
    statements = (SQL / "nexmark.sql").read_text()
    for query in QUERIES:
        assert f"INSERT INTO {query}\n" in statements or f"INSERT INTO {query} " in statements
        table = f"flink_{checks.TABLES[query].name}"
        assert f"'table-name' = '{table}'" in statements
        assert f"CREATE TABLE {table} " in TABLES
    assert statements.count("INSERT INTO") == len(QUERIES) == len(checks.TABLES)


def test_after_later_events_the_bounded_input_is_final() -> None:
    bounded = checks.bounded_events()
    begin = bounded[0]["at"]
    final = bounded[-1]["at"] + LONGEST_MS + (LATENESS + APART) * 1000
    for one in [each for turn in range(100) for each in checks.later_events(turn, begin)]:
        assert one["at"] > final
        ids = {name: one[name] for name in ("id", "seller", "auction") if name in one}
        assert min(ids.values()) >= checks.CHECKED_IDS
    assert max(one.get("id", 0) for one in bounded) < checks.CHECKED_IDS
    assert pools.FIRST_EVENT > checks.FIRST_LATER


def test_answers_are_awaited_while_later_events_come(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded, turns = checks.bounded_events(), []

    def rows_of(_postgres: str, _prefix: str, name: str) -> checks.Rows:
        return checks.expected(name, bounded) if name != "q4" or len(turns) > 1 else []

    monkeypatch.setattr(checks, "rows_of", rows_of)
    monkeypatch.setattr(checks, "LOOK_SECONDS", 0.0)
    assert checks.answers("", "", bounded, lambda: turns.append(1)) is None
    assert len(turns) == 2
    monkeypatch.setattr(checks, "WAIT_SECONDS", 0.5)
    turns = []
    assert checks.answers("", "", bounded, lambda: None) == "other rows than DuckDB: q4 (5 rows expected)"
