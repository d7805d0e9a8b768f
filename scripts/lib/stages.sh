# shellcheck shell=bash
# Sourced by .ci/run and scripts/nightly: named stages with a time each. A stage that fails stops the run; `finish`
# prints what each took. Only processes that a stage started are ended, when it runs out of its time.
set -euo pipefail

stages_log=$(mktemp -d)
trap 'rm -rf "$stages_log"' EXIT
stages_deadline=
stages_table=()

# deadline_minutes N: no stage may run past N minutes from the start of the shell.
deadline_minutes() { stages_deadline=$(($1 * 60)); }

# stage NAME MINUTES COMMAND...
stage() {
  local name=$1 limit=$(($2 * 60)) begin=$SECONDS status=0
  shift 2
  if [ -n "$stages_deadline" ] && [ $((stages_deadline - begin)) -lt "$limit" ]; then
    limit=$((stages_deadline - begin))
  fi
  printf '\n=== %s: %s\n' "$name" "$*"
  [ "$limit" -gt 0 ] || { printf '=== %s: no time left of the budget\n' "$name" && exit 1; }
  timeout --kill-after=20 "$limit" "$@" 2>&1 | tee "$stages_log/$name" || status=$?
  printf '=== %s: %s s\n' "$name" "$((SECONDS - begin))"
  stages_table+=("$(printf '%6d s  %-22s %s' "$((SECONDS - begin))" "$name" "$(closing "$name")")")
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
