"""Steps run in parallel, in the order of their needs, and all end when one fails."""

import os
import signal
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.local.start.steps import Step, Timing, UnknownNeedError, check, run


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Draw steps that need only earlier ones, in any order."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 8)))]
    steps = [
        Step(
            name,
            lambda _halt: "done",
            tuple(draw(st.sets(st.sampled_from(names[:number])))) if number else (),
        )
        for number, name in enumerate(names)
    ]
    return draw(st.permutations(steps))


@settings(max_examples=40)
@given(graphs())
def test_every_step_runs_once_and_only_after_its_needs(steps: list[Step]) -> None:
    timings = {timing.name: timing for timing in run(steps, lambda _timing: None)}
    assert timings.keys() == {step.name for step in steps}
    for step in steps:
        assert all(timings[need].ended <= timings[step.name].began for need in step.needs)


def test_independent_steps_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=5)

    def meet(_halt: threading.Event) -> str:
        both.wait()
        return "met"

    assert [timing.said for timing in run([Step("a", meet), Step("b", meet)], lambda _timing: None)] == [
        "met",
        "met",
    ]


def test_the_first_failure_stops_the_other_steps_and_reaches_the_caller() -> None:
    stopped = threading.Event()

    def patient(halt: threading.Event) -> str:
        assert halt.wait(5)
        stopped.set()
        return "gave up"

    def broken(_halt: threading.Event) -> str:
        message = "no such disk"
        raise OSError(message)

    def never(_halt: threading.Event) -> str:
        pytest.fail("its need has failed")

    with pytest.raises(OSError, match="no such disk"):
        run(
            [Step("patient", patient), Step("broken", broken), Step("late", never, ("broken",))],
            lambda _timing: None,
        )
    assert stopped.is_set()


@pytest.mark.parametrize(
    "steps", [[Step("a", str, ("b",)), Step("b", str, ("a",))], [Step("a", str, ("nowhere",))]]
)
def test_steps_that_can_never_start_are_refused_by_name(steps: list[Step]) -> None:
    with pytest.raises(UnknownNeedError, match=r"a \(needs"):
        check(steps)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_steps_and_restores_the_handlers(number: signal.Signals) -> None:
    reported: list[str] = []
    stopped = threading.Event()
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def patient(halt: threading.Event) -> str:
        assert halt.wait(20)
        stopped.set()
        return "gave up"

    def report(timing: Timing) -> None:
        os.kill(os.getpid(), number)
        reported.append(timing.name)

    with pytest.raises(KeyboardInterrupt):
        run([Step("quick", lambda _halt: "done"), Step("patient", patient)], report)
    assert reported == ["quick"]
    assert stopped.is_set()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_each_step_is_reported_when_it_ends() -> None:
    reported: list[Timing] = []
    run([Step("a", lambda _halt: "x"), Step("b", lambda _halt: "y", ("a",))], reported.append)
    assert [(timing.name, timing.said) for timing in reported] == [("a", "x"), ("b", "y")]
