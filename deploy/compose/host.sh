# host.sh NAME: the first process of a container that is a host. It starts the agent again when the agent ends; slots and drivers go on.
# At SIGTERM the host ends in order: the agent first, then all that the host runs.
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
