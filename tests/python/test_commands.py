import asyncio
import threading
import urllib.request

import numpy
import pytest

import fairlead
from conftest import MINUTE
from fairlead.command import Graph, Pointer, Service, Session


@pytest.fixture
def session():
    with Service(fairlead.Engine(listen="127.0.0.1:0", transport="tcp"), memory_bytes=1 << 24) as service:
        engine = fairlead.Engine(transport="tcp")
        with Session(engine, service.listen_address, patience=MINUTE) as made:
            yield made
        engine.shutdown()


def test_vectors_are_added(session):
    a, b = numpy.arange(10000, dtype="float32"), numpy.ones(10000, "float32")
    x, y, add = (session.new_handle() for _ in range(3))
    channel = session.open_channel()
    assert channel.allocate(x, a.nbytes) == 1
    channel.allocate(y, b.nbytes)
    channel.load(add, "vector_add")
    channel.copy_in(x, a)
    channel.copy_in(y, b)
    channel.launch(add, Pointer(x), Pointer(y), Pointer(y), numpy.uint32(a.size), grid=(40, 1, 1), block=256)
    out = numpy.empty_like(a)
    channel.copy_out(out, y)
    channel.synchronize(MINUTE)
    assert (out == a + 1).all()
    assert channel.reached() == channel.last and not session.limits["range"][1]


def test_what_is_copied_out_is_kept_until_it_is_written(session):
    channel, x = session.open_channel(), session.new_handle()
    channel.allocate(x, 1000)
    channel.fill(x, 0, 1000, 5)
    for _ in range(200):
        channel.copy_out(bytearray(1000), x)  # nobody keeps it
    out = bytearray(1000)
    sequence = channel.copy_out(out, x)

    async def wait():
        await channel.done(sequence, timeout=MINUTE)

    asyncio.run(wait())
    assert out == b"\5" * 1000


class Witness(bytearray):
    """Remembers whether it was written when it was let go of."""

    written = []

    def __del__(self):
        Witness.written.append(self[0] == 5 and self[6 << 20] == 5)


def test_what_is_copied_out_is_kept_though_a_later_piece_is_known_to_fail(session):
    channel, other, x = session.open_channel(), session.open_channel(), session.new_handle()
    channel.allocate(x, (8 << 20) - 1)
    channel.fill(x, 0, (8 << 20) - 1, 5)
    rounds = 20
    for _ in range(rounds):
        try:
            channel.copy_out(Witness(8 << 20), x)  # its last byte is not there
        except fairlead.Error:
            pass  # so soon
        while channel.failure is None:
            other.synchronize(MINUTE)
        other.synchronize(MINUTE)
        with pytest.raises(fairlead.Error):
            channel.synchronize(MINUTE)
        channel.recover()
    session.close()
    assert Witness.written == [True] * rounds


def test_arrays_with_gaps_are_refused(session):
    channel, gaps = session.open_channel(), numpy.arange(8, dtype="u1")[::2]
    for append in (lambda: channel.user(40000, gaps), lambda: channel.load_module(session.new_handle(), gaps),
                   lambda: channel.copy_in(session.new_handle(), gaps), lambda: channel.copy_out(gaps, session.new_handle()),
                   lambda: channel.launch(session.new_handle(), numpy.arange(4, dtype="u1")[::3])):
        with pytest.raises(ValueError, match="gaps"):
            append()
    assert channel.last == 0


def test_graphs_and_fences(session):
    channel, other = session.open_channel(), session.open_channel(priority=-1000)
    assert (channel.priority, other.priority) == (0, session.limits["priorities"][1])
    x, function, step = (session.new_handle() for _ in range(3))
    channel.allocate(x, 400)
    channel.fill(x, 0, 400, 0)
    one = session.new_handle()
    channel.allocate(one, 400)
    channel.copy_in(one, numpy.ones(100, "float32"))
    channel.load(function, "vector_add")
    graph = Graph()
    assert graph.launch(function, Pointer(x), Pointer(one), Pointer(x), numpy.uint32(100)) == 1
    channel.upload(step, graph)
    for _ in range(10):
        channel.launch_graph(step)
    other.fence(channel.record())
    out = numpy.empty(100, "float32")
    other.copy_out(out, x)
    other.synchronize(MINUTE)
    assert (out == 10).all()


