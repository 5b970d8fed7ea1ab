"""Burst hosts: EC2 instances that the CLI and runbooks launch and terminate.

Start with `ec2`. `launch_checks` refuses a launch that EC2 would refuse, `pools` says where
instances may be launched, and `errors` what follows from each error of EC2. `burst_hosts` tells how
many instances a burst needs, and which tiers use them. `reaper` ends orphaned instances.
"""
