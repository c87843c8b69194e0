"""What spark-submit is given: runs one pipeline. `./spark-submit.sh` is the way to call it.

It lies in the package, so that an installation without a checkout has it; `jobs/run.py` is a link.
"""

import sys

from eos.run.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
