# shellcheck shell=bash
# Sourced by the scripts: the repository's root, one voice, and how a preset is built. Needs bash and coreutils only.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=${FAIRLEAD_JOBS:-$(nproc)}
# What names the functions in a sanitizer's report.
symbolizer=/usr/lib/llvm-19/bin/llvm-symbolizer
export ASAN_SYMBOLIZER_PATH=$symbolizer TSAN_SYMBOLIZER_PATH=$symbolizer UBSAN_SYMBOLIZER_PATH=$symbolizer

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# usage: prints the comment at the head of the script (from line 2 to the first line that is no comment).
usage() { sed -n '2,/^[^#]/{/^# shellcheck/d;/^#/s/^# \{0,1\}//p}' "$0"; }

# configure PRESET: always, because the build records the commit that is checked out; its summary is shown the first time.
configure() {
  local preset=$1 log first=yes
  [ ! -f "$root/build/$preset/build.ninja" ] || first=no
  log=$(mktemp)
  if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "cannot configure preset $preset (the reason is above)"
  fi
  [ "$first" = no ] || grep -E '^-- (Fairlead |  )' "$log" || true
  rm -f "$log"
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  configure "$preset"
  say "building $preset ${*:+($*) }with $jobs jobs"
  NINJA_STATUS='[%f/%t %es] ' cmake --build "$root/build/$preset" --parallel "$jobs" ${1:+--target "$@"}
}
