# shellcheck shell=bash
# Sourced by .ci/run and scripts/nightly: named stages with a time each. A stage that fails stops the run, and so does one
# that is skipped (77), unless it says that this machine is why; `finish` prints what each took. Only processes that a stage
# started are ended, when it runs out of its time or the run is told to end.
set -euo pipefail

stages_log=$(mktemp -d)
trap 'rm -rf "$stages_log"' EXIT
stages_deadline=
stages_table=()
stages_running=

# What a stage runs is a process group of its own, that of its `timeout`, which neither Ctrl-C nor a signal to the run
# reaches.
end_stage() {
  [ -z "$stages_running" ] || { kill "$stages_running" && wait "$stages_running"; } || true
  exit $((128 + $1))
}
trap 'end_stage 1' HUP
trap 'end_stage 2' INT
trap 'end_stage 15' TERM

# deadline_minutes N: no stage may run past N minutes from the start of the shell.
deadline_minutes() { stages_deadline=$(($1 * 60)); }

# stage NAME MINUTES COMMAND...
stage() {
  local name=$1 limit=$(($2 * 60)) begin=$SECONDS status=0 output shown closed
  shift 2
  if [ -n "$stages_deadline" ] && [ $((stages_deadline - begin)) -lt "$limit" ]; then
    limit=$((stages_deadline - begin))
  fi
  printf '\n=== %s: %s\n' "$name" "$*"
  [ "$limit" -gt 0 ] || { printf '=== %s: no time left of the budget\n' "$name" && exit 1; }
  exec {output}> >(exec tee "$stages_log/$name")
  shown=$!
  # In the background, as a shell that waits for a pipeline hears no signal before its end. What begins there is deaf to
  # SIGINT.
  env --default-signal=INT,QUIT timeout --kill-after=20 "$limit" "$@" >&"$output" 2>&1 {output}>&- &
  stages_running=$!
  exec {output}>&-
  wait "$stages_running" || status=$?
  stages_running=
  wait "$shown" || status=$?
  closed=$(closing "$name")
  if [ "$status" -eq 77 ] && grep -q 'skipped: this machine' "$stages_log/$name"; then status=0 closed=skipped; fi
  printf '=== %s: %s s\n' "$name" "$((SECONDS - begin))"
  stages_table+=("$(printf '%6d s  %-22s %s' "$((SECONDS - begin))" "$name" "$closed")")
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    printf '=== %s: FAILED: ended after its limit of %s s\n' "$name" "$limit"
  elif [ "$status" -ne 0 ]; then
    printf '=== %s: FAILED with exit code %s\n' "$name" "$status"
  fi
  [ "$status" -eq 0 ] || { failures "$name"; exit 1; }
  local again
  again=$(second_tries "$name")
  [ -z "$again" ] || { stages_table+=("          needed a second try: $again"); failures "$name"; }
}

# failures STAGE: what GoogleTest and unittest said of each failure, once more at the end, where a log that is cut short
# still has it.
failures() {
  printf '=== %s: what failed\n' "$1"
  grep -aE -A 8 '(: Failure$|^(FAIL|ERROR): |Sanitizer: |runtime error: )' "$stages_log/$1" | cut -c1-300 | tail -n 100 || true
  grep -aE '(^\[  FAILED  \]|\*\*\*[FTEN])' "$stages_log/$1" | cut -c1-200 | sort -u || true
}

# closing STAGE: the line with which ctest closed that stage, if it ran ctest.
closing() { grep -E '^[0-9]+% tests passed' "$stages_log/$1" | tail -n 1 || true; }

# second_tries STAGE: the programs that ctest ran again.
second_tries() { sed -nE 's/.*Test +#[0-9]+: ([A-Za-z0-9_-]+) \.+ *\*\*\*[FTEN].*/\1/p' "$stages_log/$1" | sort -u | paste -sd' '; }

# finish STAGE: all stages passed; the table, then STAGE's closing line alone.
finish() {
  printf '\n=== all stages passed in %s s\n' "$SECONDS"
  printf '%s\n' "${stages_table[@]}"
  closing "$1"
}
