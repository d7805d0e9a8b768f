"""What ends while somebody awaits it: sessions, engines, loops, the interpreter."""

import asyncio
import subprocess
import sys
import threading

import pytest

import fairlead
from conftest import MINUTE
from test_async import published, run


async def accepted_by(pair):
    peer = await pair.there.accepted()
    assert (await peer.event()).kind == "connected"
    return peer


def test_after_its_last_event_a_session_says_what_ended_it(pair):
    async def main():
        peer = await accepted_by(pair)
        pair.peer.close()
        assert (await peer.event()).kind == "closed"
        for _ in range(2):
            with pytest.raises(fairlead.Unavailable, match="closed"):
                await peer.event()
        with pytest.raises(fairlead.Unavailable, match="closed"):
            async for _ in peer.events():
                pass
        with pytest.raises(fairlead.Unavailable, match="closed"):
            peer.next_event(None)
        assert not peer._waits._waiters

    run(main())


def test_of_several_who_wait_one_gets_the_last_event(pair):
    async def main():
        peer = await accepted_by(pair)
        waits = [asyncio.ensure_future(peer.event()) for _ in range(3)]
        await asyncio.sleep(0)
        pair.peer.close()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert [each.kind for each in results if isinstance(each, fairlead.Event)] == ["closed"]
        assert sum(isinstance(each, fairlead.Unavailable) for each in results) == 2

    run(main())


@pytest.mark.parametrize("of_engine", [True, False])
def test_who_waits_hears_that_a_thread_took_the_last_event(pair, of_engine):
    async def main():
        peer = await accepted_by(pair)
        taken = []
        waiting = asyncio.ensure_future(peer.event())
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        pair.peer.close()

        def take():
            taken.append(pair.there.next_event(MINUTE)[1] if of_engine else peer.next_event(MINUTE))

        # The loop is kept from taking it itself; the thread takes what is held or what the engine has.
        loop.remove_reader(peer._waits._loops[loop])
        thread = threading.Thread(target=take)
        thread.start()
        with pytest.raises(fairlead.Unavailable, match="closed"):
            await waiting
        thread.join(MINUTE)
        assert [each.kind for each in taken] == ["closed"]

    run(main())


def test_a_session_that_never_began_says_why():
    async def main():
        with fairlead.Engine(transport="tcp", connect_timeout=0.05) as engine:
            peer = engine.connect("127.0.0.1:1")
            event = await peer.event()
            assert event.kind == "closed"
            with pytest.raises(fairlead.Error) as ended:
                event.check()
            with pytest.raises(fairlead.Error) as again:
                await peer.event()
            assert again.value.code == ended.value.code and str(again.value) == str(ended.value)
            with pytest.raises(fairlead.Error):
                await peer.ready(MINUTE)

    run(main())


def test_an_engine_that_does_not_listen_says_so():
    async def main():
        with fairlead.Engine(transport="tcp") as engine:
            with pytest.raises(fairlead.InvalidArgument, match="listen"):
                await engine.accepted()
        for what in (engine.accepted, engine.event):
            with pytest.raises(fairlead.Unavailable, match="shut down"):
                await what()

    run(main())


def test_a_transfer_is_awaited_in_another_loop_than_it_was_posted_in(pair):
    _, remote = published(pair, 1 << 26)

    async def post():
        return pair.peer.write(bytearray(1 << 26), remote)

    async def wait(transfer):
        assert (await transfer).done

    run(wait(run(post())))


def test_transfers_of_a_session_that_ends_are_awaited_to_their_end(pair):
    _, remote = published(pair, 1 << 26)

    async def main():
        source = pair.here.allocate(1 << 26)
        moves = [pair.peer.write(source, remote) for _ in range(20)]
        waits = [asyncio.ensure_future(asyncio.wait_for(each, MINUTE)) for each in moves]
        await asyncio.sleep(0)
        pair.peer.close(0.0)
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(each, (fairlead.Transfer, fairlead.Error)) for each in results), results
        assert isinstance(results[-1], fairlead.Error) and moves[-1].done
        with pytest.raises(fairlead.Error, match="closed"):
            await pair.peer.write(source, remote)
        assert not pair.peer._waits._waiters

    run(main())


