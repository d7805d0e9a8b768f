"""What the package adds to the classes of fairlead._core: waiting in event loops, and `with`."""

import asyncio
import atexit
import math
import threading
import time
import weakref

from fairlead import _core
from fairlead._errors import DeadlineExceeded

_engines = weakref.WeakSet()
PIECE = 0.1  # seconds of a thread's wait between looks at what event loops have taken meanwhile


def _await_transfer(self):
    """`await transfer` gives the transfer once it is done, or raises what it failed with."""
    if not self.done:
        if not self._reported:
            raise RuntimeError("this transfer was posted where no event loop was running: wait() for it, or post it from "
                               "a coroutine")
        self._waits.attach(asyncio.get_running_loop())  # which need not be the one that it was posted in
        yield from self._waits.transfer(self).__await__()
    self.check()
    return self


def _engine_init(init):
    def __init__(self, **settings):
        init(self, **settings)
        _engines.add(self)

    __init__.__doc__ = init.__doc__
    return __init__


def _engine_shutdown(shutdown):
    def wrapped(self):
        """Ends every session, and every wait. What is called afterwards raises Unavailable."""
        shutdown(self)
        self._waits.end()

    return wrapped


def end_of(timeout):
    """When a wait of so many seconds that begins now is over, by time.monotonic(); None: never."""
    if timeout is None:
        return None
    if math.isnan(timeout):
        raise ValueError("a timeout is nan: give seconds, such as 1.5, or None for ever")
    return time.monotonic() + timeout


def _from_either(held, take, timeout):
    """What an event loop holds, or `take` finds within `timeout` seconds (None: however long it takes)."""
    end = end_of(timeout)
    while True:
        found = held()
        if found is not None:
            return found
        left = PIECE if end is None else end - time.monotonic()
        found = take(max(0.0, min(left, PIECE)))
        if found is not None:
            return found
        if end is not None and not left > PIECE:
            return held()


def _engine_accept(self, timeout=0.0):
    """A peer that connected to us, or None if none did within `timeout` seconds (None: however long it takes)."""
    return _from_either(self._waits.held_peer, self._accept, timeout)


def _engine_next_event(self, timeout=0.0):
    """(peer, event), or None if none came within `timeout` seconds (None: however long it takes)."""
    pair = _from_either(self._waits.held_event, self._next_event, timeout)
    if pair is not None and pair[1].kind == "closed":
        self._waits.closed(pair[0])
    return pair


def _peer_next_event(self, timeout=0.0):
    """The session's next Event, or None if none came within `timeout` seconds (None: however long it takes)."""

    def held():
        pair = self._waits.held_event(self)
        return pair[1] if pair is not None else None

    event = _from_either(held, self._next_event, timeout)
    if event is not None and event.kind == "closed":
        self._waits.closed(self)
    return event


async def _on_thread(wait, timeout, over=lambda: False):
    """`wait`, which raises DeadlineExceeded after so many seconds, on a thread of the loop's pool: in pieces, since a loop
    and the interpreter end only when their threads have, and who awaits it may have been cancelled. `over`: it has failed
    with that for good."""
    end = end_of(timeout)
    gone = threading.Event()

    def in_pieces():
        while not gone.is_set():
            left = PIECE if end is None else max(0.0, end - time.monotonic())
            try:
                return wait(min(left, PIECE))
            except DeadlineExceeded:
                if left <= PIECE and end is not None or over():
                    raise

    try:
        await asyncio.get_running_loop().run_in_executor(None, in_pieces)
    finally:
        gone.set()


async def _engine_accepted(self):
    """Waits for a peer that connects to us."""
    if not self.listen_address:
        self._accept(PIECE)  # raises that it does not listen, or was shut down
    self._attach()
    return await self._waits.peer()


async def _engine_event(self):
    """Waits for the next event of any peer: (peer, event)."""
    self._attach()
    return await self._waits.event()


async def _engine_events(self):
    """All events of all peers, as they come: `async for peer, event in engine.events()`."""
    while True:
        yield await self.event()


async def _peer_event(self):
    """Waits for the session's next Event. After the last, 'closed', raises what ended the session."""
    self._attach()
    return (await self._waits.event(self))[1]


async def _peer_events(self):
    """The session's events until it is closed, that event included: `async for event in peer.events()`."""
    while True:
        event = await self.event()
        yield event
        if event.kind == "closed":
            return


async def _peer_ready(self, timeout=10.0):
    """Waits until transfers can begin. The wait is on a thread of the loop's pool, as lookups are."""
    await _on_thread(self.wait_ready, timeout, lambda: self.state == "closed")
    return self


async def _peer_find(self, name, timeout=10.0):
    """lookup(), on a thread of the loop's pool."""
    return await asyncio.get_running_loop().run_in_executor(None, self.lookup, name, timeout)


async def _channel_done(self, sequence=None, stage="complete", timeout=None):
    """Waits for a command, by default the last, on a thread of the loop's pool."""
    wanted = self.last if sequence is None else sequence
    await _on_thread(lambda piece: self.wait(wanted, stage, piece), timeout)


def _memory_numpy(self, dtype="uint8", shape=None, offset=0):
    """The bytes as a NumPy array, without a copy: of all elements from byte `offset` on, or of `shape`."""
    import numpy

    count = -1 if shape is None else int(numpy.prod(shape, dtype=numpy.int64))
    flat = numpy.frombuffer(self, dtype=dtype, count=count, offset=offset)
    return flat if shape is None else flat.reshape(shape)


def _tensor_array(self, dtype=None, copy=None):
    """What NumPy asks who does not show it the bytes, before it makes an array of one object of it."""
    import numpy

    if self.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise TypeError(f"NumPy has no {self.dtype}: torch.from_dlpack(tensor)")
    array = numpy.asarray(memoryview(self), dtype)
    return array.copy() if copy else array


def _tensor_numpy(self):
    """The tensor as a NumPy array, without a copy. NumPy has no bfloat16 and no float8: torch.from_dlpack() has."""
    import numpy

    return numpy.asarray(self)


@atexit.register
def _shut_down_all():
    """The engines that are left go before Python does."""
    for engine in list(_engines):
        engine.shutdown()


def extend():
    """Adds all of it. Called once, when the package is imported."""
    _core.Transfer.__await__ = _await_transfer
    engine, peer = _core.Engine, _core.Peer
    engine.__init__ = _engine_init(engine.__init__)
    engine.shutdown = _engine_shutdown(engine.shutdown)
    engine.__enter__ = lambda self: self
    engine.__exit__ = lambda self, *_: self.shutdown()
    engine.accept, engine.next_event = _engine_accept, _engine_next_event
    engine.accepted, engine.event, engine.events = _engine_accepted, _engine_event, _engine_events
    peer.next_event, peer.event, peer.events = _peer_next_event, _peer_event, _peer_events
    peer.ready, peer.find = _peer_ready, _peer_find
    _core.command.Channel.done = _channel_done
    _core.Memory.numpy, _core.Tensor.numpy, _core.Tensor.__array__ = _memory_numpy, _tensor_numpy, _tensor_array
    for name in ("Engine", "Peer", "Transfer", "Prepared", "Memory", "RemoteMemory", "Tensor", "TensorSpec", "Event"):
        getattr(_core, name).__module__ = "fairlead"
