import ctypes
import gc
import io
import pickle
import socket
import threading
import time
import urllib.request
import weakref
import zlib

import numpy
import pytest

import fairlead
from conftest import MINUTE


def test_an_array_is_written_and_read_in_place(pair):
    target = numpy.zeros(1000, "float32")
    pair.there.publish("target", target, "rw")
    remote = pair.peer.lookup("target")
    assert (remote.nbytes, remote.access, remote.tensor.dtype, remote.tensor.shape) == (4000, "rw", "float32", (1000,))
    source = numpy.arange(1000, dtype="float32")
    assert pair.peer.write(source, remote).wait(MINUTE).nbytes == 4000
    assert (target == source).all()
    back = numpy.empty(500, "float32")
    pair.peer.read(back, remote.slice(2000, 2000)).wait(MINUTE)
    assert (back == source[500:]).all()


def test_pool_memory_is_seen_by_numpy_without_a_copy(pair):
    memory = pair.here.allocate(4096)
    assert len(memory) == memory.nbytes == 4096 and memory.address % 4096 == 0
    array = memory.numpy("int32", (4, 8), offset=16)
    array[:] = 7
    assert bytes(memory.slice(16, 128)) == numpy.full((4, 8), 7, "int32").tobytes()
    assert not any(memoryview(memory)[:16])
    tensor = memory.tensor("int32", (4, 8), offset=16)
    assert numpy.shares_memory(tensor.numpy(), array) and tensor.numpy().shape == (4, 8)
    assert numpy.shares_memory(numpy.from_dlpack(tensor), array)
    assert tensor.__dlpack_device__() == (1, 0)
    kept = weakref.ref(array)
    del memory, tensor, array
    gc.collect()
    assert kept() is None


def test_strided_tensors_cross(pair):
    target = numpy.zeros((6, 10), "int16")
    pair.there.publish("target", target, "rw")
    remote = pair.peer.lookup("target")
    source = numpy.arange(240, dtype="int16").reshape(12, 20)[::2, ::-2]
    pair.peer.write_tensor(source, remote).wait(MINUTE)
    assert (target == source).all()
    with pytest.raises(ValueError, match="write_tensor"):
        pair.peer.write(source, remote)
    back = numpy.zeros((6, 10), "int16", order="F")
    pair.peer.read_tensor(back, remote).wait(MINUTE)
    assert (back == source).all()


def test_what_a_transfer_names_is_kept_and_then_let_go(pair):
    class Held(bytearray):
        pass

    target = pair.there.allocate(1 << 20)
    pair.there.publish("target", target, "w")
    remote = pair.peer.lookup("target")
    held = Held(b"x" * (1 << 20))
    gone = weakref.ref(held)
    transfer = pair.peer.write(held, remote)
    del held
    transfer.wait(MINUTE)
    assert bytes(target) == b"x" * (1 << 20)
    del transfer
    for _ in range(1000):  # it goes with the transfer's own end, a moment after the wait's
        pair.here.allocate(64)
        if gone() is None:
            break
    gc.collect()
    assert gone() is None


def test_batches_prepared_lists_and_selections(pair):
    target = pair.there.allocate(400)
    pair.there.publish("target", target, "w")
    remote = pair.peer.lookup("target")
    source = pair.here.allocate(400)
    source.numpy()[:] = numpy.arange(400) % 251
    pieces = [(source.slice(100 * i, 100), remote.slice(300 - 100 * i, 100)) for i in range(4)]
    pair.peer.write_batch(pieces).wait(MINUTE)
    assert bytes(target) == b"".join(bytes(source.slice(100 * i, 100)) for i in (3, 2, 1, 0))
    prepared = pair.peer.prepare_write(pieces)
    assert len(prepared) == 4 and prepared.nbytes == 400
    target.numpy()[:] = 0
    pair.peer.post(prepared, [3, 1], notify_bytes=b"\3\1", notify=2).wait(MINUTE)
    assert bytes(target.slice(0, 100)) == bytes(source.slice(300, 100)) and not any(bytes(target.slice(100, 100)))
    peer, event = next_of(pair.there, "notification")
    assert (event.value, event.data, event.urgent) == (2, b"\3\1", False)
    assert peer in pair.there.peers() and hash(peer) == hash(pair.there.peers()[0]) and peer != pair.peer
    with pytest.raises(fairlead.InvalidArgument):
        pair.peer.post(prepared, [4]).wait(MINUTE)


def next_of(engine, kind):
    while True:
        peer, event = engine.next_event(MINUTE)
        if event.kind == kind:
            return peer, event


