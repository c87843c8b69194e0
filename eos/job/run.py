"""The script that spark-submit runs as a pipeline's driver. Start it with `./spark-submit.sh`.

It is part of the package, so that an installation without a checkout has it. `jobs/run.py` is a
link to it.
"""

import sys

from eos.local.processes import announce_end
from eos.run.main import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    announce_end(code)
    sys.exit(code)
