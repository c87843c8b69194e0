"""The names of a pipeline's transactional id, group and ledger in Kafka, and its folders on disk.

All of them include the profile's prefix. So two teams that choose the same pipeline name don't
fence each other, and don't share a ledger.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from eos.config.model import NAME_PATTERN, PREFIX_PATTERN
from eos.location import local_path
from eos.object_store import is_in_bucket


class Namesake(NamedTuple):
    """A pipeline with another name and prefix, but the same transactional id."""

    prefix: str
    pipeline: str

    @property
    def ledger(self) -> str:
        return _ledger(self.prefix, self.pipeline)


def _ledger(prefix: str, pipeline: str) -> str:
    return f"{prefix}.ledger.{pipeline}"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one pipeline, from the profile's `names.prefix` and the pipeline's name."""

    pipeline: str
    transactional_id: str
    group: str
    ledger: str
    checkpoints: str
    lock: str  # empty if the state root is not a local folder
    producers: str = ""  # dedup's states; empty if the state root is neither local nor a bucket
    stops: str = ""  # folder of the stop markers; empty if the state root is not a local folder
    state_root: str = ""  # `state.root` of the profile, as an absolute path or a URI

    @classmethod
    def of(cls, prefix: str, pipeline: str, state_root: str) -> Names:
        root = local_path(state_root)
        has_tables = root is not None or is_in_bucket(state_root)
        return cls(
            pipeline=pipeline,
            transactional_id=f"{prefix}.{pipeline}",
            group=f"{prefix}.{pipeline}",
            ledger=_ledger(prefix, pipeline),
            checkpoints=f"{state_root}/checkpoints/{prefix}.{pipeline}",
            lock=f"{root}/locks/{prefix}.{pipeline}" if root else "",
            producers=f"{root or state_root}/dedup/{prefix}.{pipeline}" if has_tables else "",
            stops=f"{root}/stops/{prefix}.{pipeline}" if root else "",
            state_root=state_root,
        )

    @property
    def namesakes(self) -> tuple[Namesake, ...]:
        """Return the pipelines with other names that would have the same transactional id.

        It is `PREFIX.NAME`, and each dot in it may be the one between prefix and name."""
        joined = self.transactional_id
        cuts = [at for at, character in enumerate(joined) if character == "."]
        found = (Namesake(joined[:at], joined[at + 1 :]) for at in cuts)
        return tuple(
            each
            for each in found
            if each.pipeline != self.pipeline
            and re.fullmatch(PREFIX_PATTERN, each.prefix)
            and re.fullmatch(NAME_PATTERN, each.pipeline)
        )
