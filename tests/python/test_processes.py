"""Workers by fork and by spawn, and processes that end."""

import multiprocessing
import os
import signal
import subprocess
import sys

import numpy
import pytest

import fairlead
from conftest import MINUTE


def work(address, number):
    """In a worker: writes its number where it belongs, by an engine of its own."""
    with fairlead.Engine(transport="tcp") as engine:
        peer = engine.connect(address)
        slot = peer.lookup("slots", MINUTE).slice(8 * number, 8)
        peer.write(numpy.array([number + 1], "uint64"), slot).wait(MINUTE)
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_pool_of_workers(pair, method):
    slots = numpy.zeros(8, "uint64")
    pair.there.publish("slots", slots, "w")
    with multiprocessing.get_context(method).Pool(2) as pool:
        workers = pool.starmap(work, [(pair.there.listen_address, number) for number in range(8)])
        pool.close()
        pool.join()
    assert os.getpid() not in workers
    assert list(slots) == list(range(1, 9))


def test_in_a_child_of_fork_the_engine_is_inert(pair):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pair.here.allocate(8)
            said = b"allocated"
        except fairlead.Unavailable:
            said = b"unavailable"
        os.write(writing, said)
        del pair.peer
        pair.here.shutdown()
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 100) == b"unavailable"
    os.close(reading)
    pair.there.publish("target", pair.there.allocate(8), "w")
    pair.peer.write(b"12345678", pair.peer.lookup("target")).wait(MINUTE)


def script(text):
    return subprocess.Popen([sys.executable, "-X", "dev", "-W", "error", "-c", text], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env={**os.environ, "FAIRLEAD_LOG": "off"})


def test_a_program_that_forgets_its_engine_ends_quietly():
    with script("import fairlead, numpy\n"
                "engine = fairlead.Engine(listen='127.0.0.1:0', transport='tcp')\n"
                "peer = fairlead.Engine(transport='tcp').connect(engine.listen_address)\n"
                "engine.publish('x', numpy.zeros(8), 'w')\n"
                "transfer = peer.write(numpy.ones(8), peer.lookup('x'))\n"
                "print('end')") as program:
        assert program.communicate(timeout=MINUTE)[0] == "end\n"
        assert program.returncode == 0


def test_control_c_ends_a_wait():
    with script("import fairlead\n"
                "engine = fairlead.Engine(listen='127.0.0.1:0', transport='tcp')\n"
                "try:\n"
                "  print('waiting', flush=True)\n"
                "  engine.accept(None)\n"
                "except KeyboardInterrupt: print('interrupted')") as program:
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)  # once: another would come into what it does about the first
        assert program.communicate(timeout=MINUTE)[0] == "interrupted\n"
