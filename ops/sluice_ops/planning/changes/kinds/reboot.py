"""Drain a host, reboot it, and return it."""

from sluice_ops.model.change import Step
from sluice_ops.planning.changes.kinds.drain import Drain


class Reboot(Drain):
    name = "reboot"
    summary = "Drain, reboot, check and return a host while records flow."
    details = (
        "The host's agent runs the site's reboot command, but only after the handovers are verified. The "
        "host returns only after its agent has found it sound, and a worker has processed records there."
    )
    example = "sluice reboot h2"
    steps = (*Drain.steps, Step.REBOOT, Step.HEALTH, Step.CANARY, Step.RETURN)
    runbook = "reboot_host"
    proves_host = True
    unpredicted = "how long the host takes to boot, and its canary to process records"


KIND = Reboot()
