"""How is `jars.lock` here regenerated? Run `PYTHONPATH=tests python -m bench.peers.relock`."""

from __future__ import annotations

import sys

from bench.peers.fetch import LOCK_FILE

from eos.local.relock import relock, settings

ORIGIN = "`python -m bench.peers.relock` from [tool.eos.peers.jars]"


if __name__ == "__main__":
    sys.exit(relock(settings()["peers"]["jars"], LOCK_FILE, ORIGIN))
