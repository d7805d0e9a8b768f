import asyncio
import gc
import threading
import weakref

import numpy
import pytest

import fairlead
from conftest import MINUTE


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, MINUTE))


def published(pair, nbytes, access="rw"):
    memory = pair.there.allocate(nbytes)
    pair.there.publish("target", memory, access)
    return memory, pair.peer.lookup("target")


def test_transfers_are_awaited(pair):
    memory, remote = published(pair, 1000)

    async def main():
        source = numpy.arange(1000) % 250
        transfer = pair.peer.write(source.astype("uint8"), remote)
        assert await transfer is transfer and transfer.done
        assert await transfer is transfer  # again
        assert await asyncio.gather(*(pair.peer.read(bytearray(1000), remote) for _ in range(10)))
        with pytest.raises(fairlead.InvalidArgument):
            await pair.peer.write(bytes(10), remote)
        assert bytes(memory) == source.astype("uint8").tobytes()

    run(main())


def test_10000_awaits_are_in_flight_and_no_thread_waits(make_pair):
    pair = make_pair(max_posted=20000)
    memory, remote = published(pair, 8 * 10000, "wa")

    async def main():
        threads = threading.active_count()
        source = pair.here.allocate(8 * 10000)
        source.numpy("uint64")[:] = numpy.arange(10000)
        tasks = [asyncio.ensure_future(pair.peer.write(source.slice(8 * i, 8), remote.slice(8 * i, 8))) for i in range(10000)]
        # All are posted, and have an await each, before any is done by the loop.
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        done = await asyncio.gather(*tasks)
        assert len(done) == 10000 and all(each.done for each in done)

    run(main())
    assert (memory.numpy("uint64") == numpy.arange(10000)).all()
    assert not pair.peer._waits._waiters


def test_who_waits_in_a_loop_that_does_not_turn_keeps_no_arrays(pair):
    _, remote = published(pair, 1 << 16)

    class Held(bytearray):
        pass

    async def main():
        gone = []
        for wait in (lambda each: each.wait(MINUTE), lambda each: fairlead.wait_all([each], MINUTE),
                     lambda each: fairlead.wait_any([each], MINUTE)):
            for _ in range(20):
                held = Held(1 << 16)
                gone.append(weakref.ref(held))
                wait(pair.peer.write(held, remote))
                del held
        pair.peer.send(b"").wait(MINUTE)  # a transfer counts as completed a moment after it is done
        gc.collect()
        pair.here.allocate(64)
        assert sum(each() is not None for each in gone) <= 2

    run(main())


def test_a_cancelled_await_leaves_the_transfer(pair):
    memory, remote = published(pair, 8)

    async def main():
        transfer = pair.peer.write(b"12345678", remote)
        task = asyncio.ensure_future(pair.peer._waits.transfer(transfer))
        await asyncio.sleep(0)
        task.cancel()
        await transfer
        await asyncio.gather(task, return_exceptions=True)
        assert bytes(memory) == b"12345678"
        assert not pair.peer._waits._waiters

    run(main())


def test_what_was_posted_elsewhere_is_not_awaited(pair):
    _, remote = published(pair, 1 << 24)
    transfer = pair.peer.write(bytes(1 << 24), remote)

    async def main():
        if not transfer.done:
            with pytest.raises(RuntimeError, match="no event loop was running"):
                await transfer

    run(main())
    transfer.wait(MINUTE)
    run(awaited(transfer))


async def awaited(transfer):
    return await transfer


def test_events_and_peers_are_awaited(pair):
    async def main():
        accepted = await pair.there.accepted()
        assert (await accepted.event()).kind == "connected"
        for number in range(3):
            pair.peer.send(b"message", number)
        assert [(await accepted.event()).value for _ in range(3)] == [0, 1, 2]
        waiting = asyncio.ensure_future(pair.there.event())
        await asyncio.sleep(0)
        await pair.peer.send(b"last", 3)
        peer, event = await waiting
        assert peer == accepted and event.data == b"last"
        assert pair.there.next_event(0) is None
        pair.peer.close()
        assert [event.kind async for event in accepted.events()] == ["closed"]

    run(main())


def test_a_cancelled_wait_loses_no_event(pair):
    async def main():
        accepted = await pair.there.accepted()
        await accepted.event()
        waits = [asyncio.ensure_future(accepted.event()) for _ in range(2)]
        await asyncio.sleep(0)
        sent = pair.peer.send(b"one", 1)
        while accepted._waits._held == 0:  # both are told, and neither has looked
            accepted._waits._take()
        waits[0].cancel()
        assert (await waits[1]).value == 1
        assert waits[0].cancelled()
        await sent

    run(main())


