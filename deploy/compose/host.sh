# host.sh NAME: the first process of a host's container. It restarts the agent when the agent ends;
# slots and drivers continue. At SIGTERM, it ends the agent first, then the slots and drivers.
stopped=
trap 'stopped=yes; kill "$agent" 2> /dev/null' TERM INT
while [ -z "$stopped" ]; do
    python -m sluice_ops.agent --host "$1" &
    agent=$!
    wait "$agent"
    while [ -n "$stopped" ] && kill -0 "$agent" 2> /dev/null; do wait "$agent"; done
    [ -n "$stopped" ] || sleep 1
done
exec python -m sluice_ops.agent --host "$1" --stop-all
