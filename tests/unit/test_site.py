"""The site file: what cannot be used is refused, with the key and the way out."""

from pathlib import Path

import pytest

from sluice_ops.site.site_file import SiteError, load, nowhere

HOST = "{name: h1, address: 127.0.1.1, capacity: {cpu: 1, memory: 1g}}"

LINKED = f"{HOST[:-1]}, network: {{interface: eth0, mbit: 1000}}}}"


def refused(path: Path) -> str:
    with pytest.raises(SiteError) as told:
        load(path)
    return str(told.value).removeprefix(f"{path}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"pipeline: p\nhosts: [{HOST}, {HOST}]",
            ": hosts: h1 is there more than once; give each host a name of its own",
        ),
        (
            f"pipeline: p\nhosts: [{HOST}]\nreboot: []",
            ": reboot: there is nothing in it: write one at least, or leave the key out",
        ),
        *(
            (
                f"pipeline: p\nhosts: []\nshifts: {{night: {{schedule: '{schedule}'}}}}",
                f": shifts.night.schedule: {schedule!r} is no cron schedule, or never comes: write five fields like ",
            )
            for schedule in ("", "22:00", "0 25 * * *", "0 22 * *", "0 22 * * * *", "@daily", "0 0 31 2 *")
        ),
        (
            "pipeline: p\nhosts: []\nlocality: {t: 'racks:r1'}",
            ": locality.t: 'racks:r1' is no place: write a host's name",
        ),
        (
            "pipeline: p\nhosts: []\ndedicated: {'label:': [t]}",
            ": dedicated.label:: 'label:' is no place: write a host's name",
        ),
        *(
            (
                f"pipeline: p\nhosts: [{HOST[:-1]}, network: {{interface: '{interface}', mbit: 1000}}}}]",
                f": hosts.0.network.interface: {interface!r} is no interface that units send on: write its name as `ip -br link` shows it",
            )
            for interface in ("", "lo", "eth0:1", "a b", "sixteen-and-more")
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, network: {{interface: eth0, mbit: 1}}}}]",
            ": hosts.0.network.mbit: Input should be greater than or equal to 10; it is 1",
        ),
        (
            f"pipeline: p\nhosts: [{LINKED}, {LINKED.replace('h1', 'h2')}]",
            ": hosts: eth0 at 127.0.1.1 is the network of more than one host; leave the key out of all but one of them",
        ),
        *(
            (f"pipeline: p\nhosts: []\nshares: {{t: {said}}}", f": shares.t: its {why}; lower ")
            for said, why in (
                ("{target: 20, maximum: 16}", "target of 20 is above its maximum of 16"),
                ("{minimum: 3, target: 2}", "minimum of 3 is above its target of 2"),
                ("{minimum: 3, maximum: 2}", "minimum of 3 is above its maximum of 2"),
                ("{minimum: 20.5%, target: 20.2%}", "minimum of 20.5% is above its target of 20.2%"),
            )
        ),
        (
            "pipeline: p\nhosts: []\nshifts: {night: {schedule: '0 22 * * *', shares: {t: {minimum: 6, maximum: 2}}}}",
            ": shifts.night.shares.t: its minimum of 6 is above its maximum of 2; lower minimum, or raise maximum",
        ),
        (
            "pipeline: p\nhosts: []\nshares: {t: {minimun: 2}}",
            ": shares.t.minimun: there is no such key, did you mean minimum? known here: maximum, minimum, target",
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, colour: red}}]",
            ": hosts.0.colour: there is no such key; known here: address, capacity, cores, labels, name, network, rack, zone",
        ),
        ("pipeline: p\nhosts: []\npartitions: !!int four", ": not YAML: 'four' cannot be read: "),
        (
            "pipeline: p\nhosts: []\nrepair_seconds: 2020-99-99",
            ": not YAML: '2020-99-99' cannot be read: month must be in 1..12",
        ),
        (
            "pipeline: p\nhosts: []\nshifts: {night: {schedule: 0 22 * * *, timezone: Europe}}",
            ": shifts.night.timezone: 'Europe' is no time zone",
        ),
        ("pipeline: ''\nhosts: []", ": pipeline: "),
        (
            "pipeline: p\nhosts: []\npartitions: 999999999",
            ": partitions: Input should be less than or equal to 1000; it is 999999999",
        ),
        (
            "pipeline: p\nhosts: []\nreboot: systemctl",
            ": reboot: write a list, such as [a, b]; it is 'systemctl'",
        ),
        ("pipeline: p\nhosts: []\nalerts: {smtp: mail}", ": alerts.smtp: "),
        ("pipeline: p\nhosts: []\nalerts: {webhook: 'ftp://x'}", ": alerts.webhook: "),
        ("pipeline: p\nhosts: []\nalerts: {webhook: 'conn:a b'}", ": alerts.webhook: "),
        ("pipeline: p\nhosts: []\nalerts: {smtp: 'conn:'}", ": alerts.smtp: "),
        (
            f"pipeline: p\nhosts: [{HOST.replace('127.0.1.1', 'no address!')}]",
            ": hosts.0.address: 'no address!' is no address: write the one",
        ),
        (
            f"pipeline: p\nhosts: [{HOST.replace('h1', 'H 1')}]",
            ": hosts.0.name: 'H 1' is no name of a host: write small letters",
        ),
        (
            f"pipeline: p\nhosts: [{HOST.replace('1g', 'true')}]",
            ": hosts.0.capacity.memory: True is not a size",
        ),
        (
            f"pipeline: p\nhosts: [{HOST[:-1]}, cores: mine}}]",
            ": hosts.0.cores: Input should be 'shared' or 'own'",
        ),
        ("- pipeline", ": expected keys such as `pipeline:` and `hosts:`, found list"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert refused(path).startswith(why)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("{target: 20}", (1, 20, 20)),
        ("{minimum: 3}", (3, 3, 16)),
        ("{target: 0, maximum: 2}", (0, 0, 2)),
        ("{maximum: 0}", (0, 0, 0)),
        ("{target: 80%, maximum: 20}", (1, "80%", 20)),
        ("{}", (1, 1, 16)),
    ],
)
def test_what_a_share_does_not_say_gives_way_to_what_it_says(
    tmp_path: Path, said: str, meant: tuple[int | str, ...]
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\nshares: {{t: {said}}}")
    share = load(path).shares["t"]
    assert (share.minimum, share.target, share.maximum) == meant


@pytest.mark.parametrize("schedule", ["0 22 * * *", "*/5 8-18 * * mon-fri", "0 0 29 2 *"])
def test_a_schedule_that_comes_is_taken(tmp_path: Path, schedule: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        f"pipeline: p\nhosts: []\nshifts: {{night: {{schedule: '{schedule}', timezone: Europe/Bucharest}}}}"
    )
    assert load(path).shifts["night"].schedule == schedule


def test_a_place_where_no_host_is_is_said(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    there = "{name: h1, address: 127.0.1.1, rack: r1, labels: [gpu], capacity: {cpu: 1, memory: 1g}}"
    places = "locality: {t: 'rack:r1', u: 'rack:r2', v: h1}\ndedicated: {'label:gpu': [t], 'label:gpus': [t]}"
    path.write_text(f"pipeline: p\nhosts: [{there}]\n{places}")
    known = "they are at h1, label:gpu, rack:r1, zone:onprem"
    assert nowhere(load(path)) == [
        f"locality.u: no host of the site file is at rack:r2; {known}",
        f"dedicated: no host of the site file is at label:gpus; {known}",
    ]


def test_a_key_given_twice_is_refused_with_its_line_and_merges_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("pipeline: p\nhosts: []\nshares:\n  t: {target: 1}\n  u: {target: 1}\n  t: {target: 2}\n")
    assert refused(path) == ": line 6: t is said a second time (first in line 4); leave one of them out"
    merged = "t: &t {target: 2, maximum: 4}\n  u: &u {<<: *t, target: 3}\n  v: {<<: *u, target: 4}"
    path.write_text(f"pipeline: p\nhosts: []\nshares:\n  {merged}\n")
    assert [share.target for share in load(path).shares.values()] == [2, 3, 4]


@pytest.mark.parametrize(
    "said", ["alerts: {webhook: 7391}", "s3: {endpoint: 's3://me:7391@minio'}", "password: 7391"]
)
def test_what_may_be_secret_is_not_repeated(tmp_path: Path, said: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\n{said}")
    assert "7391" not in refused(path)


def test_what_is_no_text_or_cannot_be_read_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"pipeline: \xff\xfe")
    assert refused(path).startswith(": not YAML")
    assert " cannot be read by user " in refused(tmp_path)
    assert "there is no such file" in refused(tmp_path / "none.yaml")
