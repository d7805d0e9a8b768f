"""State dicts to and from `fairlead serve`: named tensors, as a safetensors file has them (docs/protocol-push.md).

What is pushed here `fairlead pull` writes to a file, and what `fairlead push` sent comes back as a state dict. Arrays are
NumPy's, or torch's where torch is installed; they are sent from where they lie, and only those that have gaps are copied
first.
"""

import collections
import concurrent.futures
import json
import threading
import time

from fairlead import _core
from fairlead._api import end_of
from fairlead._errors import Code, Error, InvalidArgument, NotFound, made_of

_VERSION = 2
_BATCH, _BATCH_TEXT = 256, 200_000  # tensors, and characters of their names and shapes, of a message
_UNDER_WAY, _BYTES_UNDER_WAY = 256, 256 << 20
_CRC_PIECE = 64 << 20

# safetensors' words; the second is what NumPy calls it, the third torch
_DTYPES = [("BOOL", "bool", "bool"), ("U8", "uint8", "uint8"), ("I8", "int8", "int8"), ("F8_E4M3", None, "float8_e4m3fn"),
           ("F8_E5M2", None, "float8_e5m2"), ("I16", "int16", "int16"), ("U16", "uint16", "uint16"),
           ("F16", "float16", "float16"), ("BF16", None, "bfloat16"), ("I32", "int32", "int32"), ("U32", "uint32", "uint32"),
           ("F32", "float32", "float32"), ("C64", "complex64", "complex64"), ("I64", "int64", "int64"),
           ("U64", "uint64", "uint64"), ("F64", "float64", "float64")]
_WORD_OF = {name: word for word, numpy_name, torch_name in _DTYPES for name in (numpy_name, torch_name) if name}
_NUMPY_OF = {word: name for word, name, _ in _DTYPES if name}
_TORCH_OF = {word: name for word, _, name in _DTYPES}


class _Entry:
    """One tensor: how it is announced, and its bytes."""

    def __init__(self, name, value):
        self.name = name
        if type(value).__module__.partition(".")[0] == "torch":
            import torch

            if value.layout != torch.strided:
                raise TypeError(f"tensor '{name}' has the layout {value.layout}; its bytes are not in one place until "
                                "to_dense() puts them there")
            if value.device.type == "meta":
                raise TypeError(f"tensor '{name}' is on the device meta, where it has a shape and no bytes")
            value = value.detach().contiguous().resolve_conj().resolve_neg()
            self.word = _word_of(name, str(value.dtype).partition(".")[2])
            self.shape = tuple(value.shape)
            self.bytes = value.reshape(-1).view(torch.uint8) if value.numel() else b""
            if value.device.type == "cpu" and value.numel():
                self.bytes = self.bytes.numpy()
            self.on_host = value.device.type == "cpu"
        else:
            import numpy

            value = numpy.ascontiguousarray(value).reshape(numpy.shape(value))  # of 0 dimensions it makes 1
            if not value.dtype.isnative:  # its dtype has the same name
                value = value.astype(value.dtype.newbyteorder("="))
            self.word = _word_of(name, value.dtype.name)
            self.shape = value.shape
            self.bytes = value.reshape(-1).view("uint8") if value.size else b""
            self.on_host = True
        self.nbytes = self.bytes.nbytes if len(self.bytes) else 0


def _word_of(name, dtype):
    if dtype not in _WORD_OF:
        raise TypeError(f"tensor '{name}' is of {dtype}, which safetensors has no word for: {', '.join(_WORD_OF)} it has")
    return _WORD_OF[dtype]