def test_cancelled_awaits_leave_nothing_behind(pair):
    async def main():
        peer = await accepted_by(pair)
        waits = [asyncio.ensure_future(each) for each in (peer.event(), pair.there.event(), pair.there.accepted())]
        await asyncio.sleep(0)
        assert pair.there._waits._waiters
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert all(each.cancelled() for each in waits) and not pair.there._waits._waiters

    run(main())


def test_a_loop_ends_though_a_wait_on_its_threads_was_cancelled():
    """What no command ends: else asyncio.run() would wait for its thread for ever."""

    async def main():
        def wait(_):
            raise fairlead.DeadlineExceeded("not yet", fairlead.Code.DEADLINE_EXCEEDED)

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(fairlead._api._on_thread(wait, None), 0.01)
        with pytest.raises(fairlead.DeadlineExceeded, match="not yet"):
            await fairlead._api._on_thread(wait, 0.01)

    run(main())


BEGIN = """
import asyncio, sys, threading, fairlead
there, here = fairlead.Engine(listen="127.0.0.1:0", transport="tcp"), fairlead.Engine(transport="tcp")
there.publish("target", there.allocate(1 << 26), "rw")
peer = here.connect(there.listen_address)
peer.wait_ready(60)
remote, source = peer.lookup("target", 60), here.allocate(1 << 26)
waits = []
async def begin():
    for each in (peer.write(source, remote), here.event(), peer.event(), there.accepted(), there.accepted(), peer.ready(None)):
        waits.append(asyncio.ensure_future(each if asyncio.iscoroutine(each) else awaited(each)))
    await asyncio.sleep(0)
async def awaited(transfer):
    return await transfer
"""
ENDS = {
    "the loop ends with tasks in it": "asyncio.run(begin())\nprint(all(each.done() for each in waits))",
    "sys.exit in a coroutine": "async def main():\n    await begin()\n    print(True, flush=True)\n    sys.exit(0)\nasyncio.run(main())",
    "a loop that is left as it is": "loop = asyncio.new_event_loop()\nloop.run_until_complete(begin())\nprint(True)\n"
                                    "[each.cancel() for each in waits]\nloop.run_until_complete(asyncio.sleep(0))\nloop.close()",
    "a daemon's loop that goes on": "async def main():\n    await begin()\n    ready.set()\n    await asyncio.sleep(600)\n"
                                    "ready = threading.Event()\n"
                                    "threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()\n"
                                    "ready.wait(60)\nprint(True)",
    "a daemon that waits in a call": "threading.Thread(target=lambda: there.next_event(None), daemon=True).start()\n"
                                     "threading.Thread(target=lambda: there.accept(None), daemon=True).start()\nprint(True)",
}


# Module globals go when Python has begun to end, and from then on gives no other thread its lock: here that takes so long
# that a piece of each wait ends meanwhile.
ENDS["daemons whose waits end while Python does"] = (
    "import atexit, collections, functools, time\natexit.unregister(fairlead._api._shut_down_all)\n"
    "class Slow:\n    sleep = staticmethod(time.sleep)\n    def __del__(self):\n        self.sleep(0.5)\nslow = Slow()\n"
    "for call in (here.next_event, here.accept):\n    calls = iter(functools.partial(call, None), 0)\n"
    "    threading.Thread(target=collections.deque, args=(calls, 0), daemon=True).start()\n"
    "time.sleep(0.05)\nprint(True)")


@pytest.mark.parametrize("how", ENDS)
def test_the_interpreter_ends_with_awaits_in_flight(how):
    done = subprocess.run([sys.executable, "-X", "dev", "-c", BEGIN + ENDS[how]], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=MINUTE, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert "Fatal" not in done.stderr and "Segmentation" not in done.stderr


def test_what_polls_hears_that_the_engine_was_shut_down():
    engine = fairlead.Engine(listen="127.0.0.1:0", transport="tcp")
    assert engine.accept() is None
    assert engine.next_event() is None
    engine.shutdown()
    with pytest.raises(fairlead.Error, match="shut down"):
        engine.accept()
    with pytest.raises(fairlead.Error, match="shut down"):
        engine.next_event()


def test_a_signals_handler_may_end_the_engine_of_a_loop_that_takes_from_it():
    engine = fairlead.Engine(transport="tcp")
    with engine._waits._lock:  # where the handler may have come
        engine.shutdown()


def test_what_a_newer_release_says_is_an_error_of_ours():
    error = fairlead._errors.made_of(99, "10.0.0.7: no")
    assert error.code == fairlead.Code.INTERNAL and "10.0.0.7" in str(error)
