"""Burst hosts: EC2 instances that the CLI and runbooks launch and terminate.

Start with `ec2`. `places` says where instances may be launched, `errors` what follows from each
error of EC2. `burst_hosts` tells how many instances a burst needs, and which tiers use them.
"""
