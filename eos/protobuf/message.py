"""A Protobuf message type, which the driver reads from a descriptor file and ships to executors.

`protoc --descriptor_set_out` writes a descriptor file: a set of compiled .proto files. The driver
keeps the .proto files that the message needs, and ships them as bytes. Each process builds its
classes from these bytes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from eos.protobuf.fields import Fields, fields_of

_MADE_BY = "`protoc --include_imports --descriptor_set_out=FILE` writes one"
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Message:
    """A Protobuf message type that can be pickled.

    `files` is a FileDescriptorSet in which each file follows its imports.
    """

    name: str
    files: bytes

    @property
    def fields(self) -> Fields:
        return _built(self)[1]

    @property
    def type(self) -> Any:
        """Return the Python class of the message. Each process builds it once."""
        return _built(self)[0]


def message_in(raw: bytes, name: str) -> Message:
    """Return the message type `name` from the bytes of a descriptor file.

    Raise ValueError if `raw` is no descriptor file, lacks the message or an import, or if Spark has
    no columns for the message.
    """
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(raw)
    except DecodeError as error:
        raise ValueError(f"expected a descriptor file: {_MADE_BY}") from error
    files = {each.name: each for each in found.file}
    if not files or "" in files:  # almost any bytes parse as a message without known fields
        raise ValueError(f"expected a descriptor file with at least one .proto file: {_MADE_BY}")
    files_by_name = {full: each.name for each in found.file for full in _messages(each)}
    home = files_by_name.get(name)
    if home is None:
        raise ValueError(
            f"expected the name of a message in the file{_error_text(name, list(files_by_name))}"
        )
    needed: dict[str, Any] = {}
    _add(files, home, needed)
    selected = descriptor_pb2.FileDescriptorSet()
    for each in needed.values():
        selected.file.add().CopyFrom(each)
        selected.file[-1].ClearField("source_code_info")  # the comments of the .proto file
    result = Message(name, selected.SerializeToString(deterministic=True))
    try:
        _built(result)
    except TypeError as error:  # the library raises it for inconsistent files
        raise ValueError(f"expected a consistent set of files: {error}") from error
    return result


def _messages(file: Any) -> list[str]:
    """Return the full names of all messages in a .proto file, nested ones included.

    Map entries, which are messages inside the file, are left out."""
    found: list[str] = []
    waiting = [(file.package, each) for each in file.message_type]
    while waiting:
        scope, each = waiting.pop()
        full = f"{scope}.{each.name}" if scope else each.name
        if not each.options.map_entry:
            found.append(full)
            waiting += [(full, inner) for inner in each.nested_type]
    return found


def _error_text(name: str, known: list[str]) -> str:
    last = name.rpartition(".")[2]
    close = [full for full in known if full.rpartition(".")[2] == last]
    close += difflib.get_close_matches(name, known, n=1)
    if close:
        return f", `{name}` is none; did you mean `{close[0]}`?"
    listed = ", ".join(f"`{full}`" for full in sorted(known)[:_SHOWN_MAX]) or "no message"
    return f", `{name}` is none: it has {listed}{' ...' if len(known) > _SHOWN_MAX else ''}"


def _add(files: Mapping[str, Any], name: str, needed: dict[str, Any]) -> None:
    """Add a .proto file to `needed`, after all files that it imports directly or indirectly."""
    waiting = [(name, False)]
    entered = set()
    while waiting:
        each, is_left = waiting.pop()
        if is_left:
            needed[each] = files[each]
            continue
        if each in entered:
            continue
        entered.add(each)
        waiting.append((each, True))
        for imported in files[each].dependency:
            if imported not in files:
                raise ValueError(
                    f"expected the file `{imported}`, which `{each}` imports, in the descriptor "
                    f"file: {_MADE_BY} with all of them"
                )
            waiting.append((imported, False))


@lru_cache(maxsize=16)
def _built(message: Message) -> tuple[Any, Fields]:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(message.files).file:
        pool.Add(each)
    found = pool.FindMessageTypeByName(message.name)
    return message_factory.GetMessageClass(found), fields_of(found)
