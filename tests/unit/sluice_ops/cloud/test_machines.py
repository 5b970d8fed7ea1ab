import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.agent.__main__ import arguments_of
from sluice_ops.cloud.ec2 import user_data
from sluice_ops.cloud.instance import host_of
from sluice_ops.local.machines import Machines, cpu_share
from sluice_ops.model.resources import Capacity
from sluice_ops.site.ec2_config import Ec2Config
from sluice_ops.site.site_file import load
from tests.lab import ROOT

INSTANCES = [f"i-0123456789abcde{digit}" for digit in "0123456789"]


@given(st.lists(st.sets(st.sampled_from(INSTANCES)), max_size=12))
def test_every_running_instance_has_one_machine_and_its_own_address(observations: list[set[str]]) -> None:
    machines = Machines()
    for running in observations:
        before = {machine.instance: machine.address for machine in machines.machines}
        machines, ended = machines.following(running)
        now = {machine.instance: machine.address for machine in machines.machines}
        assert now.keys() == running
        assert len(set(now.values())) == len(now)
        assert {machine.instance for machine in ended} == before.keys() - running
        assert all(now[instance] == address for instance, address in before.items() if instance in now), (
            "an instance keeps its address"
        )


def test_machines_are_remembered_across_a_restart(tmp_path: Path) -> None:
    machines, _ = Machines().following(INSTANCES[:2])
    machines.write(tmp_path / "ec2" / "machines.json")
    assert Machines.read(tmp_path / "ec2" / "machines.json") == machines
    assert Machines.read(tmp_path / "none.json") == Machines()


CURL = """#!/bin/bash
case "$*" in
    "-sfX PUT -H X-aws-ec2-metadata-token-ttl-seconds: 300 http://169.254.169.254/latest/api/token") echo T;;
    "-sf -H X-aws-ec2-metadata-token: T http://169.254.169.254/latest/meta-data/instance-id")
        echo i-0a1b2c3d4e5f60718;;
    "-sf -H X-aws-ec2-metadata-token: T http://169.254.169.254/latest/meta-data/local-ipv4") echo 10.0.0.7;;
    *) exit 22;;
esac
"""


def test_user_data_starts_the_agent_under_the_instances_host_name(tmp_path: Path) -> None:
    started = tmp_path / "started"
    programs = {
        "curl": CURL,
        "systemd-run": f'#!/bin/bash\nprintf "%s\\n" "$@" > {started}\n',
        "boot": user_data(Ec2Config(capacity=Capacity(cpu=2, memory=4096))),
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    subprocess.run([tmp_path / "boot"], check=True, timeout=20, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    words = started.read_text().splitlines()
    assert words[:2] == ["--unit", "sluice-agent"]
    program = words.index("/opt/sluice/.venv/bin/python")
    assert words[program + 1 : program + 3] == ["-m", "sluice_ops.agent"]
    agent = arguments_of(words[program + 3 :])
    assert agent.host == host_of("i-0a1b2c3d4e5f60718") == "ec2-e5f60718"
    assert (agent.address, agent.zone, agent.metadata) == ("10.0.0.7", "ec2", "http://169.254.169.254")
    assert (agent.cpu, agent.memory) == (2, "4096m")


def test_hosts_promise_what_the_machine_they_share_has():
    site = load(ROOT / "site.yaml")
    assert cpu_share(site, 2) == 2 / 24
    assert cpu_share(site, 64) == 1.0