class _Talk:
    """Messages with the server."""

    def __init__(self, engine, address, timeout):
        self.end = end_of(timeout)
        self.peer = engine.connect(address)
        try:
            self.peer.wait_ready(self.left())
        except BaseException:  # also Ctrl-C: nobody else has the session
            self.peer.close(0.0)
            raise

    def left(self):
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)

    def send(self, kind, **fields):
        self.peer.send(json.dumps({"v": _VERSION, "type": kind, **fields}).encode()).wait(self.left())

    def expect(self, kind):
        """The fields of the next message, which is to be of that kind. A refusal is raised."""
        while True:
            event = self.peer.next_event(self.left())
            if event is None:
                raise made_of(Code.DEADLINE_EXCEEDED, f"{self.peer.address} does not answer: no {kind} in time")
            if event.kind == "closed":
                event.check()
                raise made_of(Code.UNAVAILABLE, f"{self.peer.address} ended the session")
            if event.kind != "message":
                continue
            try:
                fields = json.loads(event.data)
                said, version = fields["type"], fields["v"]
            except (ValueError, TypeError, KeyError):
                raise made_of(Code.DATA_LOSS, f"{self.peer.address} does not speak the push protocol: a `fairlead serve` "
                                              "without --gpu is needed there") from None
            if version != _VERSION:
                raise made_of(Code.VERSION_MISMATCH, f"{self.peer.address} speaks version {version} of the push protocol, "
                                                     f"this package {_VERSION}")
            if said == "refusal":
                raise self._refused(fields)
            if said != kind:
                raise made_of(Code.DATA_LOSS, f"{self.peer.address} says {said} where {kind} was expected")
            return fields

    def _refused(self, fields):
        """The error that a message of type refusal stands for."""
        return made_of(int(fields["code"]), f"{self.peer.address}: {fields['message']}")

    def _refusal(self):
        """Of the messages that nobody has taken; None: there is none."""
        while event := self.peer.next_event(0):
            if event.kind == "closed":
                return None
            try:
                fields = json.loads(event.data) if event.kind == "message" else {}
                if fields.get("type") == "refusal":
                    return self._refused(fields)
            except (ValueError, TypeError, KeyError, AttributeError):
                return None
        return None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        # A server that ends a session says why before; what fails then fails for that reason.
        refusal = self._refusal() if isinstance(error, Error) else None
        self.peer.close(0.0)
        if refusal is not None:
            raise refusal from error


class _Moves:
    """Transfers under way, no more than a server is sent at a time."""

    def __init__(self, talk, landed=lambda name: None):
        self._talk, self._landed = talk, landed
        self._under_way = collections.deque()
        self._bytes = 0

    def add(self, transfer, name, nbytes):
        self._under_way.append((transfer, name, nbytes))
        self._bytes += nbytes
        while len(self._under_way) > _UNDER_WAY or (self._bytes > _BYTES_UNDER_WAY and len(self._under_way) > 1):
            self._wait()

    def finish(self):
        while self._under_way:
            self._wait()

    def _wait(self):
        transfer, name, nbytes = self._under_way.popleft()
        self._bytes -= nbytes
        try:
            transfer.wait(self._talk.left())
        except Error as error:
            raise made_of(error.code, f"tensor '{name}': {error}") from error
        self._landed(name)


class _Sums:
    """CRC-32 of tensors, as zlib's, by a thread beside the transfers."""

    def __init__(self):
        self._thread, self._gone = concurrent.futures.ThreadPoolExecutor(1), threading.Event()
        self._sums = {}

    def add(self, name, data):
        self._sums[name] = self._thread.submit(self._crc32, data)

    def of(self, name):
        return self._sums[name].result()

    def _crc32(self, data):
        view, crc = memoryview(data).cast("B"), 0
        for begin in range(0, len(view), _CRC_PIECE):
            if self._gone.is_set():
                break
            crc = _core._crc32(view[begin:begin + _CRC_PIECE], crc)
        return crc

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._gone.set()
        self._thread.shutdown(cancel_futures=True)


def _batches(entries):
    batch, text = [], 0
    for each in entries:
        size = len(json.dumps(each))
        if batch and (len(batch) == _BATCH or text + size > _BATCH_TEXT):
            yield batch
            batch, text = [], 0
        batch.append(each)
        text += size
    if batch:
        yield batch


