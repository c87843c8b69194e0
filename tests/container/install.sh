#!/usr/bin/env bash
# Installs what containers need, where that is possible: root, and Debian's packages. Quiet if all of
# it is there, or if docker's daemon answers.
set -euo pipefail
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  exit 0
fi
missing=()
for program in podman runc mmdebstrap; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed, and not to be installed here: ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
