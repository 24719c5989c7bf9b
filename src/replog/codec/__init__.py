"""Message <-> frame: how the classes of `replog.messages` cross a wire. Their type annotations say how.

A frame, little endian, is a header of 16 bytes, the message as msgpack, and the batches it carries, untouched::

    ┌────────┬─────────┬───────┬──────┬─────────────┬──────────┬─────────────┬─────────────────┐
    │ length │ version │ route │ type │ meta length │ meta crc │ meta ...    │ attachments ... │
    │ u32    │ u8      │ u8    │ u16  │ u32         │ u32      │ msgpack     │ stored batches  │
    └────────┴─────────┴───────┴──────┴─────────────┴──────────┴─────────────┴─────────────────┘

* `route` says which actors of the two processes it goes between (`TO_CONTROLLER`, `FROM_CONTROLLER`); 0: broker or client.
* `length` counts what follows it. `meta crc` is crc32c over bytes 4 to 11 and the meta; attachments have checksums of their own.
* Every object is a msgpack array of its fields, in their order. A frame of this version has exactly them; one of a newer
  version may have more behind them, which are skipped; one of an older version ends before those that came later (`SINCE`), which then
  have their defaults. Whatever else is missing is refused: fields are only ever added at the end.
* A batch body is its length in the meta, a slice is (base offset, end offset, length); their bytes follow in that order.
* A topic's configuration is a map of the keys that differ from the defaults.

`stepwise` reads any message and trusts nothing; `quick` does the same for small frames of the data path at a fifth of the cost,
and leaves what it does not accept to `stepwise`, which says what is wrong with it.
"""

from __future__ import annotations

from replog.codec.decoding import decode
from replog.codec.encoding import encode, encode_parts, sized_parts
from replog.codec.frames import (
    FRAME_BYTES_MAX,
    FROM_CONTROLLER,
    HEADER,
    ITEMS_MAX,
    LOCAL_MESSAGES,
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    ROUTE_AT,
    TO_CONTROLLER,
    CodecError,
    Part,
    frame_length,
)

__all__ = [
    "FRAME_BYTES_MAX",
    "FROM_CONTROLLER",
    "HEADER",
    "ITEMS_MAX",
    "LOCAL_MESSAGES",
    "MESSAGE_TYPES",
    "PROTOCOL_VERSION",
    "ROUTE_AT",
    "TO_CONTROLLER",
    "CodecError",
    "Part",
    "decode",
    "encode",
    "encode_parts",
    "frame_length",
    "sized_parts",
]