def push_state_dict(engine, address, model, state, *, files=None, metadata=None, checksum=True, timeout=600.0):
    """Sends a dict of tensors to a `fairlead serve` at `address`, which keeps it as `model`, and has it checked there.

    state: {name: array}, NumPy's or torch's, any shape, of a dtype that safetensors has. Arrays without gaps are not copied.
    files: for a sharded model {file name: [tensor names]}, all of them, each once; else one file, MODEL.safetensors.
    metadata: {text: text}, of the first file. checksum: CRC-32 of every tensor, computed here and compared there. If one
    tensor is on a GPU, none of that push is checked: push those of the host by themselves. timeout: seconds for all of it
    (None: for ever). Blocks; in a coroutine call it by asyncio.to_thread.

    Gives figures, as the report of `fairlead push` has them: {"tensors", "bytes", "seconds" that the transfers took,
    "bytes_per_second" of them, "total_seconds"}.
    Raises what the server refuses it with, or Error (DATA_LOSS) naming the tensors whose bytes came wrong.
    """
    begin = time.perf_counter()
    files = {f"{model}.safetensors": list(state)} if files is None else {name: list(names) for name, names in files.items()}
    ordered = [name for names in files.values() for name in names]
    if sorted(ordered) != sorted(state):
        raise InvalidArgument("files does not name every tensor of the state dict once", Code.INVALID_ARGUMENT)
    entries = [_Entry(name, state[name]) for name in ordered]
    nbytes = sum(entry.nbytes for entry in entries)
    checked = checksum and all(entry.on_host for entry in entries)
    with _Sums() as sums, _Talk(engine, address, timeout) as talk:
        # Within a host the peer copies out of the pool faster than out of memory of any other kind, and the bytes must be
        # read for their sums anyway.
        pooled = talk.peer.transport == "shm" and all(entry.on_host for entry in entries)
        for entry in entries if checked and not pooled else ():
            sums.add(entry.name, entry.bytes)
        talk.send("push_begin", model=model, files=len(files), tensors=len(entries), bytes=nbytes, sums=checked)
        for file, names in files.items():
            pairs = [[str(key), str(value)] for key, value in (metadata or {}).items()]
            talk.send("file", name=file, metadata=pairs, tensors=len(names), raw=False)
            metadata = None
        for batch in _batches({"name": e.name, "dtype": e.word, "shape": e.shape, "bytes": e.nbytes, "crc32": None}
                              for e in entries):
            talk.send("tensors", tensors=batch)
        prefix = talk.expect("push_ready")["prefix"]
        regions = {region.name: region for region in talk.peer.list(prefix, talk.left())}
        moves, transfers_began, crcs = _Moves(talk), time.perf_counter(), {}
        writes = _core._PoolWrites(talk.peer, talk.left())
        for number, entry in enumerate(entries):
            if entry.nbytes == 0:
                continue
            region = regions.get(f"{prefix}{number}")
            if region is None or region.nbytes != entry.nbytes:
                raise made_of(Code.DATA_LOSS, f"the server has no region of {entry.nbytes} bytes for tensor '{entry.name}'")
            if pooled:
                crcs[entry.name] = writes.write(entry.bytes, region, number, checked)
            else:
                moves.add(talk.peer.write(entry.bytes, region, notify=number), entry.name, entry.nbytes)
        writes.finish()
        moves.finish()
        seconds = time.perf_counter() - transfers_began
        of = (lambda name: crcs.get(name, 0)) if pooled else sums.of  # 0: that of no bytes
        talk.send("push_finish", crc32=[of(entry.name) for entry in entries] if checked else [])
        result = talk.expect("push_result")
        if result["failed"] or result["verified"] != len(entries):
            named = "; ".join(f"tensor '{name}': {reason}" for name, reason in result["failures"])
            raise made_of(Code.DATA_LOSS, f"{len(entries) - result['verified']} of {len(entries)} tensors failed: {named}")
    return {"tensors": len(entries), "bytes": nbytes, "seconds": seconds, "bytes_per_second": nbytes / seconds,
            "total_seconds": time.perf_counter() - begin}


