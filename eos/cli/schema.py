"""`eos schema`: print the JSON Schema of pipeline files or profiles."""

from __future__ import annotations

import argparse

from eos.config.schema import schema_of


def run(options: argparse.Namespace) -> int:
    if options.markdown:
        from eos.config.reference import reference  # late: the schema does not need it

        print(reference(), end="")
    else:
        print(schema_of(options.of), end="")
    return 0
