"""`fairlead bench matrix`, and ranks that launchers start: who is slow is named.

Four hosts are network namespaces of the test's own, on one bridge. Each sends through a token bucket, so that what the
figures are is the links' doing and not this machine's; that of one is a tenth of the others'.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import xml.dom.minidom

from harness import PATIENCE, PROGRAM, SLOW, Case, main
from schemas import violations

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from namespaces import Host, enter, join, run  # noqa: E402

RANKS, LIMPING = 4, 2
TCP = ["--transport", "tcp"]
QUICK = ["--size", "64K", "--depth", "4", "--duration", "0.05"]
# Open MPI asks for more than we need: no tree of daemons, no network but this host's.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo", "-n", str(RANKS)]


def address(rank):
    return f"10.97.0.{rank + 1}"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Matrix(Case):
    def check(self, report, ranks=RANKS):
        self.assertEqual(violations(report, "matrix"), [])
        pairs = [(pair["from"], pair["to"]) for pair in report["pairs"]]
        self.assertEqual(pairs, [(a, b) for a in range(ranks) for b in range(ranks) if a != b])
        self.assertEqual([rank["rank"] for rank in report["ranks"]], list(range(ranks)))
        self.assertEqual({pair["transport"] for pair in report["pairs"]}, {"tcp"})
        self.assertTrue(report["verified"])

    def mpirun(self, script):
        """Runs `script` (of sh, which knows $rank) as ranks; its exit code and output."""
        run(*"ip link set lo up".split())
        program = f"rank=$OMPI_COMM_WORLD_RANK; {script}"
        done = subprocess.run([*MPIRUN, "sh", "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "TMPDIR": str(self.folder)})
        return done.returncode, done.stdout + done.stderr

    def hosts(self):
        run(*"ip link add fl-bridge type bridge".split())
        self.addCleanup(subprocess.run, ["ip", "link", "delete", "fl-bridge"], capture_output=True)
        run(*"ip link set fl-bridge up".split())
        hosts = []
        for rank in range(RANKS):
            hosts.append(Host())
            self.addCleanup(hosts[-1].stop)
            hosts[-1].link(f"fl-{rank}", "uplink")
            run(*f"ip link set fl-{rank} master fl-bridge up".split())
            join(address(rank), "uplink", at=hosts[-1].at)
            rate = 16 if rank == LIMPING else 160
            run(*f"tc qdisc add dev uplink root tbf rate {rate}mbit burst 64k latency 200ms".split(), at=hosts[-1].at)
        return hosts

    @staticmethod
    def on(hosts):
        """What begins a command on a rank's host."""
        return " ".join(f"{'' if rank == 0 else 'el'}if [ $rank = {rank} ]; then at='{' '.join(host.at)}';"
                        for rank, host in enumerate(hosts)) + " fi; exec $at"

    def test_mpirun_on_four_hosts_of_which_one_limps(self):
        if shutil.which("mpirun") is None:
            self.skipTest("needs Open MPI's mpirun (Debian: openmpi-bin)")
        hosts = self.hosts()
        report, drawing = self.path("matrix.json"), self.path("matrix.svg")
        code, output = self.mpirun(f"{self.on(hosts)} {PROGRAM} bench matrix --root {address(0)}:7473 {' '.join(TCP + QUICK)} "
                                   f"--slow-factor 3 --json {report} --svg {drawing}")
        self.assertEqual(code, 0, output)
        document = json.loads(pathlib.Path(report).read_text())
        self.check(document)
        self.assertEqual([rank["address"] for rank in document["ranks"][1:]], [address(rank) for rank in range(1, RANKS)])
        slow = [(rank["rank"], rank["role"]) for rank in document["slow_ranks"] if rank["of"] == "bandwidth"]
        self.assertIn((LIMPING, "from"), slow, output)  # and whom else this machine has kept waiting
        self.assertRegex(output, rf"(?m)^slow: from rank {LIMPING} \({address(LIMPING)}\), median bandwidth of its pairs: ")
        drawn = xml.dom.minidom.parse(drawing)
        cells = [rect for rect in drawn.getElementsByTagName("rect") if rect.getAttribute("class") == "cell"]
        self.assertEqual(len(cells), 2 * RANKS * (RANKS - 1))

    def test_mpirun_on_one_host_needs_no_root(self):
        if shutil.which("mpirun") is None:
            self.skipTest("needs Open MPI's mpirun (Debian: openmpi-bin)")
        for command in ("allreduce --sizes 8 --iterations 1", "training --compute-ms 1 --steps 1 --warm-up 0"):
            with self.subTest(command):
                report = self.path("ranks.json")
                code, output = self.mpirun(f"exec {PROGRAM} bench {command} {' '.join(TCP)} --json {report}")
                self.assertEqual(code, 0, output)
                self.assertEqual(json.loads(pathlib.Path(report).read_text())["ranks"], RANKS)
                if command.startswith("allreduce"):
                    self.assertRegex(output, r"(?m)^ +size .* busbw GB/s .*\n +8 B( +[\d.]+){6}$")

    def test_no_rank_goes_before_all_have_ended(self):
        """Of ten such runs one or two failed, as a rank that was done took the last word of the group along."""
        if shutil.which("mpirun") is None:
            self.skipTest("needs Open MPI's mpirun (Debian: openmpi-bin)")
        for _ in range(12):
            code, output = self.mpirun(f"exec {PROGRAM} bench allreduce --sizes 8 --iterations 1 {' '.join(TCP)}")
            self.assertEqual(code, 0, output)

    def test_ranks_of_a_launcher_compare_training_once(self):
        """gain --training has ranks of its own only where no launcher gives it some."""
        words = "gain --training resnet50 --scale 0.001 --compute-ms 5 --quads 1 --no-control --candidate tcp"
        if shutil.which("mpirun") is not None:
            report = self.path("training.json")
            code, output = self.mpirun(f"exec {PROGRAM} {words} --json {report}")
            self.assertEqual(code, 0, output)
            self.assertEqual(json.loads(pathlib.Path(report).read_text())["plan"]["ranks"], RANKS)
            self.assertEqual(output.count("Terms, which have to be equal:"), 1, output)
        run(*"ip link set lo up".split())
        root = f"127.0.0.1:{free_port()}"
        for flags, environments in ((["--root", root], [{"PMI_RANK": str(rank), "PMI_SIZE": "2"} for rank in range(2)]),
                                    (["--root", root, "--world-size", "2"], [{"FAIRLEAD_RANK": str(rank)} for rank in range(2)])):
            with self.subTest(flags=flags):
                ranks = [self.start(*words.split(), *flags, env=each) for each in environments]
                self.assertEqual([rank.wait() for rank in ranks], [0, 0], [rank.output for rank in ranks])
                self.assertIn("2 ranks", ranks[0].output)
                self.assertNotIn("Terms, which", ranks[1].output)
        code, output = self.run_to_end(*words.split(), "--root", root)
        self.assert_fails((code, output), 2, "give --rank: no launcher says it")
        self.assert_fails(self.run_to_end(*words.split(), env={"PMI_RANK": "0", "PMI_SIZE": "2"}), 2, "give --root HOST:PORT")

    def test_training_of_ranks_on_hosts_of_their_own(self):
        """Both transports' engines are met at the addresses that the hosts have for each other."""
        hosts = self.hosts()[:2]
        for candidate in ("tcp", "verbs:soft0"):
            with self.subTest(candidate=candidate):
                report = self.path("training.json")
                words = ["gain", "--training", "resnet50", "--scale", "0.0002", "--compute-ms", "5", "--quads", "1", "--no-control", "--candidate",
                         candidate, "--root", f"{address(0)}:7473", "--world-size", "2"]
                ranks = [self.start(*words, "--rank", str(rank), "--soft-address", address(rank), *(["--json", report] if rank == 0 else []),
                                    within=host.at) for rank, host in enumerate(hosts)]
                self.assertEqual([rank.wait() for rank in ranks], [0, 0], [rank.output for rank in ranks])
                document = json.loads(pathlib.Path(report).read_text())
                self.assertEqual(violations(document, "gain_training"), [])
                self.assertIn(f"-> {address(1)}", document["candidate"]["path"])
                self.assertTrue(document["verified"])

    def test_ranks_of_this_process(self):
        run(*"ip link set lo up".split())
        report = self.path("matrix.json")
        for ranks in (2, 3):
            code, output = self.run_to_end("bench", "matrix", "--local", str(ranks), *TCP, *QUICK, "--json", report)
            self.assertEqual(code, 0, output)
            self.check(json.loads(pathlib.Path(report).read_text()), ranks)

    def test_ctrl_c_leaves_the_turns_that_were_made(self):
        run(*"ip link set lo up".split())
        report, drawing = self.path("matrix.json"), self.path("matrix.svg")
        client = self.start("bench", "matrix", "--local", "3", *TCP, "--size", "64K", "--duration", "2", "--json", report, "--svg", drawing)
        client.wait_for("^3 ranks have met")
        time.sleep(2)  # a turn takes more than four
        os.kill(client.process.pid, signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "matrix"), [])
        self.assertTrue(document["interrupted"])
        self.assertEqual(len(document["pairs"]), document["turns"])
        self.assertEqual((document["slow_ranks"], document["slow_pairs"]), ([], []))
        self.assertLess(document["turns"], 6)
        xml.dom.minidom.parse(drawing)

    def start_ranks(self, environments, *flags):
        return [self.start("bench", "matrix", *TCP, *QUICK, *flags, env=each) for each in environments]

    def test_ranks_of_srun(self):
        """As it would start them: its variables are all that it gives."""
        run(*"ip link set lo up".split())
        root = f"127.0.0.1:{free_port()}"
        ranks = self.start_ranks([{"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "3"} for rank in range(3)], "--root", root)
        self.assertEqual([rank.wait() for rank in ranks], [0, 0, 0], [rank.output for rank in ranks])
        self.assertRegex(ranks[0].output, "(?m)^6 of 6 pairs over tcp$")

    def test_ranks_that_do_not_agree(self):
        run(*"ip link set lo up".split())
        for numbers, sizes, reason in (((0, 1, 1), (3, 3, 3), "say that they are rank 1: each has its own"),
                                       ((0, 1), (2, 3), "rank 1 is of 3 ranks where rank 0 is of 2")):
            with self.subTest(reason):
                root = f"127.0.0.1:{free_port()}"
                ranks = self.start_ranks([{"PMI_RANK": str(rank), "PMI_SIZE": str(size)} for rank, size in zip(numbers, sizes)],
                                         "--root", root)
                self.assertEqual([rank.wait() for rank in ranks], [1] * len(ranks), [rank.output for rank in ranks])
                self.assertIn(reason, "\n".join(rank.output for rank in ranks))

    def test_a_rank_that_is_killed_ends_all(self):
        run(*"ip link set lo up".split())
        root = f"127.0.0.1:{free_port()}"
        flags = ["--root", root, "--world-size", "3", "--duration", str(20 * SLOW), "--peer-timeout", "1000"]
        ranks = [self.start("bench", "matrix", *TCP, *flags, "--rank", str(rank)) for rank in range(3)]
        ranks[0].wait_for("^3 ranks have met")
        ranks[1].kill()
        self.assertEqual([ranks[rank].wait() for rank in (0, 2)], [1, 1], [rank.output for rank in ranks])

    def test_wrong_usage(self):
        for words, env, reason in (
                ([], {}, "start it by mpirun or srun with --root"),
                ([], {"PMI_RANK": "0", "PMI_SIZE": "2"}, "give --root HOST:PORT"),
                (["--root", "a:1"], {}, "give --rank: no launcher says it .OMPI_COMM_WORLD_RANK"),
                (["--root", "a:1", "--rank", "0"], {}, "give --world-size"),
                (["--root", "a:1", "--rank", "3", "--world-size", "3"], {}, "rank 3 of 3 ranks: they count from 0 to 2"),
                (["--root", "a:1"], {"PMI_RANK": "0", "PMI_SIZE": "99"}, "99 ranks: there may be 1 to 64"),
                (["--root", "a:1"], {"PMI_RANK": "0", "PMI_SIZE": "1"}, "1 rank has no pair"),
                (["--local", "1"], {}, "1 rank has no pair"),
                (["--root", ":1"], {}, "':1'"),
                (["--local", "2", "--root", "a:1"], {}, "--local, --ranks and --root exclude each other"),
                (["--local", "2", "--rank", "1"], {}, "--rank is for --ranks and --root"),
                (["--local", "2", "--world-size", "2"], {}, "--world-size is for --root"),
                (["--local", "2", "--json", "-", "--svg", "-"], {}, "--json - and --svg - exclude each other"),
                (["--local", "2", "--slow-factor", "1"], {}, "'1' is not legal here")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("bench", "matrix", *words, env=env), 2, reason)


if __name__ == "__main__":
    enter("tc", bridge=True)
    main()
