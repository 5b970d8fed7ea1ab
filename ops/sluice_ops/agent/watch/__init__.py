"""What an agent watches: disks, heartbeats of processes, slots that get too little. Start with `heartbeats`."""
