"""One process with torch, gRPC and protobuf, before Fairlead and after it."""

import importlib.util
import subprocess
import sys

import pytest

OTHERS = [name for name in ("torch", "grpc", "google.protobuf.struct_pb2")
          if importlib.util.find_spec(name.partition(".")[0]) is not None]
USE = {
    "torch": "import torch\nassert torch.arange(4).sum() == 6",
    "grpc": "import grpc\ngrpc.insecure_channel('127.0.0.1:9').close()",
    "google.protobuf.struct_pb2": "from google.protobuf import struct_pb2\ns = struct_pb2.Struct()\ns['a'] = 1\n"
                                  "assert struct_pb2.Struct.FromString(s.SerializeToString())['a'] == 1",
}
MOVE = """
import fairlead
for transport in ("tcp", "verbs:soft0"):
    with fairlead.Engine(listen="127.0.0.1:0", transport=transport) as there, fairlead.Engine(transport=transport) as here:
        target = bytearray(5)
        there.publish("target", target, "w")
        peer = here.connect(there.listen_address)
        peer.write(b"bytes", peer.lookup("target", 60)).wait(60)
        assert target == b"bytes" and peer.transport == transport
"""


@pytest.mark.parametrize("first", ["fairlead", "the others"])
def test_they_live_in_one_process(first):
    if not OTHERS:
        pytest.skip("there is neither torch nor gRPC nor protobuf here")
    others = "\n".join(USE[name] for name in OTHERS)
    program = f"{MOVE}\n{others}\n{MOVE}" if first == "fairlead" else f"{others}\n{MOVE}\n{others}"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout
