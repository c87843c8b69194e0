"""The names that a pipeline goes by in Kafka and on disk: one place, one prefix for all of them.

Two teams that choose the same pipeline name must not fence each other or share a ledger, so
everything that is shared between processes carries the profile's prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from eos.location import local_path


@dataclass(frozen=True, slots=True)
class Names:
    """Made from the profile's `names.prefix` and the pipeline's name."""

    pipeline: str
    transactional_id: str
    group: str
    ledger: str
    checkpoints: str
    lock: str  # empty where the state root is no folder of this machine
    producers: str = ""  # the same

    @classmethod
    def of(cls, prefix: str, pipeline: str, state_root: str, *, has_ledger: bool = True) -> Names:
        """Without a ledger the checkpoint is all there is: a folder that no run with one takes for
        its own, or removes."""
        root = local_path(state_root)
        folder = "checkpoints" if has_ledger else "at_least_once"
        return cls(
            pipeline=pipeline,
            transactional_id=f"{prefix}.{pipeline}",
            group=f"{prefix}.{pipeline}",
            ledger=f"{prefix}.ledger.{pipeline}",
            checkpoints=f"{state_root}/{folder}/{prefix}.{pipeline}",
            lock=f"{root}/locks/{prefix}.{pipeline}" if root else "",
            producers=f"{root}/dedup/{prefix}.{pipeline}" if root else "",
        )
