#!/usr/bin/env bash
# Runs a pipeline: ./spark-submit.sh PIPELINE.yaml [--profile NAME|PATH] [spark-submit's options]
# Or answers a question: ./spark-submit.sh VERB ..., as `eos VERB ...` does (docs/cli.md).
# On a fresh machine it first makes the environment: .venv here, jars in the user's cache.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=eos/launch/bootstrap.sh
. "$here/eos/launch/bootstrap.sh"
eos_bootstrap "$here" testing
if [[ ${1:-} =~ ^[a-z]+$ && ! -f $1 && ! -f $1/pipeline.yaml ]]; then # a word, and no pipeline
  exec "$here/.venv/bin/python" -m eos "$@"
fi
exec "$here/.venv/bin/python" -m eos.cli.run "$@"
