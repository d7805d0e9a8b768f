"""State dicts to and from `fairlead serve`."""

import json
import os
import socket
import subprocess
import time
import zlib

import numpy
import pytest

import fairlead
from conftest import MINUTE

try:
    import torch
except ImportError:
    torch = None


@pytest.fixture
def server(tmp_path):
    program = os.environ.get("FAIRLEAD")
    if not program or not os.path.exists(program):
        pytest.skip("FAIRLEAD names no program")
    ready = tmp_path / "ready.json"
    with subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--ready-file", ready], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + MINUTE
        while not (ready.exists() and ready.read_text()):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        yield json.loads(ready.read_text())["listen"]
        process.terminate()


@pytest.fixture(params=["tcp", "shm"])
def engine(request):
    """Over tcp arrays are sent from where they lie; within a host they go through the pool."""
    with fairlead.Engine(transport=request.param) as made:
        yield made


def equal(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def test_arrays_of_every_dtype_round_trip(server, engine):
    random = numpy.random.default_rng(7)
    state = {f"of.{name}": random.integers(0, 200, (3, 5)).astype(name)
             for name in ("bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64",
                          "uint64", "float64", "complex64")}
    state["scalar"] = numpy.float32(3.5)
    state["empty"] = numpy.zeros((0, 7), "int32")
    state["turned"] = numpy.arange(12.0).reshape(3, 4).T
    state["large"] = random.random(500_000)
    figures = fairlead.push_state_dict(engine, server, "all", state, metadata={"format": "np"}, timeout=MINUTE)
    assert figures["tensors"] == len(state) and figures["bytes"] == sum(numpy.asarray(each).nbytes for each in state.values())
    assert 0 < figures["seconds"] < figures["total_seconds"]
    assert fairlead.list_models(engine, server) == [
        {"name": "all", "tensors": len(state), "bytes": sum(numpy.asarray(each).nbytes for each in state.values())}]
    back = fairlead.pull_state_dict(engine, server, "all", timeout=MINUTE)
    assert list(back) == list(state)
    assert all(equal(back[name], numpy.asarray(state[name])) for name in state)


def test_arrays_in_the_other_order_of_bytes_keep_their_values(server, engine):
    foreign = numpy.arange(6.0).astype(">f4").reshape(2, 3)
    fairlead.push_state_dict(engine, server, "foreign", {"x": foreign}, timeout=MINUTE)
    back = fairlead.pull_state_dict(engine, server, "foreign", timeout=MINUTE)["x"]
    assert back.dtype == "float32" and (back == foreign).all()


def test_a_sharded_model_is_what_the_program_pulls(server, engine, tmp_path):
    state = {f"layer.{i}": numpy.full((100,), i, "float32") for i in range(600)}
    names = list(state)
    fairlead.push_state_dict(engine, server, "sharded", state, timeout=MINUTE,
                             files={"one.safetensors": names[:300], "two.safetensors": names[300:]})
    folder = tmp_path / "pulled"
    subprocess.run([os.environ["FAIRLEAD"], "pull", server, "sharded", folder, "--transport", "tcp"], check=True, timeout=60,
                   stdout=subprocess.DEVNULL)
    assert sorted(each.name for each in folder.iterdir()) == ["one.safetensors", "two.safetensors"]
    subprocess.run([os.environ["FAIRLEAD"], "push", folder / "two.safetensors", server, "--transport", "tcp"], check=True,
                   timeout=60, stdout=subprocess.DEVNULL)
    back = fairlead.pull_state_dict(engine, server, "two", timeout=MINUTE)
    assert list(back) == names[300:] and all(equal(back[name], state[name]) for name in back)
    assert len(fairlead.pull_state_dict(engine, server, "sharded", timeout=MINUTE)) == 600


def test_what_is_wrong_is_said(server, engine):
    with pytest.raises(fairlead.NotFound):
        fairlead.pull_state_dict(engine, server, "nothing", timeout=MINUTE)
    with pytest.raises(TypeError, match="'odd' is of complex128"):
        fairlead.push_state_dict(engine, server, "odd", {"odd": numpy.zeros(3, "complex128")})
    with pytest.raises(fairlead.InvalidArgument, match="once"):
        fairlead.push_state_dict(engine, server, "twice", {"a": numpy.zeros(3)}, files={"f": ["a", "a"]})
    with pytest.raises(fairlead.Error, match="not legal"):
        fairlead.push_state_dict(engine, server, "no/slash", {"a": numpy.zeros(3)}, timeout=MINUTE)
    with fairlead.Engine(listen="127.0.0.1:0", transport="tcp") as other:
        with pytest.raises(TimeoutError):
            fairlead.list_models(engine, other.listen_address, timeout=0.3)


def test_why_a_server_ended_the_session_is_said():
    with fairlead.Engine(listen="127.0.0.1:0", transport="tcp") as server, fairlead.Engine(transport="tcp") as engine:
        with pytest.raises(fairlead.InvalidArgument, match="not such a name"):
            with fairlead.models._Talk(engine, server.listen_address, MINUTE) as talk:
                peer = server.accept(MINUTE)
                peer.send(json.dumps({"v": 1, "type": "refusal", "code": int(fairlead.Code.INVALID_ARGUMENT),
                                      "message": "not such a name"}).encode()).wait(MINUTE)
                peer.close(MINUTE)
                while talk.peer.state != "closed":
                    time.sleep(0.01)
                talk.send("push_begin")


def test_a_talk_that_did_not_begin_leaves_no_session():
    with socket.create_server(("127.0.0.1", 0)) as silent, fairlead.Engine(transport="tcp") as engine:
        with pytest.raises(TimeoutError):
            fairlead.list_models(engine, "127.0.0.1:%d" % silent.getsockname()[1], timeout=0.05)
        end = time.monotonic() + MINUTE
        while [each for each in engine.peers() if each.state != "closed"] and time.monotonic() < end:
            time.sleep(0.01)
        assert not [each for each in engine.peers() if each.state != "closed"]


def test_no_timeout_is_for_ever(server, engine):
    fairlead.push_state_dict(engine, server, "m", {"a": numpy.ones(3)}, timeout=None)
    assert (fairlead.pull_state_dict(engine, server, "m", timeout=None)["a"] == 1).all()
    assert [each["name"] for each in fairlead.list_models(engine, server, timeout=None)] == ["m"]


def test_what_goes_through_the_pool_arrives_and_is_summed():
    data = numpy.random.default_rng(5).integers(0, 256, (3 << 20) + 77, "uint8")  # more than one piece
    with fairlead.Engine(transport="shm", listen="127.0.0.1:0") as target, fairlead.Engine(transport="shm") as engine:
        memory = target.allocate(data.nbytes)
        target.publish("here", memory, "w")
        peer = engine.connect(target.listen_address)
        peer.wait_ready(MINUTE)
        accepted = target.accept(MINUTE)
        region = peer.lookup("here", MINUTE)
        writes = fairlead._core._PoolWrites(peer, MINUTE)
        assert writes.write(data, region, 9) == zlib.crc32(data)
        writes.finish()
        event = accepted.next_event(MINUTE)
        while event.kind != "notification":
            event = accepted.next_event(MINUTE)
        assert event.value == 9 and bytes(memory) == data.tobytes()
        with pytest.raises(ValueError, match="7 bytes for region 'here' of 3145805"):
            writes.write(data[:7], region, 1)
        with pytest.raises(ValueError, match="without gaps"):
            writes.write(data[::2], region, 1)
        with pytest.raises(fairlead.DeadlineExceeded):
            for _ in range(1000):  # until its last piece is under way still when it is looked for
                late = fairlead._core._PoolWrites(peer, 0.0)
                late.write(data, region, 1)
                late.finish()


def test_the_checksum_is_zlibs():
    data = numpy.random.default_rng(1).bytes(100_003)
    assert fairlead._core._crc32(data, 0) == zlib.crc32(data)
    assert fairlead._core._crc32(data[70:], fairlead._core._crc32(data[:70], 0)) == zlib.crc32(data)


def test_bytes_that_come_wrong_are_named(server, engine, monkeypatch):
    class WrongSums(fairlead._core._PoolWrites):
        def write(self, *given):
            return super().write(*given) ^ 1

    state = {"good": numpy.arange(1000.0), "bad": numpy.arange(10.0)}
    monkeypatch.setattr(fairlead.models._core, "_crc32", lambda data, crc: len(data) & 0xff)
    monkeypatch.setattr(fairlead.models._core, "_PoolWrites", WrongSums)
    with pytest.raises(fairlead.Error, match="2 of 2 tensors failed: .*'bad'"):
        fairlead.push_state_dict(engine, server, "wrong", state, timeout=MINUTE)
    monkeypatch.undo()
    fairlead.push_state_dict(engine, server, "right", state, timeout=MINUTE)
    monkeypatch.setattr(fairlead.models._core, "_crc32", lambda data, crc: 1)
    with pytest.raises(fairlead.Error, match="tensor 'good': its CRC-32 is not") as wrong:
        fairlead.pull_state_dict(engine, server, "right", timeout=MINUTE)
    assert wrong.value.code is fairlead.Code.DATA_LOSS
    assert len(fairlead.pull_state_dict(engine, server, "right", checksum=False, timeout=MINUTE)) == 2


def same_bytes(one, other):
    def raw(tensor):
        return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_torch_tensors_without_bytes_of_their_own_are_named(engine):
    for tensor, why in ((torch.zeros(3, device="meta"), "tensor 'odd' is on the device meta"),
                        (torch.eye(3).to_sparse(), r"tensor 'odd' has the layout torch.sparse_coo.*to_dense")):
        with pytest.raises(TypeError, match=why):
            fairlead.push_state_dict(engine, "127.0.0.1:1", "odd", {"right": torch.zeros(2), "odd": tensor})


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_a_torch_state_dict_of_mixed_dtypes_round_trips(server, engine):
    torch.manual_seed(1)
    state = {str(dtype): (torch.randn(17, 9) * 10).to(dtype)
             for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool)}
    # NaNs with payloads and signs, which no comparison of values tells apart, and both zeros.
    state["nan"] = torch.tensor([0x7FC00001, 0x7F800001, -0x3FFFFF, -0x800000, -0x80000000, 0], dtype=torch.int32).view(torch.float32)
    state["nan16"] = torch.tensor([0x7FC1, 0x7F81, -0x3F, -0x8000], dtype=torch.int16).view(torch.bfloat16)
    state["conjugate"] = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj()
    state["scalar"] = torch.tensor(5)
    state["turned"] = torch.arange(12.0).reshape(3, 4).t()
    state["parameter"] = torch.nn.Linear(30, 20).weight
    fairlead.push_state_dict(engine, server, "torch", state, timeout=MINUTE)
    back = fairlead.pull_state_dict(engine, server, "torch", framework="torch", timeout=MINUTE)
    assert list(back) == list(state)
    for name, tensor in state.items():
        assert same_bytes(back[name], tensor), name
    as_arrays = fairlead.pull_state_dict(engine, server, "torch", timeout=MINUTE)
    assert as_arrays["torch.bfloat16"].dtype == "bfloat16"
    assert torch.equal(torch.from_dlpack(as_arrays["torch.bfloat16"]), state["torch.bfloat16"])
    tensor = torch.zeros(100)
    engine.register(tensor, "w").memory.numpy("float32")[:] = 3
    assert tensor.sum() == 300
