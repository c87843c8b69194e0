#!/usr/bin/env bash
# Unpacks Debian's KDC of MIT Kerberos into .eos/kerberos, for the tests in this folder. It installs no package, so no
# service starts. Quiet if it is there. Needs apt; root only if apt has no package lists yet.
set -euo pipefail
into=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.eos/kerberos
[ ! -x "$into/usr/sbin/krb5kdc" ] || exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "not installed, and not to be installed here: krb5kdc" >&2
  exit 1
fi
[ "$(id -u)" != 0 ] || apt-get update -qq
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances krb5-kdc krb5-admin-server krb5-user libgssapi-krb5-2 libfaketime |
  grep -E '^(krb5-(kdc|admin-server|user)|lib(krb5|gssapi-krb5|k5crypto|kdb5|kadm5|gssrpc|verto|ev|keyutils|com-err|faketime|ss2)[^<>:]*)$' |
  sort -u)
# shellcheck disable=SC2086 # several words
apt-get download -qq -o APT::Sandbox::User="$(id -un)" $packages
for package in *.deb; do
  dpkg -x "$package" unpacked
done
mkdir -p "$(dirname "$into")"
rm -rf "$into"
mv unpacked "$into"
