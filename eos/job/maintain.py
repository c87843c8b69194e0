"""`python -m eos.job.maintain --profile NAME` maintains the audit table of a profile's state root.

It compacts the table and deletes unused files, for example from a timer. The script is part of the
package, so that an installation without a checkout has it. `jobs/maintain.py` is a link to it.
"""

import sys

from eos.cli.audit import maintain
from eos.errors import EosError, report

if __name__ == "__main__":
    try:
        sys.exit(maintain(sys.argv[1:]))
    except EosError as error:
        sys.exit(report(error))
