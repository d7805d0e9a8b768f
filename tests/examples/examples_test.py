"""Runs the examples as a user would. usage: examples_test.py BIN_DIR"""

import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))


def run(*command):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)


def is_parameter(name):
    return not name.endswith(("running_mean", "running_var", "num_batches_tracked"))


class MakeResnet50(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "resnet50.safetensors"

    def make(self):
        done = run(BIN / "make_resnet50", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.file.read_bytes()

    def test_has_the_tensors_of_torchvision_without_gap_or_overlap(self):
        content = self.make()
        (length,) = struct.unpack("<Q", content[:8])
        self.assertEqual(length % 8, 0)
        header = json.loads(content[8 : 8 + length])
        del header["__metadata__"]
        elements, end = {}, 0
        for name, tensor in header.items():  # in the order of the file
            count = 1
            for dimension in tensor["shape"]:
                count *= dimension
            elements[name] = count
            begin, stop = tensor["data_offsets"]
            self.assertEqual(begin, end, name)
            self.assertEqual(stop - begin, count * {"F32": 4, "I64": 8}[tensor["dtype"]], name)
            end = stop
        self.assertEqual(len(content), 8 + length + end)
        self.assertEqual(len(header), 320)
        self.assertEqual(sum(1 for name in elements if is_parameter(name)), 161)
        self.assertEqual(sum(count for name, count in elements.items() if is_parameter(name)), 25_557_032)
        self.assertEqual(header["conv1.weight"]["shape"], [64, 3, 7, 7])
        self.assertEqual(header["layer2.0.conv2.weight"]["shape"], [128, 128, 3, 3])
        self.assertEqual(header["layer4.0.downsample.0.weight"]["shape"], [2048, 1024, 1, 1])
        self.assertEqual(header["fc.weight"]["shape"], [1000, 2048])
        self.assertEqual(header["bn1.num_batches_tracked"]["shape"], [])

    def test_is_the_same_every_time(self):
        first = hashlib.sha256(self.make()).digest()
        self.assertEqual(first, hashlib.sha256(self.make()).digest())

    def test_says_why_it_cannot_write(self):
        done = run(BIN / "make_resnet50", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)


class WriteOneBuffer(unittest.TestCase):
    def test_arrives(self):
        with subprocess.Popen([str(BIN / "write_one_buffer")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True) as receiver:
            self.addCleanup(receiver.kill)
            address = receiver.stdout.readline().removeprefix("listening on ").strip()
            sender = run(BIN / "write_one_buffer", address)
            self.assertEqual(sender.returncode, 0, sender.stderr)
            self.assertIn("sent 1048576 bytes", sender.stdout)
            said, _ = receiver.communicate(timeout=60)
            self.assertEqual(receiver.returncode, 0)
            self.assertIn("wrote 1048576 bytes of 'x'", said)

    def test_says_that_nobody_is_there(self):
        done = run(BIN / "write_one_buffer", "127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("127.0.0.1:1", done.stderr)


class Served:
    """An example that serves, and what it says until it ends."""

    def __init__(self, test, *command):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()

    def end(self, test):
        said, complained = self.process.communicate(timeout=60)
        test.assertEqual(self.process.returncode, 0, complained)
        return said


TRANSPORTS = ("tcp", "verbs:soft0")


class RemoteVectorAdd(unittest.TestCase):
    def test_adds(self):
        server = Served(self, BIN / "remote_vector_add", "--serve")
        for _ in range(2):
            done = run(BIN / "remote_vector_add", server.address)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "1048576 sums over (shm|tcp)")

    def test_says_what_is_wrong(self):
        done = run(BIN / "remote_vector_add")
        self.assertEqual(done.returncode, 1)
        self.assertIn("HOST:PORT", done.stderr)
        done = run(BIN / "remote_vector_add", "127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("127.0.0.1:1", done.stderr)


class RemoteDevice(unittest.TestCase):
    """What asks more of the device that remote_vector_add serves."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "attention.safetensors"

    def test_a_chain_of_products(self):
        server = Served(self, BIN / "remote_vector_add", "--serve")
        for _ in range(2):
            done = run(BIN / "remote_sgemm_chain", server.address)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "96 products over (shm|tcp), one wait")

    def test_a_pipeline(self):
        server = Served(self, BIN / "remote_vector_add", "--serve")
        for _ in range(2):
            done = run(BIN / "remote_pipeline", server.address)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "16 batches over (shm|tcp)")

    def test_inference_gives_the_numbers_of_this_host(self):
        made = run(BIN / "make_attention", self.file)
        self.assertEqual(made.returncode, 0, made.stderr)
        content = self.file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        self.assertEqual({name: (of["dtype"], of["shape"], of["data_offsets"]) for name, of in header.items()},
                         {"keys": ("F32", [64, 64], [0, 16384]), "values": ("F32", [64, 64], [16384, 32768])})
        self.assertEqual(len(content), 8 + length + 32768)
        server = Served(self, BIN / "remote_vector_add", "--serve")
        done = run(BIN / "remote_inference", self.file, server.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "4096 numbers over (shm|tcp), as here")

        for wrong in (content[:-1], content[:100], content[:7], b"", content.replace(b"keys", b"kays"),
                      content.replace(b"[0,16384]", b"[8,16384]"), content.replace(b"[0,16384]", b"[9,16384]"),
                      struct.pack("<Q", 2**63) + content[8:]):
            self.file.write_bytes(wrong)
            done = run(BIN / "remote_inference", self.file, server.address)
            self.assertEqual(done.returncode, 1)
            self.assertIn("say a FILE with keys and values", done.stderr)

    def test_says_what_is_wrong(self):
        run(BIN / "make_attention", self.file)
        for program, before in (("remote_sgemm_chain", []), ("remote_pipeline", []), ("remote_inference", [self.file])):
            with self.subTest(program):
                done = run(BIN / program)
                self.assertEqual(done.returncode, 1)
                self.assertIn("HOST:PORT", done.stderr)
                done = run(BIN / program, *before, "127.0.0.1:1")
                self.assertEqual(done.returncode, 1)
                self.assertIn("127.0.0.1:1", done.stderr)
        done = run(BIN / "make_attention", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)
        self.assertEqual(run(BIN / "make_attention").returncode, 2)


class ExamplesAreShort(unittest.TestCase):
    def test_remote_devices_take_fewer_than_60_lines(self):
        files = sorted((pathlib.Path(__file__).resolve().parent.parent.parent / "examples").glob("remote_*.cc"))
        self.assertEqual(len(files), 4)
        for file in files:
            self.assertLess(len(file.read_text(encoding="utf-8").splitlines()), 60, file.name)


class SmallStack(unittest.TestCase):
    """examples/remote_cuda; its calls one by one are remote_cuda_test's."""

    def test_a_program_for_a_gpu_computes_at_another_host(self):
        server = Served(self, BIN / "remote_vector_add", "--serve")
        for _ in range(2):
            done = run("env", f"REMOTE_CUDA={server.address}", BIN / "add_and_scale")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "262144 numbers, right\n")

    def test_says_that_there_is_no_device(self):
        for setting, said in ((["-u", "REMOTE_CUDA"], "HOST:PORT"), (["REMOTE_CUDA=127.0.0.1:1"], "127.0.0.1:1")):
            done = run("env", *setting, BIN / "add_and_scale")
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertIn("cuInit(0): 100, no device is served", done.stderr)


class Recordings(unittest.TestCase):
    """scripts/record_trace, on programs that know nothing of it."""

    def setUp(self):
        self.build = BIN.resolve().parent
        if not (self.build / "lib/libfairlead-record.so").exists():
            self.skipTest("no libfairlead-record.so in this build")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = Served(self, BIN / "remote_vector_add", "--serve")

    def record(self, *command, flags=()):
        """The calls of the trace, which `fairlead bench trace` is to take."""
        file = self.folder / "trace.jsonl"
        scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        done = run(scripts / "record_trace", file, "--name", "it", "--build", self.build, *flags, "--", *command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        header, *calls = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
        self.assertEqual((header["fairlead_trace"], header["name"]), (1, "it"))
        done = run(BIN / "fairlead", "bench", "trace", file, "--emulate", "--rtt", "5us", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = json.loads(done.stdout)["trace"]
        self.assertEqual(trace["calls"], len(calls))
        self.assertEqual(trace["device_ns"], sum(call.get("device_ns", 0) for call in calls))
        return calls

    def count(self, calls, **wanted):
        seen = {name: sum(call["op"] == name for call in calls) for name in ("launch", "copy_in", "copy_out", "mark", "fence")}
        self.assertEqual(seen, {"mark": 0, "fence": 0, **wanted})

    def test_a_chain_waits_once(self):
        calls = self.record(BIN / "remote_sgemm_chain", self.server.address)
        self.count(calls, launch=96, copy_in=2, copy_out=1)
        self.assertEqual([call["op"] for call in calls[:3]], ["copy_in", "copy_in", "launch"])
        self.assertEqual({call["bytes_out"] for call in calls if call["op"] == "launch"}, {60})
        self.assertEqual([call["bytes_back"] for call in calls if call["op"] == "copy_out"], [96 * 96 * 4])
        self.assertEqual(sum(call.get("blocking", False) for call in calls), 1)
        self.assertTrue(calls[-1]["blocking"])
        self.assertGreater(sum(call.get("device_ns", 0) for call in calls), 0)

    def test_a_pipeline_has_three_streams_and_fences(self):
        calls = self.record(BIN / "remote_pipeline", self.server.address, flags=["--no-device-times"])
        self.count(calls, launch=16, copy_in=17, copy_out=16, mark=48, fence=16 * 2 + 13 * 2)
        streams = {op: {call.get("stream", 0) for call in calls if call["op"] == op} for op in ("copy_in", "launch", "copy_out")}
        self.assertEqual(streams, {"copy_in": {0}, "launch": {1}, "copy_out": {2}})
        self.assertEqual({(call.get("stream", 0), call["on"]) for call in calls if call["op"] == "fence"},
                         {(0, 1), (1, 0), (1, 2), (2, 1)})
        self.assertEqual(sum(call.get("device_ns", 0) for call in calls), 0)

    def test_a_program_for_a_gpu_is_recorded_through_its_stack(self):
        calls = self.record("env", f"REMOTE_CUDA={self.server.address}", BIN / "add_and_scale")
        self.count(calls, launch=8, copy_in=8, copy_out=4, mark=calls_of(calls, "mark"), fence=calls_of(calls, "fence"))
        self.assertGreaterEqual(calls_of(calls, "fence"), 4)

    def test_notes_all_that_a_channel_does(self):
        def calls_of_library(name):
            shown = run("nm", "-D", "-C", "--defined-only", self.build / "lib" / name).stdout
            return set(re.findall(r"command::Channel::(\w+)\([^\n]*?\)(?:@|$)", shown, re.MULTILINE))
        self.assertEqual(calls_of_library("libfairlead.so") - calls_of_library("libfairlead-record.so"),
                         {"flush", "recover"})  # the program's own time, as docs/benchmarks.md has it

    def test_says_what_is_wrong(self):
        scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        for command, said in (([BIN / "remote_pipeline", "127.0.0.1:1"], "exit code 1"), (["true"], "made no call"),
                              ([self.folder / "nobody"], "No such file")):
            done = run(scripts / "record_trace", self.folder / "trace", "--build", self.build, "--", *command)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "trace").exists())


def calls_of(calls, op):
    return sum(call["op"] == op for call in calls)


class MoveBlocks(unittest.TestCase):
    def test_every_block_comes_and_goes_back(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                server = Served(self, BIN / "move_blocks", "--transport", transport)
                mover = run(BIN / "move_blocks", "--transport", transport, server.address)
                self.assertEqual(mover.returncode, 0, mover.stderr)
                self.assertIn(f"4096 blocks written, read back and compared over {transport}", mover.stdout)
                self.assertIn("4096 blocks came, with 256 notifications", server.end(self))

    def test_says_what_is_wrong(self):
        for words, said in ((["127.0.0.1:1"], "127.0.0.1:1"), (["nowhere"], "HOST:PORT"),
                            (["--transport", "pigeon"], "legal: auto, verbs"), (["--listen", "1:2:3"], "1:2:3"),
                            (["--listen"], "usage:"), (["--speed"], "'--speed' is not understood")):
            with self.subTest(words):
                done = run(BIN / "move_blocks", *words)
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(said, done.stderr)

    def test_says_that_others_serve_no_blocks(self):
        server = Served(self, BIN / "answer_messages")
        done = run(BIN / "move_blocks", server.address)
        self.assertEqual(done.returncode, 1)
        self.assertIn("blocks", done.stderr)

    def test_helps(self):
        done = run(BIN / "move_blocks", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--transport", done.stdout)


class AnswerMessages(unittest.TestCase):
    def test_every_question_has_its_answer(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                server = Served(self, BIN / "answer_messages", "--transport", transport)
                for _ in range(2):
                    asked = run(BIN / "answer_messages", "--transport", transport, server.address)
                    self.assertEqual(asked.returncode, 0, asked.stderr)
                    self.assertIn(f"1000 answers over {transport}", asked.stdout)
                server.process.terminate()
                said = re.search(r"(\d+) peers, (\d+) answers, (\d+) lost", server.end(self))
                # Who has the last answer leaves, perhaps before its sender has heard that it came.
                peers, answers, lost = (int(number) for number in said.groups())
                self.assertEqual(peers, 2)
                self.assertLessEqual(answers + lost, 2000)
                self.assertGreaterEqual(answers, 2000 - 2 * 16)

    def test_says_that_nobody_answers(self):
        server = Served(self, BIN / "answer_messages")
        server.process.kill()
        done = run(BIN / "answer_messages", server.address)
        self.assertEqual(done.returncode, 1)
        self.assertIn(server.address, done.stderr)

    def test_helps(self):
        done = run(BIN / "answer_messages", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--transport", done.stdout)


if __name__ == "__main__":
    unittest.main()
