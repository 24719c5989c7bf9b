"""The samples that transports are tried with leave out no kind of message, and nothing that one can say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from replog import messages as m
from replog.codec import FROM_CONTROLLER, LOCAL_MESSAGES, MESSAGE_TYPES, TO_CONTROLLER
from replog.codec.frames import sent
from replog.testing.message_samples import contents, message_samples
from replog.transport.tcp.admission import refusal


def parts(value: Any) -> Iterator[Any]:
    """Every attrs object in a message, itself included."""
    if attrs.has(type(value)):
        yield value
        value = [getattr(value, each.name) for each in attrs.fields(type(value))]
    if isinstance(value, list | tuple):
        for each in value:
            yield from parts(each)


def said() -> dict[tuple[type[Any], str], list[Any]]:
    """What the samples have in each field of each class."""
    messages = [sample.message for sample in message_samples()]
    found: dict[tuple[type[Any], str], list[Any]] = {}
    for part in parts(messages):
        for each in sent(type(part)):
            found.setdefault((type(part), each.name), []).append(getattr(part, each.name))
    return found


def test_there_is_one_of_every_message_between_actors() -> None:
    kinds = {type(sample.message) for sample in message_samples()}
    assert kinds == set(MESSAGE_TYPES.values()) - {m.Handshake, m.HandshakeAnswer}
    assert not kinds & LOCAL_MESSAGES


def test_each_is_said_by_who_may_say_it() -> None:
    """As the transport over TCP has it, which refuses the rest."""
    routes = {("broker", "controller"): TO_CONTROLLER, ("controller", "broker"): FROM_CONTROLLER}
    for sender, to, message in message_samples():
        peer, role = (-1 if sender == "client" else 1), (m.CLIENT if to == "client" else m.BROKER)
        assert refusal(message, routes.get((sender, to), 0), peer=peer, role=role) is None


def test_every_field_is_there_with_something_that_is_no_default() -> None:
    for (kind, name), values in said().items():
        default = getattr(attrs.fields(kind), name).default
        default = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
        assert any(value != default for value in values), f"{kind.__name__}.{name}"


def test_every_list_is_there_with_several_items() -> None:
    for (kind, name), values in said().items():
        assert not isinstance(values[0], list | tuple) or max(map(len, values)) > 1, f"{kind.__name__}.{name}"


def test_samples_are_made_anew() -> None:
    """A transport that cuts what it was given cuts nothing of what it is compared with."""
    one, other = (next(each.message for each in message_samples() if isinstance(each.message, m.Fetched)) for _ in range(2))
    assert contents(one) == contents(other)
    one.entries[0].slices[1:] = []
    assert contents(one) != contents(other)
