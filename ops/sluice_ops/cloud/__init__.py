"""Burst hosts: EC2 instances that the CLI and runbooks launch and terminate.

Start with `ec2`. `launch_checks` refuses a launch that EC2 would refuse, `pools` says where
instances may be launched, and `errors` what follows from each error of EC2. `burst_hosts` tells how
many instances a burst needs, and which tiers use them. `receipts` keeps how long instances have
run, for `cost`. `reaper` ends orphaned instances.
"""
