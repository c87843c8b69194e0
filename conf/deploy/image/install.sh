#!/bin/sh
# Installs a release into an image: install.sh [options of `eos fetch`]. The Containerfile's step, as
# root. Everything is below /opt/eos, readable by every user and writable by none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

python_fits() {
  python3 -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
    2>/dev/null
}

if ! python_fits || ! command -v java >/dev/null; then
  java=$(apt-cache search --names-only '^openjdk-(17|21)-jre-headless$' 2>/dev/null | head -n 1)
  if [ -z "$java" ]; then
    apt-get update
    java=$(apt-cache search --names-only '^openjdk-(17|21)-jre-headless$' | head -n 1)
  fi
  apt-get install -y --no-install-recommends ca-certificates python3 python3-venv "${java%% *}"
  rm -rf /var/lib/apt/lists/*
fi
if ! python_fits; then
  echo "this base has no Python 3.10 to 3.13: $(python3 --version 2>&1)" >&2
  exit 1
fi

umask 022
python3 -m venv /opt/eos
pip() {
  /opt/eos/bin/python -m pip install --disable-pip-version-check --no-cache-dir --require-hashes \
    --no-deps "$@"
}
pip -r "$here/requirements-build.txt"
pip --no-build-isolation --find-links "$here" -r "$here/requirements.txt"
/opt/eos/bin/python -m pip check

# The native library, and the jars. Spark's own folder gets them, so that a driver that is started
# without `eos run` has them, too.
export XDG_CACHE_HOME=/opt/eos/cache
/opt/eos/bin/eos fetch "$@"
spark=$(/opt/eos/bin/python -c 'import pyspark; print(pyspark.__path__[0])')
/opt/eos/bin/python - "$spark/jars" <<'PYTHON'
import os
import sys
import pyspark
from eos.launch.spark_version import minor_of
from eos.local.jars import ensure, of_delta, of_spark

version = minor_of(pyspark.__version__)
for paths in ensure(*of_spark(version), *of_delta(version)).values():
    for path in paths:
        os.link(path, f"{sys.argv[1]}/{path.name}")
PYTHON
ln -s "$spark" /opt/spark
ln -s "$(/opt/eos/bin/python -c 'import eos.job.run as run; print(run.__file__)')" /opt/eos/run.py
cp "$here/entrypoint.sh" /opt/eos/entrypoint.sh
mkdir -p /opt/project
chmod -R a+rX /opt/eos # the cache of a user is private
rm -rf "$here"
