#!/usr/bin/env bash
# Installs a browser for the tests in this folder, where that is possible: root, and Debian's packages.
# Quiet if one is there.
set -euo pipefail
for program in chromium chromium-browser google-chrome chrome; do
  if command -v "$program" >/dev/null; then
    exit 0
  fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed, and not to be installed here: chromium" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends chromium >/dev/null
