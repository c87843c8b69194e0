"""The JSON Schemas of pipeline files and profiles, for editors."""

from __future__ import annotations

import json
from enum import Enum


class File(str, Enum):
    """A kind of file that has a JSON Schema."""

    pipeline = "pipeline"
    profile = "profile"


def schema_of(of: File) -> str:
    from eos.config.model import PipelineFile, ProfileFile  # late: `eos --help` needs no models

    model = PipelineFile if of is File.pipeline else ProfileFile
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | model.model_json_schema()
    return json.dumps(found, indent=2) + "\n"
