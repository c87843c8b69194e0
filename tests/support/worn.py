"""Transactional ids whose epochs are nearly used up, in seconds instead of hours.

Each init with (id, epoch) takes one epoch. A broker serves the requests of a connection one after
the other, so hundreds can be on their way, each with the epoch that the one before will be given.
"""

from __future__ import annotations

import socket
import struct

from eos.deadline import Deadline
from eos.kafka.api import Identity
from eos.kafka.client import KafkaClient
from eos.transaction.coordinator import Coordinator
from support.frames import read_frame, sized
from support.proxy import HOST, PATIENCE_S

_HEAD = struct.Struct(">hhih")
_ASKED = struct.Struct(">iqh")  # timeout, producer id, epoch
_ANSWER = struct.Struct(">ibihqh")  # correlation id, tags, throttle time, error, producer id, epoch
_INIT_PRODUCER_ID, _VERSION = 22, 5
_AT_ONCE = 400
_TIMEOUT_MS = 60_000


def wear(wire: KafkaClient, port: int, transactional_id: str, epoch: int) -> Identity:
    """Takes over the id from whoever holds it, and spends its epochs up to this one."""
    owner = Coordinator(wire, transactional_id, transactional_id, _TIMEOUT_MS)
    at = owner.fence(Deadline.after_ms(_TIMEOUT_MS))
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as broker:
        while at.epoch < epoch:
            spent = range(at.epoch, min(epoch, at.epoch + _AT_ONCE))
            inits = [_init(transactional_id, Identity(at.producer_id, each)) for each in spent]
            broker.sendall(b"".join(inits))
            for each in spent:
                at = _granted(broker)
                assert at.epoch == each + 1
    return at


def _init(transactional_id: str, identity: Identity) -> bytes:
    name, text = b"wear", transactional_id.encode()
    head = _HEAD.pack(_INIT_PRODUCER_ID, _VERSION, 0, len(name)) + name + b"\0"
    return sized(head + bytes([len(text) + 1]) + text + _ASKED.pack(_TIMEOUT_MS, *identity) + b"\0")


def _granted(broker: socket.socket) -> Identity:
    frame = read_frame(broker)
    assert frame is not None
    *_, error, producer_id, epoch = _ANSWER.unpack_from(frame)
    assert error == 0, error
    return Identity(producer_id, epoch)
