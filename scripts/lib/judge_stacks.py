"""Judges that bring a whole stack along: fio, qperf, Open MPI and MPICH over UCX, QEMU's live migration, and the wheels
of Mooncake and NIXL, which are built for an older C library than the machine's.

Where a stack could have gone another way (TCP, shared memory), its judge asserts what softroce's devices counted.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

import judge_programs
import pairs

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # Debian's, for which there are wheels; another may come first in PATH
WHEELS = {"mooncake": "mooncake-transfer-engine-non-cuda==0.3.13.post1", "nixl": "nixl-cu12==1.5.1"}
# What a wheel says of the transport that it took; and what it says of another.
OWN_WORDS = {"mooncake": (r"installTransport, type=rdma", r"TcpTransport"),
             "nixl": (r"inter-node cfg\S* rma\(rc_verbs/soft0:1\)", r"(tcp|sysv|posix|cma)/")}
UCX = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "soft0:1", "UCX_IB_GID_INDEX": "1", "UCX_LOG_LEVEL": "info",
       "UCX_WARN_UNUSED_ENV_VARS": "n"}


class Failed(Exception):
    """Its words are the reason in the table."""


def until(condition, programs, patience=60):
    """Waits for it as long as all of `programs` run; whether it came true."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return True
        if not all(program.running() for program in programs):
            return condition()
        time.sleep(0.05)
    return False


class Stage:
    """The programs of one run, a folder of their own, and what they said. Everything ends with it."""

    def __init__(self, fairlead, limit):
        self.fairlead, self.limit, self.begin = fairlead, limit, time.monotonic()
        self.programs, self.text = [], ""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        # Where devices show their counters: none but this run's are there.
        self.environment = {"XDG_RUNTIME_DIR": str(self.folder)}
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.end()
            self.text += f"$ {' '.join(program.argv)}\n{program.output()}\nexit code {program.status}\n"
        self._folder.cleanup()

    def start(self, words, environment=None):
        left = max(1, self.limit - (time.monotonic() - self.begin))
        self.programs.append(pairs.Program(words, left, {**self.environment, **(environment or {})}))
        return self.programs[-1]

    def await_words(self, program, words):
        if not until(lambda: words in program.output(), self.programs, self.limit):
            raise Failed(f"no '{words}': {pairs.last_words(program.output())}")

    def counters(self):
        """[{name: count}] of the devices that are open now."""
        done = subprocess.run([self.fairlead, "devices", "--counters"], env={**os.environ, **self.environment}, check=False,
                              capture_output=True, text=True)
        self.text += done.stdout
        found = []
        for line in done.stdout.splitlines():
            if " process " in line:
                found.append({})
            elif found:
                name, count = line.split()
                found[-1][name] = int(count)
        return found

    def carried(self, devices, sent, received):
        """Asserts that softroce carried it: so many devices sent and received at least so many bytes."""
        counters = self.counters()
        if len(counters) != devices:
            raise Failed(f"{len(counters)} softroce devices are open, not {devices}")
        for count in counters:
            for name, least in (("sent_bytes", sent), ("rcvd_bytes", received)):  # one packet may stand for many
                if count[name] < least:
                    raise Failed(f"softroce did not carry it: {name} is {count[name]}, less than {least}")


def judge(fairlead, body):
    """A step out of `body(stage)`, which raises Failed, or returns what is to be noted."""
    def step(limit):
        stage, reason, passed = Stage(fairlead, limit), "", True
        with contextlib.suppress(subprocess.TimeoutExpired), stage:
            try:
                reason = body(stage) or ""
            except Failed as problem:
                passed, reason = False, str(problem)
        return pairs.Outcome(passed, reason, time.monotonic() - stage.begin, stage.text)
    return step


