#!/bin/sh
# Installs what the tests need besides Go and is not there: Redis 7.0 or newer,
# PostgreSQL 15 or newer, and a C compiler for the race detector. It does so on
# Debian and Ubuntu as root, from the distribution's packages, and starts no
# service. Elsewhere it says what to install, and the tests that need a server
# are skipped, or fail where PAWL_TEST_REQUIRE_SERVERS=1.
set -eu

missing=''
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 ||
	missing="$missing postgresql"
command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
	echo "Please install (these are the names of Debian's packages):$missing" >&2
	[ "${PAWL_TEST_REQUIRE_SERVERS:-}" != 1 ] || exit 1
	exit 0
fi

# Debian starts a service as soon as it is installed, unless this file objects.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

install() {
	# $missing holds several words.
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
		install -y --no-install-recommends $missing </dev/null
}
echo "Installing:$missing" >&2
install || { apt-get update && install; }
