"""Event loops that wait for an engine: for its transfers, events and peers, by its one descriptor.

A transfer that is posted in a thread that runs an event loop is reported: the engine's descriptor becomes readable when it
is done, the loop takes the transfer's number, and who awaits that number goes on. No thread waits.

The engine's events come by the same descriptor, which stays readable while there are any. So they are taken too, and held
here for whoever asks for them: at most HELD of them. Beyond that they stay with the engine, whose peers then wait as they
always do for a program that takes no events, and the loop looks for transfers every PAUSE seconds instead.
"""

import asyncio
import collections
import os
import threading
import weakref

from fairlead._errors import Code, Unavailable

HELD = 1024
PAUSE = 0.002


class Waits:
    """Of one engine, for all loops that wait for it, which may run in several threads; a lock keeps them apart."""

    def __init__(self, queues):
        self._queues = queues
        # A signal's handler, or the collection of garbage, may end the engine in a thread that has it.
        self._lock = threading.RLock()
        _all.add(self)
        self._loops = {}  # loop: its own duplicate of the descriptor
        # Peers that are held do not hold the engine: it ends with the last handle that the program has.
        self._accepted = collections.deque()
        self._events = {}  # peer: itself, and its events, in order; who was served longest ago comes first
        self._held = 0
        self._ended = False
        self._waiters = {}  # a number of a transfer, a peer, or _ANY_EVENT or _ANY_PEER: futures

    # ---- loops

    def attach(self, loop):
        """From now on `loop` hears of what the engine has."""
        if loop in self._loops:
            return
        with self._lock:
            for closed in [each for each in self._loops if each.is_closed()]:
                os.close(self._loops.pop(closed))
            if loop in self._loops:
                return
            fd = self._queues.fd
            if fd < 0 or self._ended:
                raise Unavailable("this engine was shut down, or is of the process that forked this one", Code.UNAVAILABLE)
            self._loops[loop] = os.dup(fd)
        loop.add_reader(self._loops[loop], self._on_readable, loop)

    def _on_readable(self, loop):
        if not self._take():
            loop.remove_reader(self._loops[loop])
            loop.call_later(PAUSE, self._look_again, loop)

    def _look_again(self, loop):
        if loop not in self._loops:
            return
        if self._take():
            loop.add_reader(self._loops[loop], self._on_readable, loop)
        else:
            loop.call_later(PAUSE, self._look_again, loop)

    def _detach(self, loop):
        fd = self._loops.pop(loop, None)
        if fd is not None:
            loop.remove_reader(fd)
            os.close(fd)

    def _take(self):
        """Takes what there is. False: events are left with the engine."""
        gone = []  # not under the lock: destructors may come back here
        with self._lock:
            if self._ended:
                return True
            for number in self._queues.completed(4096):
                self._wake(number)
            while not self._ended and (peer := self._news(self._queues.accept)) is not None:
                if self._ended:
                    gone.append(peer)
                    break
                self._accepted.append(peer)
                self._wake(_ANY_PEER)
                if len(self._accepted) > HELD:  # one that ended and that nobody took gives way, as it does in the engine
                    ended = next((each for each in self._accepted if each.state == "closed"), None)
                    if ended is not None:
                        self._accepted.remove(ended)
                        gone.append(ended)
            while not self._ended and self._held < HELD and (pair := self._news(self._queues.next_event)) is not None:
                if self._ended:
                    gone.append(pair)
                    break
                self._events.setdefault(pair[0], (pair[0], collections.deque()))[1].append(pair[1])
                self._held += 1
                self._wake(pair[0])
                self._wake(_ANY_EVENT)
            return self._held < HELD

    def let_go(self):
        """Takes the transfers that are done, which hold their memory until then, where a thread waited and no loop turns."""
        with self._lock:
            if not self._ended:
                for number in self._queues.completed(4096):
                    self._wake(number)

    @staticmethod
    def _news(take):
        """None: there is none, or the engine has ended."""
        try:
            return take()
        except Unavailable:
            return None

    def closed(self, peer):
        """Somebody took the last event of `peer`: whoever waits for another is to look, and hear that there is none."""
        with self._lock:
            self._wake(peer)

    def end(self):
        """The engine has ended, or is about to: nobody waits any more, and what was held, which holds the engine, goes."""
        with self._lock:
            self._ended = True
            held = self._events, self._accepted
            self._events, self._accepted, self._held = {}, collections.deque(), 0
            for key in list(self._waiters):
                self._wake(key)
            loops = list(self._loops)
        del held  # not under the lock: destructors may come back here
        for loop in loops:
            if loop is asyncio._get_running_loop():
                self._detach(loop)
            elif not _in(loop, self._detach, loop):
                os.close(self._loops.pop(loop))

    # ---- who waits. A future says only that it is time to look again, so nothing is lost with one that was cancelled.

    def _wake(self, key):
        for future in self._waiters.pop(key, ()):
            loop = future.get_loop()
            if loop is asyncio._get_running_loop():
                _finish(future)
            else:
                _in(loop, _finish, future)

    async def _until(self, key, look):
        """What `look` finds, which is called again whenever there is news of `key`."""
        while True:
            with self._lock:
                found = look()
                if found is not None:
                    return found
                if self._ended:
                    raise Unavailable("the engine was shut down meanwhile", Code.UNAVAILABLE)
                future = asyncio.get_running_loop().create_future()
                self._waiters.setdefault(key, []).append(future)
            try:
                await future
            finally:
                with self._lock:
                    futures = self._waiters.get(key)
                    if futures and future in futures:
                        futures.remove(future)
                        if not futures:
                            del self._waiters[key]

    async def transfer(self, transfer):
        await self._until(transfer._id, lambda: True if transfer.done else None)

    async def event(self, peer=None):
        """(peer, event). Raises what ended the session once all that it told has been taken."""
        found = await self._until(_ANY_EVENT if peer is None else peer, lambda: self._pop(peer) or self._last(peer))
        if found[1].kind == "closed":
            self.closed(found[0])
        return found

    def _last(self, peer):
        """What a session that has ended left with the engine, which raises if that is nothing."""
        if peer is None or peer.state != "closed":
            return None
        event = peer._next_event(0.0)
        return None if event is None else (peer, event)

    async def peer(self):
        return await self._until(_ANY_PEER, lambda: self._accepted.popleft().peer() if self._accepted else None)

    def _pop(self, peer):
        if peer is None:
            peer = next(iter(self._events), None)
        held, events = self._events.pop(peer, (None, None))
        if events is None:
            return None
        event = events.popleft()
        self._held -= 1
        if events:
            self._events[held] = held, events  # behind the others
        return held.peer(), event

    def held_event(self, peer=None):
        """A pair of a peer and its event that a loop has taken, or None."""
        with self._lock:
            return self._pop(peer)

    def held_peer(self):
        """A peer that a loop has accepted, or None."""
        with self._lock:
            return self._accepted.popleft().peer() if self._accepted else None


_ANY_EVENT, _ANY_PEER = object(), object()
_all = weakref.WeakSet()


def _in_child():
    for each in list(_all):
        each._lock = threading.RLock()  # a thread of the parent's may have it


os.register_at_fork(after_in_child=_in_child)


def _finish(future):
    if not future.done():
        future.set_result(None)


def _in(loop, call, *arguments):
    """Calls it there. False: the loop has been closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return False
    return True
