"""The part of the fuzzing that fits into `make test`; the rest is `python -m tests.fuzz` and `make fuzz`."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz import counting, peers, stored, structured, targets
from tests.fuzz.bytes_fs import BytesFs
from tests.fuzz.mutating import every_byte
from tests.fuzz.sealing import batches_in, frame_sealed
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

from replog import messages as m
from replog.codec import CodecError, encode
from replog.testing.log_samples import FIRST, batch_of
from replog.transport.tcp import incoming, reception

EXECUTIONS = {"directory": 150, "repair": 300, "database": 1_000}
EACH = 4_000


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_of_valid_bytes(name: str) -> None:
    """Refused with the declared error, or the same again when encoded and decoded: nothing else, and not slowly."""
    counting.count(name, EXECUTIONS.get(name, EACH), seed=20_260_101)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


def small_frame() -> bytes:
    """A whole frame with a list in it."""
    return b"".join(encode(m.Flushed(2, 300, [m.FlushedEntry(FIRST, 4, 100)])))


def small_segment() -> bytes:
    """One batch."""
    batch = batch_of(["a", "b"])
    batch.stamp(FIRST, 0, 0)
    return batch.to_bytes()


@pytest.mark.parametrize("sealed", [False, True])
def test_every_byte_of_a_frame_with_every_value(sealed: bool) -> None:
    frame = small_frame()
    refused = 0
    for data in every_byte(frame):
        changed = bytearray(data)
        if sealed:
            frame_sealed(changed)
        try:
            targets.decode(bytes(changed))
        except CodecError:
            refused += 1
        targets.frame(bytes(changed))
    assert refused >= 255 * len(frame) * (0.2 if sealed else 1) - 255 * sealed - 255  # the byte that says between whom it goes may be any


def test_every_byte_of_a_segment_with_every_value() -> None:
    """Not one change of one bit is believed: recovery keeps nothing of it."""
    segment = small_segment()
    for data in every_byte(segment):
        targets.segment(data)
        stop = targets.Verifier(BytesFs(data), FIRST, 100, lambda header: None).run(targets.Segment("s", 0), 1, len(data), -1)
        assert (stop.position == 0) == (data != segment)


def test_every_byte_of_a_segment_below_its_checksums() -> None:
    for data in every_byte(small_segment()):
        changed = bytearray(data)
        batches_in(changed)
        targets.segment(bytes(changed))
        targets.payload(bytes(changed[targets.FRONT_BYTES :]))


@pytest.mark.parametrize("number", range(31))
def test_values_of_messages_in_the_wrong_place(number: int) -> None:
    frame = targets.frames()[number]
    for seed in range(250):
        targets.frame(structured.frame_with(frame, Random(f"{number} {seed}")))


def test_a_key_that_is_no_text_is_put_into_a_frame_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a surrogate pair: no other text is refused by whoever packs it."""
    monkeypatch.setattr(structured, "_TEXTS", ("\ud800",))
    mutants = [structured.frame_with(frame, Random(seed)) for frame in targets.frames() for seed in range(100)]
    keyed = [mutant for mutant in mutants if b"\xa3\xed\xa0\x80" in mutant]
    assert keyed
    for mutant in keyed:
        targets.frame(mutant)


@pytest.mark.parametrize("value", stored.store_values(), ids=lambda value: f"{value[0]} {len(value)}")
def test_values_of_the_store_in_the_wrong_place(value: bytes) -> None:
    change = structured.json_behind(1)
    for seed in range(300):
        stored.store_value(change(value, Random(f"{value[0]} {seed}")))


def test_every_message_and_every_value_of_the_store_is_among_the_samples() -> None:
    assert len(targets.frames()) == 31 == len(targets.MESSAGE_TYPES)
    assert {value[0] for value in stored.store_values()} == set(range(len(stored.VALUES)))
    assert all(decode_value("/x", encode(one)) == one for decode_value, encode, values in stored.VALUES for one in values)
    for name, target in TARGETS.items():
        assert target.seeds(), name


# ------------------------------------------------------------------------------------------------ whether it would see anything


def raises(data: bytes) -> None:
    if data[:1] == b"\x07":
        raise KeyError("not declared")


def grows(data: bytes) -> None:
    HELD.append(bytes(1 << 20) + data)


def stands(data: bytes) -> None:
    if data[:1] == b"\x07":
        sum(range(20_000_000))


HELD: list[bytes] = []


@pytest.mark.parametrize(("decoder", "says"), [(raises, "KeyError"), (stands, "processor time"), (grows, "has grown by")])
def test_a_decoder_that_does_what_it_must_not_is_found(decoder: object, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "bad", Target(decoder, lambda: [b"\x00\x01\x02"], ()))  # type: ignore[arg-type]
    if decoder is grows:  # in a process whose peak lies behind it nothing would be seen to grow
        sizes = iter((0, counting.MEMORY_BYTES_MAX + 1))
        monkeypatch.setattr(counting.memory, "peak_bytes", lambda: next(sizes))
    with pytest.raises(counting.Finding, match=says):
        counting.count("bad", 100 if decoder is grows else 3_000, seed=1)
    HELD.clear()


def test_a_decoder_that_believes_another_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = iter([m.Heartbeat(1, 1, 1, 1), m.Heartbeat(2, 1, 1, 1)])
    monkeypatch.setattr(targets, "decode", lambda *_, **__: next(decoded))
    with pytest.raises(AssertionError, match="another message"):
        targets.frame(small_frame())


@pytest.mark.parametrize("lives", [[b"abc", b"abd"], [b"abc", b"ab"]])
def test_recovery_that_finds_what_it_has_left_is_found(lives: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(lives)
    monkeypatch.setattr(targets, "_next_life", lambda disk: next(left))
    with pytest.raises(AssertionError, match="a start finds what the one before it has left"):
        targets.directory(targets.directories()[0])


def test_somebody_who_is_let_in_without_a_secret_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    said = peers.handshakes()[1]
    peers.handshake(said)
    monkeypatch.setattr(reception, "is_dialer_proof", lambda known, said, proof: known[0])
    with pytest.raises(AssertionError, match="somebody was let in"):
        peers.handshake(said)


def test_a_stream_that_is_cut_in_another_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, lost = peers.streams()[0], incoming.Incoming._split

    def loses(self: incoming.Incoming, scratch: memoryview, stop: int, *rest: object) -> None:
        lost(self, scratch, stop - 1 if stop > 20 else stop, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(incoming.Incoming, "_split", loses)
    with pytest.raises(AssertionError, match=r"lost|other frames"):
        peers.stream(whole)


def test_two_paths_of_one_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = stored.layout.Place(stored.layout.BROKER_IDS, broker_id=3)
    monkeypatch.setattr(stored.layout, "place_of", lambda path: taken)
    with pytest.raises(AssertionError, match="two paths"):
        stored.path(b"/brokers/ids/03")
