"""Supervisord's configuration, read by supervisord itself."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from supervisor.options import ServerOptions

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.service import Program, Service
from sluice_ops.local.start.supervisord import render
from sluice_ops.site.installation import PlatformError

PRINTABLE = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='"'), min_size=1, max_size=30
)


def service(program: Program) -> Service:
    return Service("thing", program, ready=lambda: None)


def read(layout: Layout, *services: Service) -> ServerOptions:
    path = layout.conf / "supervisord.conf"
    path.write_text(render(layout, services))
    options = ServerOptions()
    options.realize(["-c", str(path)], doc="")
    return options


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=PRINTABLE.filter(lambda value: value == value.strip("'")))
@example(value="it's in the middle")
def test_any_password_or_path_reaches_the_program_unchanged(layout: Layout, value: str) -> None:
    options = read(layout, service(Program(("/bin/true",), {"KEY": value})))
    assert options.process_group_configs[0].process_configs[0].environment["KEY"] == value


def test_a_program_is_restarted_forever_and_knows_its_home_and_its_name(layout: Layout) -> None:
    process = read(layout, service(Program(("/bin/true",)))).process_group_configs[0].process_configs[0]
    assert process.autostart is False
    assert process.autorestart is not False
    assert process.environment["SLUICE_HOME"] == str(layout.home)
    assert process.environment["SLUICE_SERVICE"] == "thing"
    assert process.killasgroup


def test_a_program_that_runs_once_is_not_restarted(layout: Layout) -> None:
    process = (
        read(layout, service(Program(("/bin/true",), once=True))).process_group_configs[0].process_configs[0]
    )
    assert process.autorestart is False


def test_a_folder_with_spaces_and_percent_signs_stays_one_word(layout: Layout) -> None:
    process = (
        read(layout, service(Program(("/bin/echo", "/srv/my %folder"), directory=Path("/"))))
        .process_group_configs[0]
        .process_configs[0]
    )
    assert process.command.split(" ", 1)[1] == '"/srv/my %folder"'


@pytest.mark.parametrize("value", ['a"b', "'", "'a", "a'"])
def test_a_quotation_mark_is_refused_with_the_name_of_the_setting(layout: Layout, value: str) -> None:
    with pytest.raises(PlatformError, match="thing: KEY contains a quotation mark"):
        render(layout, [service(Program(("/bin/true",), {"KEY": value}))])
