"""One end of a transfer by a wheel that knows nothing of Fairlead: WRITE of a megabyte or more, READ back, compared.

  wheel_transfer.py mooncake|nixl target|initiator FOLDER ADDRESS

The target leaves in FOLDER/target what the initiator needs. Each end stays until FOLDER/ROLE.go is there, so that who
judges can read the counters of their devices.
"""

import json
import pathlib
import sys
import time

import numpy

BYTES = 4 << 20


class Mooncake:
    def __init__(self, _role, address, memory):
        from mooncake.engine import TransferEngine  # pylint: disable=import-outside-toplevel
        self.engine, self.memory = TransferEngine(), memory
        self.must(self.engine.initialize(address, "P2PHANDSHAKE", "rdma", "soft0"), "initialize")
        self.must(self.engine.register_memory(memory.ctypes.data, memory.nbytes), "register_memory")
        self.name = f"{address}:{self.engine.get_rpc_port()}"

    def facts(self):
        return {"name": self.name, "memory": self.memory.ctypes.data}

    def move(self, operation, target):
        call = self.engine.transfer_sync_write if operation == "WRITE" else self.engine.transfer_sync_read
        self.must(call(target["name"], self.memory.ctypes.data, target["memory"], self.memory.nbytes), operation)

    @staticmethod
    def must(status, what):
        if status != 0:
            sys.exit(f"{what}: {status}")


class Nixl:
    def __init__(self, role, _address, memory):
        from nixl_cu12 import nixl_agent, nixl_agent_config  # pylint: disable=import-outside-toplevel
        self.agent, self.memory = nixl_agent(role, nixl_agent_config(backends=["UCX"])), memory
        self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
        self.peer = None

    def facts(self):
        return {"metadata": self.agent.get_agent_metadata().hex(), "memory": self.memory.ctypes.data}

    def move(self, operation, target):
        if self.peer is None:
            self.peer = self.agent.add_remote_agent(bytes.fromhex(target["metadata"]))
        here, there = (self.agent.get_xfer_descs([(address, self.memory.nbytes, 0)], "DRAM")
                       for address in (self.memory.ctypes.data, target["memory"]))
        transfer = self.agent.initialize_xfer(operation, here, there, self.peer)
        state = self.agent.transfer(transfer)
        while state == "PROC":
            state = self.agent.check_xfer_state(transfer)
        if state != "DONE":
            sys.exit(f"{operation}: {state}")
        self.agent.release_xfer_handle(transfer)


def main():
    kind, role, folder, address = sys.argv[1:]
    folder = pathlib.Path(folder)
    memory = numpy.zeros(BYTES, dtype=numpy.uint8)
    end = {"mooncake": Mooncake, "nixl": Nixl}[kind](role, address, memory)
    if role == "target":
        (folder / "facts").write_text(json.dumps(end.facts()), encoding="utf-8")
        (folder / "facts").rename(folder / "target")
    else:
        target = json.loads((folder / "target").read_text(encoding="utf-8"))
        sent = numpy.random.default_rng().integers(0, 256, BYTES, dtype=numpy.uint8)
        memory[:] = sent
        end.move("WRITE", target)
        memory[:] = 0
        end.move("READ", target)
        if not (memory == sent).all():
            sys.exit("what came back is not what was sent")
        print(f"moved {BYTES} bytes there and back", flush=True)
    while not (folder / f"{role}.go").exists():
        time.sleep(0.05)


main()
