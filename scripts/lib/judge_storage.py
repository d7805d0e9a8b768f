"""Programs that judge softroce's connection management: iSER and DAPL over it, datagram services, and sockets over RDMA,
which it refuses. As judge_programs, whose kind of judges these are.
"""

import os
import pathlib
import tempfile
import time

import judge_programs
import pairs

TARGET = "iqn.2026-01.example:judge"
INITIATOR = "iqn.2008-11.org.linux-kvm"  # what qemu-img calls itself
MEGABYTES = {True: 16, False: 256}  # that iSER writes and reads back: quick, else
# Messages, writes and reads; writes in turn with their data checked; a stream of writes; a consumer notification object;
# polling. The default of 1000 writes of 4 MiB each way takes minutes.
DTESTS = [["-b", "4096", "-B", "50"], ["-W", "-D", "-b", "4096", "-B", "50"], ["-w", "-b", "65536", "-B", "500"],
          ["-c", "-b", "4096", "-B", "50"], ["-p", "-b", "4096", "-B", "50"]]
NO_RSOCKETS = "softroce has no sockets over RDMA"


class Storage:
    """Judges between two sides, as judge_programs.Programs has them."""

    def __init__(self, server, client, port):
        self.server, self.client, self.port = server, client, port

    def iser(self, megabytes):
        """tgtd exports a file over iSER, at 0.0.0.0 and :: as it does by itself; QEMU writes the disk and reads it back, as
        much at a time as libiscsi takes."""
        def step(limit):
            begin, text = time.monotonic(), ""
            with tempfile.TemporaryDirectory() as folder:
                work = pathlib.Path(folder)
                (work / "written").write_bytes(os.urandom(megabytes << 20))
                (work / "disk").write_bytes(bytes(megabytes << 20))
                environment = ["env", f"TGT_IPC_SOCKET={work / 'socket'}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
                target = self.server.start([*environment, "tgtd", "-f", "--iscsi", f"portal=127.0.0.1:{self.port()}",
                                            "--iser", "pool_sz_mb=128"], limit)

                def outcome(reason):
                    return pairs.Outcome(not reason, reason, time.monotonic() - begin, f"{text}--- tgtd\n{target.output()}")
                try:
                    admin = [*environment, "tgtadm"]
                    while pairs.Program([*admin, "--mode", "sys", "--op", "show"], 10).wait() != 0:
                        if not target.running() or time.monotonic() - begin > limit / 2:
                            return outcome(f"tgtd did not start: {pairs.last_words(target.output())}")
                        time.sleep(0.1)
                    disk = f"iser://{self.server.address}:3260/{TARGET}/1"
                    for who, command in (
                            ("tgtadm", ["--lld", "iser", "--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET]),
                            ("tgtadm", ["--lld", "iser", "--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b",
                                        work / "disk"]),
                            ("tgtadm", ["--lld", "iser", "--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"]),
                            ("tgtadm", ["--lld", "iser", "--mode", "target", "--op", "bind", "--tid", "1", "-Q", INITIATOR]),
                            ("qemu-img", ["dd", "-f", "raw", "-O", "raw", "bs=256k", f"if={work / 'written'}", f"of={disk}"]),
                            ("qemu-img", ["dd", "-f", "raw", "-O", "raw", "bs=256k", f"if={disk}", f"of={work / 'read'}"])):
                        left = max(1, limit - (time.monotonic() - begin))
                        program = pairs.Program([*admin, *command], left) if who == "tgtadm" else self.client.start([who, *command], left)
                        status = program.wait()
                        text += f"$ {' '.join(program.argv)}\n{program.output()}\nexit code {status}\n"
                        if status != 0:
                            return outcome(f"{who} {command[0]}: exit code {status}: {pairs.last_words(program.output())}")
                    same = (work / "read").read_bytes() == (work / "written").read_bytes() == (work / "disk").read_bytes()
                    return outcome("" if same else "what was read back is not what was written")
                finally:
                    target.end()
        return step

    def dtests(self, variants):
        """DAPL's own test, each side with an interface adapter at its address."""
        def once(flags):
            return lambda limit: self._dtest(flags, limit)
        return lambda limit: judge_programs.runs(limit, [(" ".join(flags), once(flags)) for flags in variants])

    def _dtest(self, flags, limit):
        with tempfile.TemporaryDirectory() as folder:
            def words(side):
                registry = pathlib.Path(folder) / f"{side.name}.conf"
                registry.write_text('soft u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 '
                                    f'"{side.address} 0" ""\n', encoding="ascii")
                return ["env", f"DAT_OVERRIDE={registry}", "dtest", "-P", "soft", *flags]
            outcome = pairs.run_pair(self.server, words(self.server), self.client,
                                     [*words(self.client), "-h", self.server.address], limit)
            if outcome.passed and "DAPL Test Complete. PASSED" not in outcome.output:
                outcome.passed, outcome.reason = False, "did not say that it passed"
            return outcome

    def no_rsockets(self, program, flags):
        """It must end by itself and say why."""
        def step(limit):
            begin = time.monotonic()
            started = self.server.start([program, *flags], limit)
            status, text = started.wait(), started.output()
            passed = status not in (0, 124) and not 128 < status < 193 and NO_RSOCKETS in text  # by no signal
            words = NO_RSOCKETS if passed else f"exit code {status}: {pairs.last_words(text)}"
            return pairs.Outcome(passed, f"refused: {words}" if passed else words, time.monotonic() - begin, text)
        return step


def judges(server, client, port, quick):
    """As judge_programs.judges."""
    storage = Storage(server, client, port)
    programs = judge_programs.Programs(server, client, port)
    size = MEGABYTES[quick]
    found = [("ib_send_bw -R -c UD", 30, programs.perftest_once("ib_send_bw", ["-R", "-c", "UD", "-n", "1000"])),
             (f"tgtd iSER, qemu-img dd, {size} MiB", 60 if quick else 240, judge_programs.needs(["tgtd", "qemu-img"], storage.iser(size))),
             ("DAPL dtest", 60, judge_programs.needs(["dtest"], storage.dtests(DTESTS[:2] if quick else DTESTS)))]
    found.append(("rsockets, refused", 30, lambda limit: judge_programs.runs(
        limit, [(program, storage.no_rsockets(program, flags))
                for program, flags in (("rstream", ["-s", server.address]), ("riostream", ["-s", server.address]),
                                       ("udpong", ["-s", server.address]))])))
    return found
