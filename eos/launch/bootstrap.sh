# shellcheck shell=bash
# Shared by spark-submit.sh and tests/run: `eos_bootstrap CHECKOUT testing|test` makes or updates
# the checkout's .venv. If nothing changed, it only reads a few small files.

eos_bootstrap() {
  local checkout=$1 extra=$2 stamp wanted python
  export EOS_OFFLINE="${EOS_OFFLINE:-0}" # a checkout's scripts download what is missing
  stamp=$checkout/.venv/eos-$extra.stamp
  # cksum prints the path too: an environment that was moved or copied does not work.
  wanted=$(cksum "$checkout/pyproject.toml" "$checkout"/eos/launch/{build,python}.lock \
    "$checkout/tests/requirements.lock")
  if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$wanted" ]; then
    return 0
  fi
  python=$(eos_python) || return
  "$python" "$checkout/eos/launch/bootstrap.py" "$checkout" "$extra" "$wanted"
}

# Print a Python for the environment: 3.10 to 3.13.
eos_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
      >/dev/null 2>&1; then
      echo "$candidate"
      return 0
    fi
  done
  echo "eos: no Python 3.10 to 3.13 was found (tried python3 and python3.10 to python3.13)" >&2
  echo "  hint: install one, or name it: PYTHON=/path/to/python3 $0" >&2
  return 2
}