def test_messages_and_order(pair):
    first = pair.peer.send(b"hello", 7)
    second = pair.peer.send(memoryview(b"xworld")[1:], 8, urgent=True, after=first)
    fairlead.wait_all([first, second], MINUTE)
    assert fairlead.wait_any([first, second], MINUTE) == 0
    found = {event.value: (event.data, event.urgent) for _, event in (next_of(pair.there, "message") for _ in range(2))}
    assert found == {7: (b"hello", False), 8: (b"world", True)}


def test_atomics(pair):
    word = numpy.zeros(2, "uint64")
    pair.there.publish("word", word, "a")
    remote = pair.peer.lookup("word").slice(8, 8)
    assert pair.peer.fetch_add(remote, 5).wait(MINUTE).old_value == 0
    assert pair.peer.compare_swap(remote, 5, 11).wait(MINUTE).old_value == 5
    assert list(word) == [0, 11]


def test_export_and_list(pair):
    secret = pair.there.allocate(100)
    capability = pair.there.export(secret, "r")
    assert pair.peer.import_(capability).nbytes == 100
    pair.there.unexport(capability)
    with pytest.raises(fairlead.Denied):
        pair.peer.import_(capability)
    for name in ("a/1", "a/2", "b"):
        pair.there.publish(name, secret)
    assert [region.name for region in pair.peer.list("a/")] == ["a/1", "a/2"]
    pair.there.unpublish("a/1")
    with pytest.raises(fairlead.NotFound) as caught:
        pair.peer.lookup("a/1")
    assert caught.value.code is fairlead.Code.NOT_FOUND and isinstance(caught.value, LookupError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.code is fairlead.Code.NOT_FOUND and str(again) == str(caught.value)


def test_files_and_read_only_memory(pair, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    memory = pair.there.map_file(path)
    assert memory.read_only and bytes(memory) == b"0123456789"
    with pytest.raises((ValueError, TypeError)):
        memory.numpy()[0] = 1
    pair.there.publish("file", memory)
    with pytest.raises(ValueError, match="read-only"):
        pair.peer.read(b"1234567890", pair.peer.lookup("file"))
    with pytest.raises(ValueError, match="read-only"):
        pair.there.register(b"1234567890", "w")
    with pytest.raises(BufferError):
        memory.tensor("uint8", (10,)).__dlpack__()
    assert bytes(pair.there.register(b"1234567890", "r").memory) == b"1234567890"


def test_what_no_buffer_can_show_is_an_error(pair):
    memory = pair.there.allocate(64)
    for dtype in ("bfloat16", "float8_e5m2"):
        for as_array in (fairlead.Tensor.numpy, numpy.asarray):
            with pytest.raises(TypeError, match=f"NumPy has no {dtype}: torch.from_dlpack"):
                as_array(memory.tensor(dtype, (4,)))
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(memory.tensor("bfloat16", (4,)))
    with pytest.raises(ValueError, match="gaps"):
        pair.there.register(numpy.zeros(8, "complex64")[::2])
    whole = pair.there.register(numpy.zeros(8, "complex64"))
    assert whole.dtype == "uint8" and whole.nbytes == 64


class OnCuda:
    """As a tensor of CUDA device 3 shows itself, by DLPack."""

    def __init__(self):
        self.here = numpy.arange(8, dtype="float32")
        self.shape = (ctypes.c_int64 * 1)(8)

    def __dlpack__(self):
        class Tensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                        ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

        self.tensor = Tensor(self.here.ctypes.data, 2, 3, 1, 2, 32, 1, ctypes.addressof(self.shape), None, 0, None, None)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_buffers_with_gaps_are_for_who_knows_of_strides(pair):
    turned = pair.here.register(numpy.arange(8.0)[::-1])
    table = pair.here.register(numpy.arange(12.0).reshape(3, 4).T)
    wide = pair.here.allocate(4).tensor("float32", (1 << 20,), strides=[0])
    for tensor in (turned, table, wide):
        for take in (zlib.crc32, io.BytesIO().write, numpy.frombuffer):
            with pytest.raises(BufferError, match="ascontiguousarray|not C-contiguous"):
                take(tensor)
        with pytest.raises(TypeError):
            io.BytesIO(bytes(96)).readinto(tensor)
    assert numpy.asarray(turned).tolist() == list(range(7, -1, -1))
    assert bytes(table) == numpy.arange(12.0).reshape(3, 4).T.tobytes()
    assert memoryview(table).f_contiguous and numpy.asarray(table).T.flags.c_contiguous
    plain = pair.here.register(numpy.arange(8.0))
    assert zlib.crc32(plain) == zlib.crc32(numpy.arange(8.0))


def test_what_has_no_bytes_one_behind_the_other_is_refused(pair):
    for nothing in (numpy.zeros(3, "V0"), numpy.zeros(3, [])):
        with pytest.raises(ValueError, match="no bytes"):
            pair.here.register(nothing)
    with pytest.raises(ValueError, match="CUDA device 3"):
        pair.peer.send(OnCuda())
    with pytest.raises(ValueError, match="gaps"):
        pair.peer.send(numpy.arange(8, dtype="u1")[::2])


def test_a_peers_words_need_not_be_utf8(make_pair):
    pair = make_pair(name=b"no \xff")
    assert pair.peer.name == "no \\xff" and pair.peer.address in repr(pair.peer)
    connected = next_of(pair.here, "connected")[1]
    assert connected.text
    with pytest.raises(fairlead.NotFound, match=r"no \\xfe"):
        pair.peer.lookup(b"no \xfe")


def test_what_is_wrong_is_said(pair):
    with pytest.raises(TypeError, match="no setting 'lissen'"):
        fairlead.Engine(lissen=":0")
    for setting, value, takes in (("paths", "two", "a whole number from 0 on"), ("paths", -1, "a whole number.*and -1 was given"),
                                  ("tcp_port", 65536, "a whole number from 0 to 65535"), ("verbs_gid_index", None, "a whole number from -"),
                                  ("peer_timeout", "soon", "seconds, such as 1.5"), ("listen", 3, "a str"),
                                  ("failover", "no", "a bool"), ("progress", 3, "one of 'application', 'auto', 'thread'"),
                                  ("require", 3, r"a list of str, such as \['hardware'\]"), ("forbid", [3], "a list of str")):
        with pytest.raises(TypeError, match=f"setting {setting} takes {takes}"):
            fairlead.Engine(**{setting: value})
    with pytest.raises(fairlead.InvalidArgument, match="no transport is left"):
        fairlead.Engine(forbid="shm,tcp,verbs")
    with pytest.raises(fairlead.InvalidArgument, match="paths"):
        fairlead.Engine(paths=99)
    with pytest.raises(fairlead.InvalidArgument, match="lanes is 1000000"):
        fairlead.Engine(lanes=10**6)
    with pytest.raises(ValueError, match="'thread'"):
        fairlead.Engine(progress="never")
    with pytest.raises(ValueError, match="access 'x'"):
        pair.here.publish("name", numpy.zeros(3), "x")
    with pytest.raises(TypeError, match="buffer protocol nor by DLPack"):
        pair.here.register(object())
    with pytest.raises(ValueError, match="no bytes"):
        pair.here.register(b"", "r")
    with pytest.raises(ValueError, match="no dtype"):
        fairlead.TensorSpec("float7", [3])
    with pytest.raises(fairlead.InvalidArgument, match="101"):
        pair.here.allocate(100).slice(0, 101)
    with pytest.raises(TypeError):
        pickle.dumps(pair.here)
    target = pair.there.allocate(10)
    pair.there.publish("target", target)
    with pytest.raises(fairlead.Denied):
        pair.peer.write(bytes(10), pair.peer.lookup("target")).wait(MINUTE)
    assert fairlead.__version__ == fairlead._core.version()


def test_objects_of_pythons_are_no_bytes(pair):
    """Whoever could write them would choose what Python follows as a pointer here."""
    named = numpy.zeros(4, [("On", "i4"), ("O", "f4")])  # fields of that name are none
    pair.there.publish("target", pair.there.allocate(named.nbytes), "rw")
    remote = pair.peer.lookup("target")
    pair.peer.read(named, remote).wait(MINUTE)
    for array in (numpy.array([object()] * 4), numpy.zeros(2, [("a", "i8"), ("b", "O")])):
        for act in (lambda: pair.peer.read(array, remote), lambda: pair.peer.write(array, remote),
                    lambda: pair.peer.send(array), lambda: pair.here.register(array)):
            with pytest.raises(TypeError, match="Python objects"):
                act()


def test_pairs_that_are_none_are_named(pair):
    pair.there.publish("target", pair.there.allocate(8), "rw")
    remote = pair.peer.lookup("target")
    for pairs, words in (([1], "item 0 of the pairs is 1"), ([(bytes(8), remote), (remote, bytes(8))], "item 1 of the pairs"),
                         ([(bytes(8), remote, 1)], r"\(local, remote\)"), ({1: 2}, "item 0")):
        for act in (pair.peer.write_batch, pair.peer.prepare_write):
            with pytest.raises(TypeError, match=words):
                act(pairs)


def test_times_are_numbers_or_none(pair):
    nan = float("nan")
    pair.there.publish("target", pair.there.allocate(8))
    sent = pair.peer.send(b"x", deadline=MINUTE).wait(None)
    for act in (lambda: pair.here.next_event(nan), lambda: pair.there.accept(nan), lambda: pair.peer.next_event(nan),
                lambda: pair.peer.lookup("target", nan), lambda: pair.peer.list("", nan), lambda: pair.peer.wait_ready(nan),
                lambda: pair.peer.send(b"x", deadline=nan), lambda: pair.peer.close(nan),
                lambda: sent.wait(nan), lambda: fairlead.wait_all([sent], nan), lambda: fairlead.wait_any([sent], nan),
                lambda: fairlead.list_models(pair.here, pair.there.listen_address, timeout=nan)):
        with pytest.raises(ValueError, match="nan"):
            act()
    with pytest.raises(ValueError, match="setting connect_timeout: .*nan"):
        fairlead.Engine(connect_timeout=nan)
    assert pair.peer.lookup("target", None).nbytes == 8
    pair.peer.close(None)


def test_names_that_are_not_utf8_can_be_looked_up_as_they_are_shown(pair):
    pair.there.publish(b"no \xff", pair.there.allocate(8))
    (found,) = pair.peer.list("no ")
    assert found.name == "no \udcff" and pair.peer.lookup(found.name).nbytes == 8
    assert [each.name for each in pair.peer.list(b"no \xff")] == [found.name]
    pair.there.unpublish(found.name)
    with pytest.raises(fairlead.NotFound):
        pair.peer.lookup(found.name)
    with pytest.raises(TypeError, match="a str or bytes, and not 3"):
        pair.peer.lookup(3)


def test_waits_end_in_time_or_with_the_engine(pair):
    with socket.create_server(("127.0.0.1", 0)) as silent, fairlead.Engine(transport="tcp") as engine:
        with pytest.raises(TimeoutError):
            engine.connect("127.0.0.1:%d" % silent.getsockname()[1]).wait_ready(0.01)
    while pair.there.next_event(0.0):
        pass
    assert pair.there.next_event(0.01) is None
    assert pair.there.accept(MINUTE) is not None and pair.there.accept(0.01) is None
    ended = []

    def wait():
        try:
            pair.there.accept(None)
        except fairlead.Error as error:
            ended.append(error.code)

    waiting = threading.Thread(target=wait)
    waiting.start()
    pair.there.shutdown()
    waiting.join(MINUTE)
    assert len(ended) == 1
    with pytest.raises(fairlead.Unavailable):
        pair.there.allocate(1)


def test_threads_go_on_while_one_waits(pair):
    """Python's lock is free during a wait: else this would never end."""
    got = []
    thread = threading.Thread(target=lambda: got.append(next_of(pair.there, "message")))
    thread.start()
    for _ in range(100):
        pair.peer.lookup  # noqa: B018
    pair.peer.send(b"now").wait(MINUTE)
    thread.join(MINUTE)
    assert got[0][1].data == b"now"


def test_metrics(pair, tmp_path):
    where = pair.there.serve_metrics("127.0.0.1:0", discovery=str(tmp_path), service="trainer")
    ready = '\nfairlead_sessions{transport="tcp",state="ready"} 1\n'
    until = time.monotonic() + MINUTE  # this end is ready a moment after the one that connected
    while ready not in (page := urllib.request.urlopen(f"http://{where}/metrics", timeout=MINUTE).read().decode()) and time.monotonic() < until:
        time.sleep(0.01)
    assert ready in page and "\nfairlead_sessions_total 1\n" in pair.there.metrics_text()
    (found,) = tmp_path.iterdir()
    assert where in found.read_text() and "trainer" in found.read_text()
    with pytest.raises(fairlead.Error, match=where):
        pair.there.serve_metrics("127.0.0.1:0")
    with pytest.raises(fairlead.Error, match=where):
        pair.here.serve_metrics(where)
    pair.there.shutdown()
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{where}/metrics", timeout=MINUTE)


def test_figures(pair):
    pair.there.publish("target", pair.there.allocate(1000), "w")
    pair.peer.write(bytes(1000), pair.peer.lookup("target")).wait(MINUTE)
    assert pair.peer.stats()["bytes_written"] == 1000
    assert [pair.peer.stats()[what] for what in ("transfers_under_way", "awaiting_credit")] == [0, 0]
    stats = pair.here.stats()
    assert stats["peers_connected"] == 1 and [each["transport"] for each in stats["transports"]] == ["tcp"]
    assert pair.peer.transport == "tcp" and pair.peer.state == "ready" and "tcp" in pair.peer.explain()
    assert any(each["usable"] for each in pair.here.devices())
    assert pair.here.placement()
