"""Does the bucket of the state root reject an object whose name exists?

Several processes commit to a table in a bucket: pipelines that share the audit table, and a fenced
instance beside its successor. A commit is a PUT with `If-None-Match: *`. A server that ignores this
header accepts the commits of both, and one of them is lost. The documents of servers say little
about it, so each startup tries it: two such PUTs of one name. The object stays, as the only one of
its kind, so that startups at the same time don't disturb each other's test.
"""

from __future__ import annotations

from contextlib import suppress
from io import UnsupportedOperation

from eos.checkpoint.files import Files, HadoopFiles
from eos.errors import EosError, UnavailableError, UsageError
from eos.object_store import is_in_bucket
from eos.plan.plan import Plan

_PROBE = ".eos-probe"


def require_conditional_puts(planned: Plan, files: Files, *, has_audit: bool) -> None:
    """Raise UsageError if this pipeline has tables in a bucket whose store lacks conditional puts.

    Call it before the fence: an instance that can't run must not fence one that can.
    """
    root = planned.names.state_root
    tables = [
        *(["the audit table"] if has_audit else []),
        *(["the states of `dedup`"] if planned.dedup is not None else []),
    ]
    if not tables or not is_in_bucket(root) or not isinstance(files, HadoopFiles):
        return
    place = f"{root}/{_PROBE}"
    try:
        with suppress(FileExistsError):  # of an earlier startup
            files.create_new(place)
        files.create_new(place)
    except FileExistsError:
        return
    except UnsupportedOperation as error:
        raise _refusal(
            planned,
            tables,
            "Spark's client for it is too old to test that the store rejects an object whose name "
            "exists",
            "use `hadoop-aws` 3.4.2 or later",
        ) from error
    except OSError as error:
        raise UnavailableError(
            "state_root_unwritable",
            f"{planned.names.pipeline}: {place} can't be written: {error}",
            hint="grant this user's credentials the rights to read and write there",
            path=place,
        ) from error
    raise _refusal(
        planned,
        tables,
        "its store accepted a second object of one name despite the request's `If-None-Match: *`",
        "use a store with conditional puts, such as Amazon S3 or a current MinIO",
    )


def _refusal(planned: Plan, tables: list[str], reason: str, remedy: str) -> EosError:
    names = planned.names
    return UsageError(
        "store_lacks_conditional_puts",
        f"{names.pipeline}: {' and '.join(tables)} can't be in {names.state_root}: {reason}",
        hint=f"{remedy}; or set `state.root` to a local folder. Without the audit table, `audit: "
        "{transactions: false}` in the profile, a pipeline without `dedup` needs none",
        path=names.state_root,
    )
