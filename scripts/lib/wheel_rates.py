"""How fast a wheel that knows nothing of Fairlead writes into another process of this host, by its own choice of a way.

  wheel_rates.py mooncake|nixl FOLDER BYTES target              until FOLDER/go is there
  wheel_rates.py mooncake|nixl FOLDER BYTES initiator SECONDS SIZES...

BYTES of memory at each end hold any of SIZES, which are of what is written at a time: a number, or NUMBERxBYTES for so many pieces side by side, as tensors are. The
initiator prints a JSON object: by size the seconds of each write, in SECONDS of them after a first one, and the processor seconds
that both ends used meanwhile. The bytes that the last write left are compared.
"""

import json
import os
import pathlib
import sys
import time

import numpy

HOST = "127.0.0.1"


class Mooncake:
    AT_ONCE = 32  # it opens a socket for each, and fails where there are too many

    def __init__(self, _role, memory):
        from mooncake.engine import TransferEngine  # pylint: disable=import-outside-toplevel
        self.engine, self.memory = TransferEngine(), memory
        self.must(self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""), "initialize")
        self.must(self.engine.register_memory(memory.ctypes.data, memory.nbytes), "register_memory")
        self.name = f"{HOST}:{self.engine.get_rpc_port()}"

    def facts(self):
        return {"name": self.name, "memory": self.memory.ctypes.data}

    def write(self, target, pieces):
        here, there = ([base + offset for offset, _ in pieces] for base in (self.memory.ctypes.data, target["memory"]))
        lengths = [length for _, length in pieces]
        for i in range(0, len(pieces), self.AT_ONCE):
            some = slice(i, i + self.AT_ONCE)
            self.must(self.engine.batch_transfer_sync_write(target["name"], here[some], there[some], lengths[some]), "write")

    @staticmethod
    def must(status, what):
        if status != 0:
            sys.exit(f"{what}: {status}")


class Nixl:
    def __init__(self, role, memory):
        from nixl_cu12 import nixl_agent, nixl_agent_config  # pylint: disable=import-outside-toplevel
        self.agent, self.memory = nixl_agent(role, nixl_agent_config(backends=["UCX"])), memory
        self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
        self.peer, self.handles = None, {}

    def facts(self):
        return {"metadata": self.agent.get_agent_metadata().hex(), "memory": self.memory.ctypes.data}

    def write(self, target, pieces):
        if self.peer is None:
            self.peer = self.agent.add_remote_agent(bytes.fromhex(target["metadata"]))
        if len(pieces) not in self.handles:  # prepared once, as its own benchmark does
            here, there = (self.agent.get_xfer_descs([(base + offset, length, 0) for offset, length in pieces], "DRAM")
                           for base in (self.memory.ctypes.data, target["memory"]))
            self.handles = {len(pieces): self.agent.initialize_xfer("WRITE", here, there, self.peer)}
        handle = self.handles[len(pieces)]
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            sys.exit(f"write: {state}")


def pieces_of(size):
    number, _, each = size.rpartition("x")
    return [(i * int(each), int(each)) for i in range(int(number or 1))]


def cpu_seconds(target):
    """Of both ends so far; the target's as proc(5) has them, by clock ticks."""
    fields = pathlib.Path(f"/proc/{target['pid']}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(end, target, seconds, size):
    pieces, took = pieces_of(size), []
    if isinstance(end, Nixl):
        end.handles = {}
    end.write(target, pieces)
    used = cpu_seconds(target)
    begin = last = time.perf_counter()
    while last - begin < seconds or len(took) < 3:
        end.write(target, pieces)
        now = time.perf_counter()
        took.append(now - last)
        last = now
    return {"seconds": took, "cpu_seconds": cpu_seconds(target) - used}


def main():
    kind, folder, size, role = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    memory = numpy.zeros(size, dtype=numpy.uint8)
    memory[:] = 1 if role == "target" else 2
    end = {"mooncake": Mooncake, "nixl": Nixl}[kind](role, memory)
    if role == "target":
        (folder / "facts").write_text(json.dumps({**end.facts(), "pid": os.getpid()}), encoding="utf-8")
        (folder / "facts").rename(folder / "target")
        while not (folder / "go").exists() and os.getppid() != 1:
            time.sleep(0.05)
        (folder / "written").write_text(str(int((memory == 2).sum())), encoding="utf-8")
    else:
        target = json.loads((folder / "target").read_text(encoding="utf-8"))
        seconds, sizes = float(sys.argv[5]), sys.argv[6:]
        print(json.dumps({each: measure(end, target, seconds, each) for each in sizes}))
    sys.stdout.flush()
    os._exit(0)  # what the wheels leave running does not hold it up


main()
