"""Two processes that talk: who is reached, over which connection, and what is told when nobody is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.harness import P0, Party, Stranger, fetched, idle, piece, question, settle

from replog import messages as m
from replog.codec import CodecError
from replog.errors import Code, UsageError
from replog.testing.clock import ManualClock
from replog.transport.tcp import BULK, CONTROL, DATA, TcpLimits
from replog.transport.tcp.connection import State
from replog.transport.tcp.outgoing import Outgoing
from replog.transport.tcp.sockets import failure_of

Make = Callable[..., Party]
Bare = Callable[[str], Stranger]


def beat(broker_id: int) -> m.Heartbeat:
    return m.Heartbeat(broker_id, 1, 1, 1)


def lanes(one: Party) -> list[int]:
    return sorted(each.lane for each in one.transport._connections.open.values())


# ------------------------------------------------------------------------------------------------------------- addresses


def test_actors_are_reached_by_their_addresses(party: Make) -> None:
    one, two = party(1), party(2)
    controller: list[Any] = []
    two.transport.listen(("controller", 2), lambda *item: controller.append(item))
    one.say(("controller", 2), beat(1))
    one.transport.send(("controller", 1), 2, m.ReplicaStates(1, 1, 1, 1, []))
    one.say(2, fetched(5))
    settle([one, two], lambda: len(two.items) == 2 and bool(controller))
    assert controller == [(1, beat(1))]
    assert sorted(two.items, key=str) == sorted([(("controller", 1), m.ReplicaStates(1, 1, 1, 1, [])), (1, fetched(5))], key=str)
    assert not one.told("peer_disconnected")


def test_each_lane_has_a_connection_and_whoever_dialed_it_both_use_it(party: Make) -> None:
    one, two = party(1), party(2)
    one.say(("controller", 2), beat(1))
    one.say(2, fetched(1))
    one.say(2, fetched(2, catch_up=True))
    settle([one, two], lambda: len(two.messages) == 2)
    two.say(1, fetched(3))
    two.say(1, fetched(4, catch_up=True))
    two.transport.send(("controller", 2), 1, m.ReplicaStates(2, 1, 1, 1, []))
    settle([one, two], lambda: len(one.messages) == 3)
    assert lanes(one) == lanes(two) == [CONTROL, DATA, BULK]


def test_a_client_finds_brokers_and_is_answered_on_the_connection_of_its_question(party: Make) -> None:
    broker, one, two = party(1), party(), party()
    one.say(broker.endpoint, m.Metadata(7, -1, -1))
    settle([broker, one], lambda: bool(broker.items))
    first = broker.items[0][0]
    assert isinstance(first, tuple)
    assert first[0] == "peer"
    two.say(1, question(8))
    settle([broker, one, two], lambda: len(broker.items) == 2)
    second = broker.items[1][0]
    assert second != first
    broker.say(second, m.ListedOffsets(8, []))
    broker.say(first, m.ListedOffsets(7, []))
    settle([broker, one, two], lambda: bool(one.items) and bool(two.items))
    assert one.items == [(broker.endpoint, m.ListedOffsets(7, []))]
    assert two.items == [(1, m.ListedOffsets(8, []))]
    assert one.transport.cluster_id == "c"


def test_a_clients_fetches_do_not_hold_up_its_appends(party: Make) -> None:
    broker, client = party(1), party()
    client.say(1, m.Fetch(1, -1, -1, 0, -1, 0, 0, 1, []))
    client.say(1, m.Produce(1, 1, [m.ProduceEntry(1, P0, b"x" * 100)]))
    settle([broker, client], lambda: len(broker.items) == 2)
    assert lanes(client) == [DATA, BULK]
    peers = {type(message): sender for sender, message in broker.items}
    assert peers[m.Fetch] != peers[m.Produce]


def test_several_brokers_in_one_process(party: Make, endpoints: dict[int, str]) -> None:
    host, other = party(1), party(5)
    got: list[Any] = []
    endpoints[2] = host.transport.serve("tcp://127.0.0.1:0", broker_id=2)
    host.transport.listen(2, lambda *item: got.append(item))
    other.say(1, fetched(1))
    other.say(2, fetched(2))
    settle([host, other], lambda: bool(got) and bool(host.items))
    assert got == [(5, fetched(2))]
    assert host.items == [(5, fetched(1))]
    host.transport.send(2, 5, fetched(3))
    settle([host, other], lambda: bool(other.items))
    assert other.items == [(2, fetched(3))]
    host.transport.unserve(2)
    host.transport.unserve(2)
    settle([host, other], lambda: 2 in other.lost)
    assert 1 not in other.lost
    other.say(2, fetched(4))
    settle([host, other], lambda: other.lost.count(2) == 2)
    assert len(got) == 1


def test_who_lives_here_is_reached_without_a_socket(party: Make) -> None:
    one = party(1)
    one.transport.send(("controller", 1), 1, "anything")
    assert one.transport.next_poll_ms() == 1_000_000
    assert one.items == []
    idle([one], 1)
    assert one.items == [(("controller", 1), "anything")]
    assert one.open == 0


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://[::1]:0"])
def test_hosts(party: Make, endpoint: str, endpoints: dict[int, str]) -> None:
    one, two = party(1), party(2)
    endpoints[2] = two.transport.serve(endpoint)
    assert endpoints[2].startswith(endpoint[:-1])
    assert not endpoints[2].endswith(":0")
    one.say(2, fetched(1))
    settle([one, two], lambda: bool(two.items))


@pytest.mark.parametrize(("host", "open_", "shut"), [("[::]", "::1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1", "::1")])
def test_every_address_is_every_one_of_its_kind(party: Make, host: str, open_: str, shut: str) -> None:
    for broker_id in range(1, 6):  # another process may have that port of the other kind: then it says nothing
        one = party(broker_id)
        one.transport._insecure = True
        port = int(one.transport.serve(f"tcp://{host}:0").rpartition(":")[2])
        socket.create_connection((open_, port), timeout=5).close()
        with socket.socket(socket.AF_INET6 if ":" in shut else socket.AF_INET) as other:
            try:
                other.bind((shut, port))
            except OSError:
                continue
        return
    pytest.fail(f"{host} takes {shut} too")


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://broker.example:0", "tcp://10.0.0.1:0"])
def test_beyond_loopback_is_refused(party: Make, endpoint: str) -> None:
    with pytest.raises(UsageError, match="insecure=True"):
        party(1).transport.serve(endpoint)


def test_insecure_is_possible_when_written_out(party: Make) -> None:
    one = party(1)
    one.transport._insecure = True
    assert one.transport.serve("tcp://0.0.0.0:0").startswith("tcp://0.0.0.0:")


def test_serving_where_it_cannot_be(party: Make) -> None:
    one = party(1)
    with pytest.raises(UsageError, match=one.endpoint):
        one.transport.serve(one.endpoint)
    with pytest.raises(UsageError, match="client"):
        party().transport.serve("tcp://127.0.0.1:0")
    with pytest.raises(UsageError, match="tcp://"):
        one.transport.serve("http://127.0.0.1:0")


# ------------------------------------------------------------------------------------------------------------- nobody there


def test_all_who_listen_hear_that_nobody_is_reached(party: Make, endpoints: dict[int, str]) -> None:
    one = party(1)
    controller: list[Any] = []
    one.transport.listen(("controller", 1), lambda _, message: controller.append(message))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoints[2] = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        one.say(2, fetched(1))
        settle([one], lambda: bool(one.lost))
    one.say(3, fetched(1))  # of whom nothing is known
    settle([one], lambda: 3 in one.lost)
    assert one.lost == [2, ("controller", 2), 3, ("controller", 3)]
    assert [each.address for each in controller] == one.lost
    assert one.open == 0


def test_a_dead_peer_is_dialed_ever_more_rarely(party: Make, endpoints: dict[int, str], clock: ManualClock) -> None:
    one = party(1, limits=TcpLimits(backoff_ms=100, backoff_ms_max=1_000))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoints[2] = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        for _ in range(800):
            one.say(2, fetched(1))
            idle([one], 1)
            clock.advance(5)
    pauses = [fields["retry_ms"] for fields in one.told("dial_failed")]
    assert pauses == [100, 200, 400, 800, 1_000, 1_000, 1_000][: len(pauses)]
    assert 5 <= len(pauses) <= 7


def test_chance_shortens_a_pause_by_half_at_most(party: Make, endpoints: dict[int, str]) -> None:
    one = party(1, limits=TcpLimits(backoff_ms=100), jitter=lambda: 0.5)
    endpoints[2] = "tcp://nonsense"
    one.say(2, fetched(1))
    idle([one], 2)
    assert one.told("dial_failed")[0]["retry_ms"] == 75


def test_a_peer_that_takes_in_and_throws_out_makes_no_storm(party: Make, endpoints: dict[int, str], clock: ManualClock) -> None:
    one, two = party(1, limits=TcpLimits(backoff_ms=100)), party(2)
    for _ in range(300):
        one.transport.send(1, 2, m.Metadata(1, 1, 1))  # which no broker says to a broker: two closes
        idle([one, two], 1)
        clock.advance(1)
    assert 1 <= len(two.told("peer_connected")) <= 5


def test_a_peer_that_comes_back_is_reached_again(party: Make, clock: ManualClock) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: bool(two.items))
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 2)
    two.transport.close()
    settle([one], lambda: 2 in one.lost)
    again = party(2)
    clock.advance(50)  # it went before it had said anything, so it is given a moment
    idle([one], 2)
    one.say(2, fetched(2))
    settle([one, again], lambda: bool(again.items))
    assert again.items == [(1, fetched(2))]


@pytest.mark.parametrize(("lane", "told"), [(CONTROL, None), (DATA, False), (BULK, True)])
def test_the_end_of_one_of_several_lanes_is_told_for_what_it_takes(party: Make, lane: int, told: bool | None) -> None:
    """Whoever waits for an answer on it waits in vain, whatever lives beside it; of commands, which are repeated, that is only who
    has passed something on to the controller."""
    one, two = party(1), party(2)
    two.transport.listen(("controller", 2), lambda sender, message: None)
    one.say(("controller", 2), beat(1))
    one.say(2, fetched(1))
    one.say(2, fetched(2, catch_up=True))
    settle([one, two], lambda: lanes(one) == lanes(two) == [CONTROL, DATA, BULK] and len(two.items) == 2)
    (ending,) = [each for each in two.transport._connections.open.values() if each.lane == lane]
    two.transport._connections.end(ending, "test")
    settle([one], lambda: one.open == 2)
    idle([one])
    assert one.lost == ([("controller", 2)] if told is None else [2, ("controller", 2)])
    assert one.only_reads == ([False] if told is None else [told, told])
    assert one.told("peer_disconnected")[0]["lane"] == lane


def test_when_all_lanes_end_everything_is_lost(party: Make) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    one.say(2, fetched(2, catch_up=True))
    settle([one, two], lambda: lanes(one) == lanes(two) == [DATA, BULK] and len(two.items) == 2)
    for ending in sorted(two.transport._connections.open.values(), key=lambda each: -each.lane):
        two.transport._connections.end(ending, "test")
    settle([one], lambda: not one.open and bool(one.lost))
    assert one.only_reads[-1] is False


def test_the_end_of_one_of_two_connections_of_a_lane_is_told_as_well(party: Make, stranger: Bare) -> None:
    """The question may have gone out on either."""
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: bool(two.items))
    second = stranger(one.endpoint)
    second.hello(cluster_id="c", role="broker", broker_id=2)
    settle([one], lambda: one.open == 2)
    second.close()
    settle([one], lambda: one.lost == [2, ("controller", 2)])
    assert one.open == 1


def test_what_failed_elsewhere_is_not_held_against_a_new_endpoint(party: Make, endpoints: dict[int, str]) -> None:
    one = party(1, limits=TcpLimits(backoff_ms=100_000, backoff_ms_max=100_000))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoints[2] = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        one.say(2, fetched(1))
        settle([one], lambda: 2 in one.lost)
    one.say(2, fetched(2))
    idle([one])
    assert len(one.told("dial_failed")) == 1, "it is not dialed again that soon"
    two = party(2)
    one.say(2, fetched(3))
    settle([one, two], lambda: two.messages == [fetched(3)])


def test_an_idle_connection_is_closed_by_whoever_dialed_and_nobody_is_lost(party: Make, clock: ManualClock) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    one.say(2, fetched(1, catch_up=True))
    settle([one, two], lambda: len(two.items) == 2)
    clock.advance(599_000)
    one.say(2, fetched(2))
    settle([one, two], lambda: len(two.items) == 3)
    clock.advance(2_000)
    settle([one, two], lambda: one.open == two.open == 1)
    assert one.lost == two.lost == []
    assert lanes(one) == [DATA]
    one.say(2, fetched(3, catch_up=True))
    settle([one, two], lambda: len(two.items) == 4)


def test_the_end_of_a_connection_on_which_something_was_heard_lately_is_told(party: Make, clock: ManualClock) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    clock.advance(400_000)
    one.say(2, fetched(2))
    settle([one, two], lambda: len(two.items) == 2)
    one.transport.close()
    settle([two], lambda: two.lost == [1, ("controller", 1)])


def test_what_is_sent_after_a_long_silence_is_not_late(party: Make, clock: ManualClock) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    for connection in one.transport._connections.open.values():
        one.transport._connections.timers.look(connection, clock.now_ms() + 40_000)
    clock.advance(40_000)
    one.say(2, fetched(2))
    one.transport.handle([], clock.now_ms())
    settle([one, two], lambda: len(two.items) == 2)
    assert one.lost == []


def test_a_stall_counts_from_when_something_waits(party: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    clock.advance(40_000)
    monkeypatch.setattr(Outgoing, "write", lambda *_: 0)  # the kernel's own buffer is full
    one.say(2, fetched(2))
    one.transport.flush()
    one.transport.handle([], clock.now_ms())
    assert one.open == 1
    assert one.transport.next_poll_ms() == clock.now_ms() + 30_000
    clock.advance(30_000)
    one.transport.handle([], clock.now_ms())
    assert one.lost == [2, ("controller", 2)]


def test_a_peer_that_dials_again_has_given_up_what_was_before(party: Make, stranger: Bare) -> None:
    one = party(1)
    for number in range(5):
        stranger(one.endpoint).hello(cluster_id="c", role="broker", broker_id=2)
        settle([one], lambda want=number + 1: len(one.told("peer_connected")) == want)  # type: ignore[misc]
        assert one.open == 1
    stranger(one.endpoint).hello(cluster_id="c", role="broker", broker_id=2, lane=2)
    settle([one], lambda: one.open == 2)


def test_sockets_notice_a_peer_that_is_gone_and_do_not_delay(party: Make) -> None:
    one, two = party(1), party(2)
    one.say(2, fetched(1))
    settle([one, two], lambda: bool(two.items))
    for each in (one, two):
        (connection,) = each.transport._connections.open.values()
        option = connection.socket.getsockopt
        assert option(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 15
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert not connection.socket.getblocking()
        assert not connection.socket.get_inheritable()


def test_another_thread_wakes_one_that_waits(party: Make) -> None:
    one = party(1)
    woken: list[Any] = []
    thread = threading.Thread(target=lambda: woken.extend(one.transport.wait(None)))
    thread.start()
    one.transport.wake()
    thread.join(10)
    assert len(woken) == 1


def test_a_socket_that_reached_itself_has_reached_nobody() -> None:
    with socket.socket() as itself:
        itself.bind(("127.0.0.1", 0))
        itself.connect(itself.getsockname())  # what happens now and then to who dials a port that nobody listens at
        assert failure_of(itself) == "ECONNREFUSED"


def test_what_waits_for_a_peer_that_is_dialed_is_bounded(party: Make, endpoints: dict[int, str]) -> None:
    one = party(1, limits=TcpLimits(output_bytes_max=1_000))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoints[2] = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        for number in range(100):
            one.say(2, fetched(number, piece(b"x" * 500)))
        (link,) = one.transport._dialer._links.values()
        assert link.waiting_bytes <= 4_000
        assert one.transport.unsent_bytes == one.transport.unsent_to(1, 2) == link.waiting_bytes
        assert one.transport.unsent_to(1, 3) == one.transport.unsent_to(2, 2) == 0
        assert len(one.told("message_dropped")) == 100 - len(link._waiting)
        settle([one], lambda: 2 in one.lost)


def test_connecting_and_greeting_take_no_longer_than_allowed(party: Make, endpoints: dict[int, str], clock: ManualClock) -> None:
    one = party(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoints[2] = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        one.say(2, fetched(1))
        settle([one], lambda: [each.state for each in one.transport._connections.open.values()] == [State.GREETING])
        clock.advance(5_001)
        settle([one], lambda: 2 in one.lost)
    assert "handshake" in one.told("dial_failed")[0]["reason"]
    assert one.open == 0


# ------------------------------------------------------------------------------------------------------------ handshakes


def test_clusters_do_not_mix(party: Make, clock: ManualClock) -> None:
    one, two = party(1, cluster_id="a"), party(2, cluster_id="b")
    one.say(2, fetched(1))
    settle([one, two], lambda: 2 in one.lost)
    reason = one.told("dial_failed")[0]["reason"]
    assert "'a'" in reason
    assert "'b'" in reason
    assert two.told("peer_refused")[0]["error"] == Code.INCONSISTENT_CLUSTER_ID
    assert two.items == []
    settle([one, two], lambda: one.open == two.open == 0)


def test_a_broker_that_is_not_registered_yet_lets_nobody_in_until_it_is(party: Make, clock: ManualClock) -> None:
    one, client, two = party(1), party(), party(2, cluster_id="")
    one.say(2, fetched(1))
    client.say(2, question(1))
    settle([one, two, client], lambda: 2 in one.lost and 2 in client.lost)
    two.transport.cluster_id = "c"
    clock.advance(100)
    one.say(2, fetched(2))
    client.say(2, question(2))
    settle([one, two, client], lambda: len(two.items) == 2)
    assert {message.request for message in two.messages} == {2}


def test_another_broker_than_the_one_expected_is_not_spoken_to(party: Make, endpoints: dict[int, str]) -> None:
    one, two = party(1), party(2)
    endpoints[3] = endpoints[2]
    one.say(3, fetched(1))
    settle([one, two], lambda: 3 in one.lost)
    assert "broker 3" in one.told("dial_failed")[0]["reason"]
    assert two.items == []


def test_two_brokers_with_one_id_do_not_talk(party: Make, stranger: Bare) -> None:
    one = party(1)
    guest = stranger(one.endpoint)
    guest.hello(cluster_id="c", role="broker", broker_id=1)
    settle([one], lambda: bool(one.told("peer_refused")))
    idle([one], 2)
    assert guest.read().error == Code.DUPLICATE_BROKER_REGISTRATION
    assert guest.read() is None  # closed after the answer
    guest.close()
    settle([one], lambda: one.open == 0)


def test_one_that_is_refused_and_talks_on_still_reads_the_reason(party: Make, stranger: Bare) -> None:
    one = party(1)
    guest = stranger(one.endpoint)
    guest.hello(cluster_id="wrong")
    for _ in range(50):
        guest.send(question(1))
    settle([one], lambda: bool(one.told("peer_refused")))
    idle([one])
    for _ in range(50):
        guest.send(question(1))
    idle([one])
    assert "wrong" in guest.read().message
    assert guest.read() is None
    assert one.items == []


def test_one_that_is_refused_and_stays_is_closed(party: Make, stranger: Bare, clock: ManualClock) -> None:
    one = party(1)
    stranger(one.endpoint).hello(cluster_id="wrong")
    settle([one], lambda: bool(one.told("peer_refused")))
    idle([one])
    assert one.open == 1
    clock.advance(5_001)
    settle([one], lambda: one.open == 0)


# ------------------------------------------------------------------------------------------------------------- receivers


def test_what_a_receiver_raises_goes_out_and_nothing_else_is_lost(party: Make) -> None:
    one, two = party(1), party(2)
    got: list[int] = []

    def receive(_: Any, message: m.Fetched) -> None:
        if message.request == 3:
            raise KeyError("three")
        got.append(message.request)

    two.transport.unlisten(2)
    two.transport.listen(2, receive)
    for number in range(6):
        one.say(2, fetched(number))
    with pytest.raises(KeyError, match="three"):
        settle([one, two], lambda: len(got) == 6)
    assert two.transport.next_poll_ms() == 1_000_000
    assert two.transport.handle([], 1_000_000) == 2
    assert got == [0, 1, 2, 4, 5]
    one.say(2, fetched(6))
    settle([one, two], lambda: 6 in got)


def test_a_receiver_may_close_the_transport(party: Make) -> None:
    one, two = party(1), party(2)
    two.transport.unlisten(2)
    two.transport.listen(2, lambda *_: two.transport.close())
    for number in range(5):
        one.say(2, fetched(number))
    settle([one, two], lambda: two.transport.fileno() == -1)
    assert two.transport.handle([], 0) == 0
    assert two.transport.next_poll_ms() is None
    two.transport.wake()
    two.transport.flush()
    two.say(1, fetched(1))
    two.transport.abandon()


def test_a_message_that_no_frame_carries_is_the_callers_mistake(party: Make) -> None:
    one = party(1)
    with pytest.raises(CodecError, match="Disconnected"):
        one.say(2, m.Disconnected(1))


def test_a_frame_that_is_too_large_is_not_sent(party: Make) -> None:
    one, two = party(1, limits=TcpLimits(frame_bytes_max=100_000)), party(2)
    one.say(2, fetched(1, piece(b"x" * 100_000)))
    one.say(2, fetched(2))
    settle([one, two], lambda: bool(two.items))
    assert [message.request for message in two.messages] == [2]
    assert "100000" in one.told("message_dropped")[0]["reason"]


def test_what_was_received_does_not_change_under_its_reader(party: Make) -> None:
    one, two = party(1), party(2)
    sizes = [10, 3_000, 20_000, 200_000, 255_000, 300_000, 1 << 20, 3 << 20] * 2
    for number, size in enumerate(sizes):
        one.say(2, fetched(number, piece(bytes([number]) * size)))
        settle([one, two], lambda want=number + 1: len(two.items) == want)  # type: ignore[misc]
    for message in two.messages:
        view = message.entries[0].slices[0].view()
        assert view == bytes([message.request]) * sizes[message.request]


def test_waiting_ends_when_woken_or_when_something_comes(party: Make) -> None:
    one, two = party(1), party(2)
    one.transport.wake()
    one.transport.wake()
    ready = one.transport.wait(None)
    assert len(ready) == 1
    one.transport.handle(ready, 0)
    assert one.transport.wait(0) == []
    assert one.transport.next_poll_ms() is None
    two.say(1, fetched(1))
    assert two.transport.next_poll_ms() == 1_000_000
    two.transport.poll(0)
    assert one.transport.wait(None)
