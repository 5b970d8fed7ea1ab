"""Division of a link by weights, and the commands for `tc`."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.agent.limits import traffic_control
from sluice_ops.agent.limits.traffic_control import (
    LEAST_OTHERS,
    LINK,
    OTHERS,
    NotDividedError,
    class_of,
    classes,
    divide,
    free_class,
    priority,
    shares,
    tc_commands,
    with_others,
)
from sluice_ops.model.resources import Link

LINE = Link(interface="eth7", mbit=1000)
NUMBERS = st.integers(2, 0xFFF).map(lambda number: number * traffic_control.STEP)
WEIGHTS = st.dictionaries(NUMBERS, st.integers(1, 1000), max_size=500)


@given(WEIGHTS, st.integers(10, 400_000))
def test_each_class_has_its_proportion_and_all_fit_into_the_link(weights: dict[int, int], mbit: int) -> None:
    weights_with_others = with_others(weights)
    divided = shares(Link(interface="eth7", mbit=mbit), weights_with_others)
    bits, total = mbit * 1_000_000, sum(weights_with_others.values())
    assert bits - len(weights_with_others) < sum(part.rate for part in divided.values()) <= bits
    for class_id, weight in weights_with_others.items():
        assert 0 <= bits * weight / total - divided[class_id].rate < 1.01
        assert divided[class_id].rate >= 8, "tc accepts no rate below a byte a second"
        assert divided[class_id].quantum >= traffic_control.LEAST_BYTES


@given(WEIGHTS)
def test_other_traffic_weighs_as_much_as_a_default_unit_or_a_tenth_of_all(weights: dict[int, int]) -> None:
    assert with_others(weights)[OTHERS] >= max(LEAST_OTHERS, sum(weights.values()) // 10)


@given(st.frozensets(NUMBERS, max_size=100))
def test_a_new_class_is_unique_and_known_by_its_priority(used: frozenset[int]) -> None:
    new_class = free_class(used)
    assert new_class not in {*used, LINK, OTHERS}
    assert new_class % traffic_control.STEP == 0
    assert class_of(priority(new_class)) == new_class


@pytest.mark.parametrize("carried", [0, 6, priority(OTHERS), 0x10020])
def test_a_priority_without_a_units_class_gives_none(carried: int) -> None:
    assert class_of(carried) is None


def test_too_many_classes_are_refused() -> None:
    with pytest.raises(NotDividedError, match="there are no more class numbers"):
        free_class(range(0, 0x10000, traffic_control.STEP))


def test_a_new_division_creates_queue_and_classes() -> None:
    shape = "ceil 1000000000bit burst 125000b cburst 125000b"
    assert list(tc_commands(LINE, {0x20: 300, 0x30: 100}, None)) == [
        "qdisc replace dev eth7 root handle 511c: htb default 10",
        f"class replace dev eth7 parent 511c: classid 511c:1 htb rate 1000000000bit {shape} quantum 16384",
        f"class replace dev eth7 parent 511c:1 classid 511c:10 htb rate 200000000bit {shape} quantum 250000",
        f"class replace dev eth7 parent 511c:1 classid 511c:20 htb rate 600000000bit {shape} quantum 750000",
        f"class replace dev eth7 parent 511c:1 classid 511c:30 htb rate 200000000bit {shape} quantum 250000",
    ]


def test_existing_classes_are_changed_and_unused_ones_deleted() -> None:
    commands = list(tc_commands(LINE, {0x20: 300}, frozenset({0x1, 0x10, 0x20, 0x30})))
    assert not any(line.startswith("qdisc") for line in commands), "waiting packets keep waiting"
    assert [line for line in commands if " del " in line] == ["class del dev eth7 classid 511c:30"]


@pytest.fixture
def tc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake `tc` that prints the test's files and records its arguments and input."""
    script = tmp_path / "tc"
    script.write_text(
        f'#!/bin/sh\ncase "$2" in show) exec cat {tmp_path}/$1;; '
        f'esac\necho "$@" >> {tmp_path}/calls\ncat >> {tmp_path}/calls\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "class").touch()
    return tmp_path


def test_an_interface_without_a_queue_of_its_own_gets_ours(tc: Path) -> None:
    (tc / "qdisc").write_text("qdisc mq 0: root \nqdisc fq_codel 0: parent :1 limit 10240p\n")
    assert classes("eth7") is None
    divide(LINE, {0x20: 300})
    assert (
        (tc / "calls")
        .read_text()
        .startswith("-batch -\nqdisc replace dev eth7 root handle 511c: htb default 10\nclass replace")
    )
    traffic_control.restore_queue("eth7")
    assert "qdisc del" not in (tc / "calls").read_text()


def test_our_queue_is_recognized_and_removed(tc: Path) -> None:
    (tc / "qdisc").write_text("qdisc htb 511c: root refcnt 2 r2q 10 default 0x10 direct_packets_stat 0\n")
    (tc / "class").write_text(
        "class htb 511c:20 parent 511c:1 prio 0 rate 60Mbit\nclass htb 511c:1 root rate 100Mbit\n"
    )
    assert classes("eth7") == {0x1, 0x20}
    traffic_control.restore_queue("eth7")
    assert (tc / "calls").read_text() == "qdisc del dev eth7 root\n"


def test_a_queue_of_another_owner_is_left_alone(tc: Path) -> None:
    (tc / "qdisc").write_text("qdisc htb 1: root refcnt 2 r2q 10 default 0x10\n")
    with pytest.raises(NotDividedError, match=r"\(htb 1:\), .* remove the queue: tc qdisc del dev eth7 root"):
        divide(LINE, {})
    assert not (tc / "calls").exists()


@pytest.mark.usefixtures("tc")
def test_a_refusal_of_tc_is_reported() -> None:
    with pytest.raises(NotDividedError, match=r"`tc qdisc show dev eth7` failed: .*No such file"):
        classes("eth7")


def test_a_missing_tc_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(traffic_control, "SBIN", str(tmp_path))
    with pytest.raises(NotDividedError, match="command `tc` is not installed: install iproute2"):
        classes("eth7")
