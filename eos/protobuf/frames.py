"""The bytes that Confluent's clients write before a Protobuf message.

A zero byte, four bytes of a schema id, and the position of the message in the schema: how many
numbers follow, then for each level the number of the message among its siblings. Each is a varint
in zigzag form. A single zero means the first message of the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from eos.protobuf.message import Message

Path: TypeAlias = tuple[int, ...]

# Comments, texts and words. A comment or text without an end reaches to the end of the file, so
# that the time is linear: any producer may register a schema.
_WORD = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"
    r"|(\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|[A-Za-z_][\w.]*|\S)",
    re.DOTALL,
)

_ID_BYTES_END = 5  # the zero byte and the id, as in formats/schema_ids.py
_DEPTH_MAX = 100  # levels of messages; Protobuf's own parsers allow fewer


def path_in(proto: str, name: str) -> Path | None:
    """Return the position of a message in the text of a .proto file; None if it is not there.

    `name` is its full name. Groups of proto2 have no position.
    """
    words = [each for each in _WORD.findall(proto) if each]
    package, scopes, counts = "", list[tuple[str, Path] | None](), [0]
    for at, word in enumerate(words):
        is_opening = at == 0 or words[at - 1] in (";", "{", "}")
        if is_opening and word == "package" and at + 1 < len(words):
            package = words[at + 1]
        elif word == "{":
            scope = _message(words, at, scopes, counts)
            if scope is not None:
                counts[-1] += 1
                if f"{package}.{scope[0]}".lstrip(".") == name:
                    return scope[1]
            scopes.append(scope)
            counts.append(0)
        elif word == "}" and scopes:
            scopes.pop()
            counts.pop()
    return None


def _message(
    words: Sequence[str], at: int, scopes: Sequence[tuple[str, Path] | None], counts: Sequence[int]
) -> tuple[str, Path] | None:
    """Return name and position of the message that the bracket opens; None for another block."""
    if at < 2 or words[at - 2] != "message" or (at > 2 and words[at - 3] not in (";", "{", "}")):
        return None
    above = scopes[-1] if scopes else ("", ())
    if above is None or len(scopes) > _DEPTH_MAX:
        return None
    outer, path = above
    return f"{outer}.{words[at - 1]}".lstrip("."), (*path, counts[-1])


def path_of(message: Message) -> Path:
    """Return the position of a message in its own .proto file."""
    found: list[int] = []
    each = message.type.DESCRIPTOR
    while each is not None:
        above = each.containing_type
        siblings = each.file.message_types_by_name if above is None else above.nested_types_by_name
        own = [name for name, one in siblings.items() if not one.GetOptions().map_entry]
        found.insert(0, own.index(each.name))
        each = above
    return tuple(found)


def frame(schema_id: int, path: Path) -> bytes:
    """Return the bytes before a message with this schema id and position."""
    numbers = bytes(1) if path == (0,) else b"".join(map(_zigzag, (len(path), *path)))
    return bytes(1) + schema_id.to_bytes(4, "big") + numbers


def frames(message: Message, known: Mapping[int, str]) -> dict[bytes, tuple[bytes, ...]]:
    """Return the bytes that may be before this message, by the first five of them.

    `known` has the texts of .proto files by schema id. A schema without the message has no entry.
    An empty text means the message's own file.
    """
    found: dict[bytes, tuple[bytes, ...]] = {}
    for schema_id, proto in known.items():
        path = path_in(proto, message.name) if proto else path_of(message)
        if path is not None:
            short = frame(schema_id, path)
            whole = short[:_ID_BYTES_END] + b"".join(map(_zigzag, (len(path), *path)))
            found[short[:_ID_BYTES_END]] = tuple(dict.fromkeys((short, whole)))
    return found


def unframed(values: Sequence[bytes | None], known: Mapping[bytes, tuple[bytes, ...]]) -> list[Any]:
    """Return the messages without the bytes before them; None for a record that has others."""
    return [None if each is None else _unframed(each, known) for each in values]


def _unframed(raw: bytes, known: Mapping[bytes, tuple[bytes, ...]]) -> bytes | None:
    for each in known.get(raw[:_ID_BYTES_END], ()):
        if raw.startswith(each):
            return raw[len(each) :]
    return None


def _zigzag(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)
