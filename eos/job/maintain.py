"""Maintains a state root's audit table: `python -m eos.job.maintain --profile NAME`, from a timer.

It lies in the package, so that an installation without a checkout has it; `jobs/maintain.py` is a
link.
"""

import sys

from eos.cli.audit import maintain
from eos.cli.main import report
from eos.errors import EosError

if __name__ == "__main__":
    try:
        sys.exit(maintain(sys.argv[1:]))
    except EosError as error:
        sys.exit(report(error))
