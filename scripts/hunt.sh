#!/usr/bin/env bash
# Random histories that nobody has tried: scripts/hunt.sh [minutes] [package...]
#
# An ordinary run of the tests takes the same seeds every time. This one takes new ones,
# in turn for each package, until the time is up or something is found, and says how to
# repeat that. Without packages: all whose tests draw from internal/seed.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-10}
shift || true
go=${GO:-go}
module=$("$go" list -m)
if [ $# -eq 0 ]; then
	users=$("$go" list -f '{{.ImportPath}} {{.Imports}}' ./... | grep "$module/internal/seed" | cut -d' ' -f1)
	pattern=$(printf '%s\n' "$module/internal/seed" $users | paste -sd'|')
	# shellcheck disable=SC2046 # one word for each package
	set -- $("$go" list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... |
		grep -E "[[ ]($pattern)[] ]" | cut -d' ' -f1)
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for package; do
	"$go" test -vet=off -c -o "$bin/$(tr / _ <<<"$package").test" "$package"
done

# Tests of their own by their names; of the suites only the random histories.
own='^Test.*(Random|Storm|Histories|AgreesWith|AsInMemory|NoDeadlocks)'
suites='^Test(Store|StoreInTransactions|Memory|Miniredis|Redis|RedisCluster|Postgres)$/./Random'

end=$(($(date +%s) + 60 * minutes))
tried=0
while [ "$(date +%s)" -lt "$end" ]; do
	for package; do
		seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
		for run in "$own" "$suites"; do
			if ! (cd "$("$go" list -f '{{.Dir}}' "$package")" && PAWL_SEED=$seed \
				"$bin/$(tr / _ <<<"$package").test" -test.timeout 10m -test.run "$run") >"$bin/log" 2>&1; then
				cat "$bin/log"
				echo "found: PAWL_SEED=$seed $go test -run '$run' $package" >&2
				exit 1
			fi
		done
		tried=$((tried + 1))
	done
done
echo "$tried seeds, nothing found"
