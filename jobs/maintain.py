"""Maintains a state root's audit table: `python jobs/maintain.py --profile NAME`, from a timer."""

import sys

from eos.cli.audit import maintain
from eos.cli.main import report
from eos.errors import EosError

if __name__ == "__main__":
    try:
        sys.exit(maintain(sys.argv[1:]))
    except EosError as error:
        sys.exit(report(error))
