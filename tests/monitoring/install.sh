#!/usr/bin/env bash
# Unpacks Debian's Prometheus, promtool and push gateway into .eos/monitoring, for the tests in this folder.
# It installs no package, so no service starts. Quiet if they are there. Needs apt; root only if apt has no
# package lists yet.
set -euo pipefail
into=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.eos/monitoring
missing=()
for program in prometheus promtool prometheus-pushgateway; do
  command -v "$program" >/dev/null || [ -x "$into/usr/bin/$program" ] || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "not installed, and not to be installed here: ${missing[*]}" >&2
  exit 1
fi
[ "$(id -u)" != 0 ] || apt-get update -qq
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq -o APT::Sandbox::User="$(id -un)" prometheus prometheus-pushgateway
for package in *.deb; do
  dpkg -x "$package" unpacked
done
mkdir -p "$into/usr/bin"
mv -f unpacked/usr/bin/* "$into/usr/bin/"
