# As the public image does: make a cluster with the password of a file where there is none, then serve it, not as root.
set -e
data=/var/lib/postgresql/data
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
cd /
if [ ! -f "$data/PG_VERSION" ]; then
    install -d -o postgres -m 700 "$data"
    install -o postgres -m 600 "$POSTGRES_PASSWORD_FILE" /tmp/password
    as initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 > /dev/null
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    as pg_ctl -D "$data" -w -o "-c listen_addresses= -c unix_socket_directories=/tmp" start > /dev/null
    [ "$POSTGRES_DB" = postgres ] || PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")" as createdb -h /tmp -U "$POSTGRES_USER" "$POSTGRES_DB"
    as pg_ctl -D "$data" -w stop > /dev/null
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D "$data" -c "listen_addresses=*" -c unix_socket_directories=/tmp
