# Sourced by what starts `fairlead gain --server` in or beside a guest.

# serve_gain PROGRAM HOST:PORT [FLAG...]: once it listens, or has ended, $there is where and $server its process.
serve_gain() {
  local program=$1 at=$2 said tries
  shift 2
  said=$(mktemp)
  "$program" gain --server "$at" --once "$@" >"$said" &
  server=$!
  for ((tries = 200; tries > 0; tries--)); do
    grep -q '^listening on' "$said" && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  # shellcheck disable=SC2034 # for who sources this
  there=$(awk '/^listening on/ { print $3 }' "$said")
  rm -f "$said"
}