def pull_state_dict(engine, address, model, *, framework="numpy", checksum=True, timeout=600.0):
    """Fetches `model` from a `fairlead serve` at `address`: {name: array}, of all its files.

    framework: "numpy" (a tensor of a dtype that NumPy lacks, bfloat16 and float8, comes as a fairlead.Tensor), or "torch".
    The arrays lie in memory of the engine's pool, which they keep. checksum: they are compared with the CRC-32 that came
    with the push. timeout: seconds for all of it, None for ever. Blocks; in a coroutine call it by asyncio.to_thread.

    Raises NotFound, what else the server refuses it with, or Error (DATA_LOSS) for bytes that are wrong.
    """
    if framework not in ("numpy", "torch"):
        raise InvalidArgument(f"framework '{framework}': 'numpy' or 'torch' is expected", Code.INVALID_ARGUMENT)
    with _Sums() as sums, _Talk(engine, address, timeout) as talk:
        talk.send("pull_begin", model=model)
        ready = talk.expect("pull_ready")
        raw, entries = [], []
        for _ in range(ready["files"]):
            file = talk.expect("file")
            raw += [bool(file["raw"])] * file["tensors"]
        while len(entries) < ready["tensors"]:
            entries += talk.expect("tensors")["tensors"]
        regions = {region.name: region for region in talk.peer.list(ready["prefix"], talk.left())}
        state = {}

        def landed(name):
            entry, memory = state[name]
            if checksum and entry["crc32"] is not None:
                sums.add(name, memory)

        moves = _Moves(talk, landed)
        for entry, is_raw in zip(entries, raw):
            if is_raw:  # the index of a sharded model
                continue
            memory = engine.allocate(entry["bytes"], alignment=64) if entry["bytes"] else None
            state[entry["name"]] = (entry, memory)
            if memory is None:
                continue
            region = regions.get(ready["prefix"] + entry["name"])
            if region is None or region.nbytes != entry["bytes"]:
                raise NotFound(f"tensor '{entry['name']}' is gone: the server replaced or dropped the model; pull again",
                               Code.NOT_FOUND)
            moves.add(talk.peer.read(memory, region), entry["name"], entry["bytes"])
        moves.finish()
        talk.send("pull_finish")
        talk.expect("pull_result")
        for name, (entry, memory) in state.items() if checksum else ():
            if entry["crc32"] is not None and memory is not None and sums.of(name) != entry["crc32"]:
                raise made_of(Code.DATA_LOSS, f"tensor '{name}': its CRC-32 is not {entry['crc32']:08x} (was the model "
                                              "replaced meanwhile? pull again)")
    make = _numpy_array if framework == "numpy" else _torch_tensor
    return {name: make(entry, memory) for name, (entry, memory) in state.items()}


def list_models(engine, address, *, timeout=60.0):
    """The models of a `fairlead serve`: a list of {"name", "tensors", "bytes"}."""
    with _Talk(engine, address, timeout) as talk:
        talk.send("list_models")
        return talk.expect("models")["models"]


def _numpy_array(entry, memory):
    import numpy

    name, shape = _NUMPY_OF.get(entry["dtype"]), tuple(entry["shape"])
    if name is None:
        if memory is None or entry["dtype"] not in _TORCH_OF:
            raise TypeError(f"tensor '{entry['name']}' is of {entry['dtype']}, which NumPy cannot hold")
        return memory.tensor(_TORCH_OF[entry["dtype"]], shape)
    return numpy.empty(shape, name) if memory is None else memory.numpy(name, shape)


def _torch_tensor(entry, memory):
    import torch

    if not hasattr(torch, _TORCH_OF.get(entry["dtype"], "?")):
        raise TypeError(f"tensor '{entry['name']}' is of {entry['dtype']}, which this torch cannot hold")
    dtype, shape = getattr(torch, _TORCH_OF[entry["dtype"]]), tuple(entry["shape"])
    if memory is None:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).reshape(shape)