def test_events_that_nobody_takes_are_bounded_and_hold_nothing_up(make_pair):
    pair = make_pair(max_pending_events=4096)
    _, remote = published(pair, 8)
    many = fairlead._waits.HELD + 500

    async def main():
        accepted = await pair.there.accepted()
        back = accepted.lookup  # there, transfers go on while its events are not taken
        await asyncio.gather(*(pair.peer.send(b"", number) for number in range(many)))
        mine = pair.here.allocate(8)
        pair.here.publish("mine", mine, "w")
        await accepted.write(b"abcdefgh", await asyncio.to_thread(back, "mine"))
        assert bytes(mine) == b"abcdefgh"
        assert pair.there._waits._held <= fairlead._waits.HELD
        values = []
        while len(values) < many:
            event = await accepted.event()
            if event.kind == "message":
                values.append(event.value)
        assert values == list(range(many))

    run(main())


def test_peers_that_nobody_takes_give_way_when_they_ended(pair, monkeypatch):
    monkeypatch.setattr(fairlead._waits, "HELD", 8)

    async def main():
        reader = asyncio.ensure_future(until_closed(20))
        await asyncio.sleep(0)  # it waits, and so the loop takes what comes
        for _ in range(20):
            with fairlead.Engine(transport="tcp") as comes:
                peer = comes.connect(pair.there.listen_address)
                await asyncio.to_thread(peer.wait_ready, MINUTE)
                await asyncio.to_thread(peer.close)
        assert await reader == 20
        assert len(pair.there._waits._accepted) <= 8 + 1  # the pair's own lives

    async def until_closed(many):
        closed = 0
        async for _, event in pair.there.events():
            closed += event.kind == "closed"
            if closed == many:
                return closed

    run(main())


def test_several_loops_one_after_the_other_and_at_once(pair):
    _, remote = published(pair, 8)
    for _ in range(3):
        run(awaited_in_loop(pair, remote))
    ends = []
    threads = [threading.Thread(target=lambda: ends.append(run(awaited_in_loop(pair, remote, 200)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(MINUTE)
    assert ends == [200] * 3


async def awaited_in_loop(pair, remote, count=5):
    for _ in range(count):
        await pair.peer.write(b"12345678", remote)
    return count


def test_shutting_down_ends_waits(pair):
    async def main():
        waits = [asyncio.ensure_future(each) for each in (pair.there.event(), pair.there.accepted(), pair.there.accepted())]
        await asyncio.sleep(0)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        pair.there.shutdown()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert isinstance(results[2], fairlead.Unavailable)

    run(main())


def test_an_engine_goes_though_a_loop_knows_it():
    async def main():
        engine = fairlead.Engine(transport="tcp", listen="127.0.0.1:0")
        engine._attach()
        waits = engine._waits
        del engine
        gc.collect()
        assert waits._ended and not waits._loops
        await asyncio.sleep(0.01)

    run(main())


def test_an_engine_goes_with_what_nobody_took():
    async def main():
        there = fairlead.Engine(listen="127.0.0.1:0", transport="tcp")
        here = fairlead.Engine(transport="tcp")
        address = there.listen_address
        peers = [here.connect(address) for _ in range(2)]
        first = await there.accepted()  # the loop knows the engine from here on
        await asyncio.gather(*(peer.ready() for peer in peers))
        for peer in peers:
            await peer.send(b"nobody takes it")
        while there._waits._held < 3 or not there._waits._accepted:  # connected twice, and a message at least
            await asyncio.sleep(0.001)
        del first, there
        gc.collect()
        with pytest.raises(fairlead.Unavailable):
            await here.connect(address).ready()
        here.shutdown()

    run(main())


def test_lookups_are_awaited(pair):
    published(pair, 8)

    async def main():
        await pair.peer.ready(MINUTE)
        assert (await pair.peer.find("target")).nbytes == 8
        with pytest.raises(fairlead.NotFound):
            await pair.peer.find("nothing")

    run(main())


def test_a_thread_that_waits_sees_what_a_loop_takes(pair):
    began, found = threading.Event(), []

    def wait():
        began.set()
        found.append(pair.there.next_event(timeout=None))

    async def main():
        await asyncio.sleep(0)
        pair.there._attach()  # from here on the loop takes what comes, too
        thread = threading.Thread(target=wait)
        thread.start()
        began.wait()
        pair.peer.send(b"news")
        while thread.is_alive():
            await asyncio.sleep(0.01)

    run(main())
    ((_, event),) = found
    assert event.kind in ("connected", "message")


def test_an_engine_that_ended_holds_no_events(pair):
    async def main():
        pair.there._attach()
        pair.peer.send(b"news")
        while not pair.there._waits._held:
            await asyncio.sleep(0.01)
        pair.there.shutdown()

    run(main())
    assert not pair.there._waits._held and pair.there._waits.held_event() is None
    with pytest.raises(fairlead.Error, match="shut down"):
        pair.there.next_event(timeout=None)