class Stacks:
    """Judges between two sides of this host; `port` gives a TCP port that is free."""

    def __init__(self, server, client, port):
        self.server, self.client, self.port = server, client, port
        self.fairlead = server.prefix[0]

    def fio(self, verb, depth):
        blocks = 256

        def command(name, port, direction, verb, depth, *more):
            return ["fio", f"--name={name}", "--ioengine=rdma", f"--port={port}", f"--rw={direction}", f"--verb={verb}", "--bs=64k",
                    f"--size={64 * blocks}k", f"--iodepth={depth}", *more]

        def body(stage):
            port = self.port()
            # With --verb=send fio asks for no patience with a receiver that is not ready, so all receives are posted first.
            target = command("target", port, "read", *(("recv", 2 * blocks) if verb == "send" else (verb, depth)))
            server = stage.start([*self.server.prefix, *target])
            stage.await_words(server, "waiting for connection")
            client = stage.start([*self.client.prefix, *command("client", port, "write", verb, depth,
                                                               f"--hostname={self.server.address}")])
            status = client.wait(), server.wait(10)
            # Its exit code tells of no error of the engine's.
            complaints = re.findall(r"^fio: (?!waiting for connection).*", client.output() + server.output(), re.MULTILINE)
            if status != (0, 0) or complaints:
                raise Failed(f"exit codes {status}: {'; '.join(complaints) or pairs.last_words(client.output())}")
            if f"issued rwts: total=0,{blocks}," not in client.output():
                raise Failed(f"not {blocks} blocks: {pairs.last_words(client.output())}")
        return judge(self.fairlead, body)

    def qperf(self, test):
        """UC and UD tests know no GRH, without which there is no RoCE; RC ones have the connection manager fill it in."""
        def step(limit):
            port = self.port()
            outcome = pairs.run_pair(self.server, ["qperf", "-lp", port],
                                     self.client, ["qperf", self.server.address, "-lp", port, "-t", 1, "-cm1", test, "quit"], limit, port)
            if outcome.passed and not re.search(rf"^{test}:\n +\w+ +=", outcome.output, re.MULTILINE):
                outcome.passed, outcome.reason = False, f"printed no result: {pairs.last_words(outcome.output)}"
            return outcome
        return step

    def collectives(self, compiler, launcher, environment):
        ranks, rounds, most = 4, 5, 8 << 16  # of mpi_collectives.c

        def body(stage):
            program = stage.folder / "mpi_collectives"
            built = subprocess.run([compiler, "-O1", "-o", program, HERE / "mpi_collectives.c"], capture_output=True, text=True, check=False)
            if built.returncode != 0:
                raise Failed(f"{compiler}: {pairs.last_words(built.stderr)}")
            job = stage.start([*launcher, self.fairlead, "run", "--", program, stage.folder / "go"], {**UCX, **environment})
            stage.await_words(job, f"verified on {ranks} ranks")
            exchanged = rounds * (ranks - 1) * most
            stage.carried(ranks, exchanged, exchanged)
            (stage.folder / "go").touch()
            if job.wait() != 0:
                raise Failed(f"exit code {job.status}: {pairs.last_words(job.output())}")
        return judge_programs.needs([compiler, launcher[0]], judge(self.fairlead, body))

    def wheel(self, kind, python, packet_io):
        def body(stage):
            def start(role, side):
                prefix = [*side.prefix[:-1], "--packet-io", packet_io, "--"]
                return stage.start([*prefix, python, HERE / "wheel_transfer.py", kind, role, stage.folder, side.address], UCX)

            target = start("target", self.server)
            if not until((stage.folder / "target").exists, [target], stage.limit):
                raise Failed(f"the target did not come up: {pairs.last_words(target.output())}")
            initiator = start("initiator", self.client)
            stage.await_words(initiator, "moved")
            moved = int(re.search(r"moved (\d+)", initiator.output())[1])
            stage.carried(2, moved, moved)
            wanted, unwanted = OWN_WORDS[kind]
            for program in (target, initiator):
                if not re.search(wanted, program.output()):
                    raise Failed(f"it does not say '{wanted}'")
                if other := re.search(unwanted, program.output()):
                    raise Failed(f"it says '{other[0]}'")
            for role, program in (("initiator", initiator), ("target", target)):  # UCX's end waits for its peer's
                (stage.folder / f"{role}.go").touch()
                if program.wait() != 0:
                    raise Failed(f"the {role}'s exit code is {program.status}: {pairs.last_words(program.output())}")
        return judge(self.fairlead, body)

    def wheels(self, kind, folder, no_setup):
        """Without loss and with; skipped where pip cannot have the wheel."""
        def step(limit):
            begin = time.monotonic()
            python, problem = wheels(folder, [kind], no_setup)[kind]
            if problem:
                return pairs.Outcome(False, problem, time.monotonic() - begin, skipped=True)
            return judge_programs.runs(limit, [(packet_io, self.wheel(kind, python, packet_io)) for packet_io in ("udp", "udp,drop=0.01")])
        return step

    def migration(self, stage):
        """A guest under emulation moves with all of its memory registered, and finds every page as it left it."""
        memory, end = 64 << 20, 33 << 20
        image = build_guest(stage.folder, end)

        def qemu(side, *more):
            name = side.name
            return stage.start([*side.prefix, "qemu-system-x86_64", "-accel", "tcg", "-m", memory >> 20, "-nodefaults", "-display", "none",
                                "-drive", f"if=floppy,format=raw,readonly=on,file={image}", "-serial", f"file:{stage.folder / name}",
                                "-qmp", f"unix:{stage.folder / name}.qmp,server=on,wait=off", *more])

        def said(side):
            with contextlib.suppress(FileNotFoundError):
                return (stage.folder / side.name).read_text(encoding="ascii")
            return ""

        there, here = qemu(self.server, "-incoming", "defer"), qemu(self.client)
        monitors = {side.name: Monitor(stage, side.name) for side in (self.server, self.client)}
        target, source = monitors[self.server.name], monitors[self.client.name]
        for monitor in (target, source):
            monitor("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": True}])
        source("migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 60_000})
        uri = f"rdma:{self.server.address}:{self.port()}"
        target("migrate-incoming", uri=uri)
        if not until(lambda: said(self.client).count(".") >= 3, [here], stage.limit):
            raise Failed(f"the guest did not start: {pairs.last_words(here.output())}")
        source("migrate", uri=uri)
        facts = {}

        def ended():
            facts.update(source("query-migrate"))
            return facts.get("status") in ("completed", "failed", "cancelled")
        until(ended, [here, there], stage.limit)
        if facts.get("status") != "completed":
            raise Failed(f"migration: {facts.get('status')}, {facts.get('error-desc', '')}")
        if not until(lambda: said(self.server).count(".") >= 3, [there], stage.limit):
            raise Failed(f"the guest does not run on: it says '{said(self.server)}'; {pairs.last_words(there.output())}")
        if "X" in said(self.client) + said(self.server):
            raise Failed("the guest found a page that is not as it left it")
        if max(count["rcvd_bytes"] for count in stage.counters()) < memory:
            raise Failed("softroce did not carry the guest's memory")
        return f"{facts['ram']['transferred'] >> 20} MB, {len(said(self.server))} passes over memory after it"


class Monitor:
    """QEMU's, by QMP."""

    def __init__(self, stage, name):
        path = str(stage.folder / f"{name}.qmp")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(stage.limit)
        if not until(lambda: self.socket.connect_ex(path) == 0, stage.programs):
            raise Failed(f"QEMU did not start: {pairs.last_words(stage.programs[-1].output())}")
        self.stream = self.socket.makefile("rw")
        self.stream.readline()
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        try:
            self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self.stream.flush()
            while line := self.stream.readline():
                answer = json.loads(line)
                if "error" in answer:
                    raise Failed(f"{command}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except OSError as problem:
            raise Failed(f"{command}: {problem}") from problem
        raise Failed(f"{command}: QEMU ended")


def build_guest(folder, end):
    image = folder / "guest"
    for command in (["gcc", "-m32", "-c", f"-DEND={end}", "-o", folder / "guest.o", HERE / "dirty_guest.S"],
                    ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-o", image, folder / "guest.o"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{command[0]}: {pairs.last_words(done.stderr)}")
    return image


def install(folder, wheel):
    """(python of a virtual environment with that wheel, None), or (None, why not)."""
    python = folder / "bin/python3"
    commands = [] if (folder / "bin/pip").exists() else [[PYTHON, "-m", "venv", folder]]
    commands.append([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", "numpy"])
    # Neither end of a transfer needs what they depend on (torch).
    commands.append([*commands[-1][:-1], "--no-deps", wheel])
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as problem:
            return None, f"{command[-1]}: {problem}"
        if done.returncode != 0:
            return None, f"pip cannot have {command[-1]}: {pairs.last_words(done.stdout + done.stderr)}"
    return python, None


def installed(folder, wheel):
    """As install, of what is there already."""
    python, (name, version) = folder / "bin/python3", wheel.split("==")
    asked = f"import importlib.metadata, sys; sys.exit(importlib.metadata.version('{name}') != '{version}')"
    if not python.exists() or subprocess.run([python, "-c", asked], capture_output=True, check=False).returncode != 0:
        return None, f"{wheel} is not in {folder}, and --no-setup installs nothing"
    return python, None


def wheels(folder, kinds, no_setup):
    """{kind: as install gives it}"""
    return {kind: (installed if no_setup else install)(folder, WHEELS[kind]) for kind in kinds}


QPERF = ("rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_rdma_read_bw",
         "rc_rdma_read_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")


def judges(server, client, port, quick, build, no_setup):
    """[(name, seconds allowed for each of its runs, function of that limit)]; `build`: a folder that is kept."""
    stacks = Stacks(server, client, port)
    found = []
    for verb in ("write", "read", "send"):
        depths = [(f"depth {depth}", stacks.fio(verb, depth)) for depth in ((64,) if quick else (1, 16, 64))]
        found.append((f"fio --verb={verb}", 60, judge_programs.needs(["fio"], lambda limit, depths=depths: judge_programs.runs(limit, depths))))
    tests = [(test, stacks.qperf(test)) for test in (("rc_bw", "ver_rc_fetch_add") if quick else QPERF)]
    found.append(("qperf -cm1", 30, judge_programs.needs(["qperf"], lambda limit: judge_programs.runs(limit, tests))))
    found.append(("QEMU live migration, rdma-pin-all", 120,
                  judge_programs.needs(["qemu-system-x86_64", "gcc", "ld"], judge(stacks.fairlead, stacks.migration))))
    if quick:
        return found
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    open_mpi = ["mpirun.openmpi", "-np", "4", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "btl", "self"]
    for name, compiler, launcher, environment in (("Open MPI", "mpicc.openmpi", open_mpi, root),
                                                  ("MPICH", "mpicc.mpich", ["mpirun.mpich", "-np", "4"], {})):
        found.append((f"{name} over UCX: allreduce, alltoall, 4 ranks", 60, stacks.collectives(compiler, launcher, environment)))
    for kind, name in (("mooncake", "Mooncake"), ("nixl", "NIXL")):
        found.append((f"{name}'s wheel: write, read", 120, stacks.wheels(kind, build / "judge-wheels", no_setup)))
    return found