def test_a_graph_is_updated_between_its_runs(session):
    channel = session.open_channel()
    x, one, ten, add, step = (session.new_handle() for _ in range(5))
    for handle, value in ((x, 0), (one, 1), (ten, 10)):
        channel.allocate(handle, 400)
        channel.copy_in(handle, numpy.full(100, value, "float32"))
    channel.load(add, "vector_add")
    graph = Graph()
    number = graph.launch(add, Pointer(x), Pointer(one), Pointer(x), numpy.uint32(100))
    channel.upload(step, graph)
    channel.launch_graph(step)
    channel.update_graph(step, number, Pointer(x), Pointer(ten), Pointer(x), numpy.uint32(100), grid=1, block=(1, 1, 1))
    channel.launch_graph(step)
    channel.update_graph(step, number, Pointer(x), Pointer(ten), Pointer(x), numpy.uint32(50))
    channel.launch_graph(step)
    out = numpy.empty(100, "float32")
    channel.copy_out(out, x)
    channel.synchronize(MINUTE)
    assert (out[:50] == 21).all() and (out[50:] == 11).all()
    channel.update_graph(step, number, Pointer(99), Pointer(ten), Pointer(x), numpy.uint32(100))  # no such memory
    with pytest.raises(fairlead.Error, match="99"):
        channel.synchronize(MINUTE)
    channel.recover()
    channel.launch_graph(step)  # as it was
    channel.copy_out(out, x)
    channel.synchronize(MINUTE)
    assert (out[:50] == 31).all() and (out[50:] == 11).all()
    with pytest.raises(ValueError):
        channel.update_graph(step, 0, Pointer(x))  # commands count from 1
    with pytest.raises(TypeError, match="numpy.uint32"):
        channel.update_graph(step, number, 5)


def test_failures_are_told_and_gone_on_from(session):
    channel = session.open_channel()
    assert channel.failure is None
    channel.release(99)
    with pytest.raises(fairlead.Error) as caught:
        channel.synchronize(MINUTE)
    assert caught.value.code is fairlead.Code.ABORTED
    assert (channel.failure["scope"], channel.failure["result"]) == ("command", 400)
    channel.recover()
    channel.synchronize(MINUTE)
    with pytest.raises(TypeError, match="numpy.uint32"):
        channel.launch(1, 5)
    with pytest.raises(ValueError, match="read-only"):
        channel.copy_out(b"read-only", 1)
    with pytest.raises(ValueError, match="stage 'over'"):
        channel.reached("over")


def test_extents_that_are_none_are_named(session):
    channel = session.open_channel()
    for extent in ({"grid": -1}, {"block": "x"}, {"grid": (1, 2, 3, 4)}, {"block": (1, -2)}, {"grid": 1.5}):
        with pytest.raises(ValueError, match=f"{next(iter(extent))} is .*x, y"):
            channel.launch(1, **extent)


def test_a_graph_may_grow_while_it_is_sent(session):
    channel, graph, x = session.open_channel(), Graph(), session.new_handle()
    channel.allocate(x, 64)
    graph.fill(x, 0, 64, 1)
    adding = threading.Thread(target=lambda: [graph.fill(x, 0, 64, 1) for _ in range(2000)])
    adding.start()
    while adding.is_alive():
        handle = session.new_handle()
        channel.upload(handle, graph)
        channel.release_graph(handle)
    adding.join()
    channel.synchronize(MINUTE)


def test_metrics_of_a_services_engine():
    engine = fairlead.Engine(listen="127.0.0.1:0", transport="tcp")
    where = engine.serve_metrics("127.0.0.1:0")
    with pytest.raises(fairlead.InvalidArgument, match=where):
        Service(engine)
    engine.shutdown()
    engine = fairlead.Engine(listen="127.0.0.1:0", transport="tcp")
    with Service(engine) as service:
        with pytest.raises(fairlead.InvalidArgument, match="a Service's already"):
            Service(engine)
        where = engine.serve_metrics("127.0.0.1:0")
        with fairlead.Engine(transport="tcp") as client, Session(client, service.listen_address, patience=MINUTE):
            page = urllib.request.urlopen(f"http://{where}/metrics", timeout=MINUTE).read().decode()
            assert "\nfairlead_sessions_total 1\n" in page and "\nfairlead_sessions_total 1\n" in engine.metrics_text()
            assert engine.stats()["peers_connected"] == 1
    del service
    assert "\nfairlead_sessions_total 1\n" in urllib.request.urlopen(f"http://{where}/metrics", timeout=MINUTE).read().decode()
    engine.shutdown()
