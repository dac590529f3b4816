#!/usr/bin/env bash
# Every fuzz test of the module, two side by side: scripts/fuzz.sh [time per test]
#
# A finding is written by go test to testdata/fuzz of its package; keep the file, it
# is a test from then on. There are at most 12 fuzz tests, so that all of them fit
# into every run: merge before you add one.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-30s}
most=12
go=${GO:-go}
export go time

# "package target" lines. The names are read from the files, since go test -list
# would build every package twice.
targets=$(grep -rHoE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . |
	sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*)\($|\1 \2|' | sort)
count=$(wc -l <<<"$targets")
if [ "$count" -gt "$most" ]; then
	echo "$count fuzz tests, at most $most fit into a run; merge some:" >&2
	echo "$targets" >&2
	exit 1
fi

# The workers of one test are as many as the cores it has while another one runs.
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
export workers=$((cores > 1 ? cores / 2 : 1))

# An input that is new is made smaller for a minute where nothing else is said, in
# which nothing new is tried.
one() {
	local log status=0
	log=$(mktemp)
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1s -parallel "$workers" "$1" >"$log" 2>&1 || status=$?
	if [ "$status" -ne 0 ] && late "$log"; then
		status=0
		echo "note  $1 $2: go test stopped late, https://go.dev/issue/75804, and has found nothing"
	fi
	if [ "$status" -eq 0 ]; then
		echo "ok    $1 $2: $(grep -oE 'execs: [0-9]+' "$log" | tail -1)"
	else
		echo "FAIL  $1 $2"
		cat "$log"
	fi
	rm -f "$log"
	return "$status"
}

# Up to Go 1.26, a worker that is still busy when the time is up can make a run fail
# that has found nothing. A finding names its file, a panic or a worker that hung.
late() {
	grep -qE '^ *context deadline exceeded$' "$1" && ! grep -qE 'Failing input|panic|hung or terminated|_test\.go:' "$1"
}
export -f one late

echo "$count fuzz tests, $time each, two side by side"
xargs -P 2 -L 1 bash -c 'one "$@"' one <<<"$targets" || { echo "a fuzz test has found something" >&2; exit 1; }
echo "no finding"
