"""The JSON Schemas of pipeline files and profiles, for editors."""

from __future__ import annotations

import json

KINDS = ("pipeline", "profile")  # the kinds of files that have a JSON Schema


def schema_of(kind: str) -> str:
    from eos.config.model import PipelineFile, ProfileFile  # late: `eos --help` needs no models

    model = PipelineFile if kind == "pipeline" else ProfileFile
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | model.model_json_schema()
    return json.dumps(found, indent=2) + "\n"
