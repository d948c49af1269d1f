#!/bin/sh
# The peer of `guard-start`: the guard's job as one would script it, without sleeps.
# Environment: TAILSCALE (the CLI), TS_SOCKET, TS_LOGIN_SERVER, TS_AUTHKEY_FILE, EXIT_NODE, EXPECTED_IP, CHECK_URL.
set -eu
"$TAILSCALE" --socket="$TS_SOCKET" up --auth-key="file:$TS_AUTHKEY_FILE" --login-server="$TS_LOGIN_SERVER" \
	--accept-routes --accept-dns=false --reset
"$TAILSCALE" --socket="$TS_SOCKET" set --exit-node="$EXIT_NODE"
seen=$(curl -sS -4 --max-time 20 "$CHECK_URL")
[ "$seen" = "$EXPECTED_IP" ]
