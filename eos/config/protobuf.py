"""The keys that select a Protobuf message: its name and its descriptor file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from eos.config.base import Strict, Subject
from eos.errors import UsageError

if TYPE_CHECKING:
    from eos.protobuf.message import Message

_FILE_BYTES_MAX = 16_777_216
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


class Protobuf(Strict):
    """A Protobuf message type.

    `message` is a full name, such as `shop.Order`. `file` is a descriptor file, relative to the
    pipeline's folder: the output of `protoc --include_imports --descriptor_set_out`. With
    `subject`, a schema id of the schema registry and the message's position in that schema are
    before each message, as Confluent's clients write them.
    """

    file: Annotated[str, Field(min_length=1)]
    message: Annotated[str, Field(pattern=_NAME, max_length=500)]
    subject: Subject | None = None


def message_of(declared: Protobuf, folder: Path) -> Message:
    """Return the message and all types that it uses; raise UsageError if the file is unusable."""
    from eos.protobuf.message import message_in

    path = folder / declared.file
    try:
        with path.open("rb") as opened:
            raw = opened.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise UsageError(
                "descriptor_file_too_large",
                f"the descriptor file {path} is larger than {_FILE_BYTES_MAX} bytes",
                hint="check that `file` is the path of a descriptor file, the output of protoc",
            )
        return message_in(raw, declared.message)
    except OSError as error:
        raise UsageError(
            "descriptor_file_unreadable",
            f"the descriptor file {path} can't be read: {error.strerror}",
            hint="correct `file`, which is relative to the pipeline's folder, or the file's "
            "permissions",
        ) from error
    except ValueError as error:
        raise UsageError(
            "descriptor_file_invalid",
            f"the descriptor file {path} does not describe the message {declared.message} as "
            f"Spark needs it: {error}",
            hint="correct `message` if its name is wrong. If the file lacks something, create it "
            "again: `protoc --descriptor_set_out=FILE --include_imports NAME.proto`",
        ) from error
