"""Hosts that come and go: EC2, and the runner that plays its machines on one machine."""
