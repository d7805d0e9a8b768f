"""`fairlead gain`: its report holds to the schema, says of the terms what they are, and its page says what the report
says, also in a browser (headless Chromium, where it is installed). Nothing here asks how fast anything is."""

import html.parser
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import time

from harness import PATIENCE, Case, main
from schemas import violations

QUICK = ["--quads", "3", "--block", "0.02", "--sizes", "4K,64K"]
CLAIMS = {"rdma_faster", "tcp_faster", "shm_faster", "candidate_faster", "baseline_faster"}


class Page(html.parser.HTMLParser):
    """What a page says: rows of figures, (metric, size, role): [value, ...], and of a training's (link, nodes): [value, ...]; titles
    in drawings; tags; the verdict."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.titles, self.tags, self.terms, self.attributes = {}, [], [], {}, []
        self.nodes = {}
        self._row, self._text, self._drawing = None, "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.attributes.append((tag, attributes))
        self._text = ""
        if tag == "tr":
            self._row = None
            if "data-metric" in attributes:
                self._row = self.rows[attributes["data-metric"], int(attributes["data-size"]), attributes["class"]] = []
            elif "data-link" in attributes:
                self._row = self.nodes[float(attributes["data-link"]), int(attributes["data-nodes"])] = []
        elif tag == "data" and self._row is not None:
            self._row.append(float(attributes["value"]))

    def handle_data(self, data):
        self._text += data

    def handle_endtag(self, tag):
        if tag == "title":
            self.titles.append(self._text)


class Gain(Case):
    def gain(self, *words, sides=("tcp", "verbs:soft0")):
        report, page = self.path("gain.json"), self.path("gain.html")
        code, output = self.run_to_end("gain", *words, "--baseline", sides[0], "--candidate", sides[1], "--json", report,
                                       "--html", page, timeout=4 * PATIENCE)
        self.assertEqual(code, 0, output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain"), [])
        return document, pathlib.Path(page).read_text(encoding="utf-8"), output

    def check_figures(self, document):
        """The ratios are those of the quads."""
        for result in [*document["results"], *([document["control"]] if document["control"] else [])]:
            sign = 1 if result["better"] == "higher" else -1
            logs = [sign * sum(map(math.log, quad["candidate"])) / 2 - sign * sum(map(math.log, quad["baseline"])) / 2
                    for quad in result["quads"]]
            self.assertAlmostEqual(math.exp(statistics.median(logs)), result["ratio"], 9)
            self.assertLessEqual(result["ratio_low"], result["ratio"])
            self.assertLessEqual(result["ratio"], result["ratio_high"])

    def check_page(self, document, text):
        page = Page(text)
        wanted = {(each["metric"], each["size_bytes"], each["role"]): each for each in document["results"]}
        if document["control"]:
            wanted[document["control"]["metric"], document["control"]["size_bytes"], "control"] = document["control"]
        self.assertEqual(set(page.rows), set(wanted))
        for key, each in wanted.items():
            self.assertEqual(page.rows[key], [each["baseline"], each["candidate"], each["ratio"], each["ratio_low"],
                                              each["ratio_high"]])
            drawn = f"{each['ratio']:.3f} ({each['ratio_low']:.3f} to {each['ratio_high']:.3f})"
            self.assertTrue(any(title.endswith(": " + drawn) for title in page.titles), f"{drawn} is not drawn")
        self.assertIn(f">{document['verdict']}</strong>", text)
        for term in document["terms"]:
            self.assertIn(f'<th scope="row">{term["name"]}</th><td class="{"equal" if term["equal"] else "unequal"}">', text)
        self.assertEqual({"script", "link", "img", "iframe", "object"} & set(page.tags), set())
        fetched = [(tag, given) for tag, given in page.attributes if {"src", "href", "xlink:href"} & set(given)]
        self.assertEqual(fetched, [("a", {"class": "skip", "href": "#results"})])
        self.assertNotIn("url(", text)
        return page

    def check_training_page(self, document, text):
        """Efficiency of both sides, predicted and, at as many nodes as there were ranks, measured; the ratio beside the claim."""
        page = self.check_page(document, text)
        wanted = {}
        for each in document["predictions"]:
            figures = [[each["baseline_efficiency"]], [each["candidate_efficiency"]], [each["ratio"]]]
            if each["link_gbps"] is None and each["nodes"] == document["plan"]["ranks"]:
                measured = [document["parameters"]["baseline"]["efficiency"], document["parameters"]["candidate"]["efficiency"],
                            document["ratio"]]
                figures = [[*predicted, figure] for predicted, figure in zip(figures, measured)]
            wanted[each["link_gbps"] or 0.0, each["nodes"]] = sum(figures, [])
        self.assertEqual(page.nodes, wanted)
        for link in document["twice_from"]:
            over = f'{link["link_gbps"]:g} Gb/s' if link["link_gbps"] else "this link"
            self.assertIn(f"Efficiency by nodes over {over}", page.titles)
        for side in ("baseline", "candidate"):
            drawn = f'{document[side]["transport"]}, measured: {document["parameters"][side]["efficiency"]:.3f} at '                     f'{document["plan"]["ranks"]}'
            self.assertIn(drawn, page.titles)
        self.assertIn(f'<data value="{document["claim"]["ratio"]:.1f}">', text)
        self.assertIn(document["claim"]["source"].split("'")[0], text)

    def test_sides_over_loopback(self):
        for sides, equal in ((("tcp", "verbs:soft0"), False), (("tcp", "shm"), False), (("tcp", "tcp"), True),
                             (("verbs:soft0", "verbs:soft0"), True)):
            with self.subTest(sides=sides):
                document, page, output = self.gain("--local", *QUICK, sides=sides)
                self.assertEqual((document["baseline"]["transport"], document["candidate"]["transport"]), sides)
                unequal = {term["name"] for term in document["terms"] if not term["equal"]}
                self.assertEqual(document["equal_terms"], equal, unequal)
                self.assertEqual(document["equal_terms"], not unequal)
                self.assertIn({("tcp", "shm"): "link", ("tcp", "verbs:soft0"): "payload of a packet"}.get(sides, ""), {"", *unequal})
                self.assertEqual(document["verdict"], "inconclusive" if equal else "unequal_terms")  # three quads are few
                self.assertEqual({result["verdict"] for result in document["results"]} & CLAIMS, set())
                kinds = {(result["metric"], result["size_bytes"]) for result in document["results"]}
                for metric in ("bandwidth", "latency_p50", "latency_p99"):
                    self.assertLessEqual({(metric, 4096), (metric, 65536)}, kinds)
                self.assertEqual(document["primary"], {"metric": "bandwidth", "size_bytes": 65536})
                self.assertEqual([r["role"] for r in document["results"]].count("primary"), 1)
                self.assertTrue(document["verified"])
                self.assertIn("(primary)", output)
                self.check_figures(document)
                self.check_page(document, page)

    def test_between_two_programs(self):
        server = self.start("gain", "--server", "127.0.0.1:0", "--once")
        server.wait_for("^listening on ")
        document, _, _ = self.gain(server.lines[0].split()[-1], *QUICK, "--kind", "lat", "--primary", "latency", "--op", "read",
                                   "--primary-size", "4K", "--no-control", "--seed", "9")
        self.assertEqual(document["primary"], {"metric": "latency_p50", "size_bytes": 4096})
        self.assertEqual({result["metric"] for result in document["results"]}, {"latency_p50", "latency_p99"})
        self.assertIsNone(document["control"])
        self.assertEqual((document["plan"]["op"], document["plan"]["seed"]), ("read", 9))

    def test_a_candidate_that_rests_has_rested(self):
        document, _, _ = self.gain("--local", "--quads", "2", "--block", "0.05", "--sizes", "64K", "--kind", "bw",
                                   "--slow-candidate", "10", "--no-control", sides=("tcp", "tcp"))
        self.assertEqual(document["plan"]["slow_candidate"], 10)
        self.assertLess(document["ratio"], 0.5)  # it did nothing for ten elevenths of its time

    def test_ctrl_c_leaves_what_there_is(self):
        report = self.path("gain.json")
        client = self.start("gain", "--local", "--candidate", "tcp", "--sizes", "4K,64K", "--quads", "40", "--block", "0.02",
                            "--json", report)
        client.wait_for("^measured bw of 4K: 40 quads", 4 * PATIENCE)
        os.kill(client.process.pid, signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain"), [])
        self.assertTrue(document["interrupted"])
        self.assertFalse(document["verified"])
        whole = [len(r["quads"]) for r in document["results"] if (r["metric"], r["size_bytes"]) == ("bandwidth", 4096)]
        self.assertEqual(whole, [40])
        self.assertLess(sum(len(r["quads"]) for r in document["results"]), 40 * 12)  # and not all of the rest

    def test_a_server_that_ends_in_the_middle(self):
        server = self.start("gain", "--server", "127.0.0.1:0")
        server.wait_for("^listening on ")
        client = self.start("gain", server.lines[0].split()[-1], "--candidate", "tcp", "--quads", "500", "--block", "0.02", "--sizes",
                            "4K", "--peer-timeout", "2000")
        client.wait_for("^primary: ")
        time.sleep(0.3)
        server.kill()
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "error: .*lost the target|error: .*the path changed|error: ")

    def test_what_was_complete_outlives_a_failure(self):
        report, page = self.path("gain.json"), self.path("gain.html")
        server = self.start("gain", "--server", "127.0.0.1:0")
        server.wait_for("^listening on ")
        client = self.start("gain", server.lines[0].split()[-1], "--candidate", "tcp", "--sizes", "4K,64K", "--kind", "bw", "--quads", "40",
                            "--block", "0.02", "--json", report, "--html", page)
        client.wait_for("^measured bw of 4K: 40 quads", 4 * PATIENCE)
        server.kill()
        self.assertEqual(client.wait(), 1, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain"), [])
        self.assertEqual((document["interrupted"], document["verified"], document["verdict"]), (True, False, "inconclusive"))
        self.assertRegex(document["error"], "bw of 64K: ")
        self.assertEqual({result["size_bytes"] for result in document["results"]}, {4096})
        self.check_page(document, pathlib.Path(page).read_text(encoding="utf-8"))

    def test_not_a_server_of_ours(self):
        server = self.serve()
        self.assert_fails(self.run_to_end("gain", server.listen, "--candidate", "tcp"), 1,
                          "gain: error: .*does not say what it is, as a `fairlead gain --server`")

    def test_wrong_usage(self):
        for words, reason in (
                ([], "give either --local or the HOST:PORT"),
                (["--local", "127.0.0.1:1"], "give either --local or the HOST:PORT"),
                (["--server", ":0", "--quads", "20"], "--quads and --server exclude each other"),
                (["--local", "--once"], "--once is for --server"),
                (["--local", "--transport", "tcp"], "say --baseline and --candidate"),
                (["--local", "--sizes", "4K", "--primary-size", "8K"], "--primary-size 8K is none of --sizes"),
                (["--local", "--sizes", "4K,64K,4096"], "size 4K is given twice"),
                (["--local", "--kind", "lat"], "--primary bandwidth is not measured with --kind lat"),
                (["--local", "--quads", "5000"], "this would take .* s, and at most 300 are sensible"),
                (["--local", "--op", "send", "--sizes", "1G"], "a message has at most"),
                (["--local", "--json", "-", "--html", "-"], "exclude each other"),
                (["--local", "--candidate", "quic"], "quic")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("gain", *words), 2, reason)

    def training(self, *words):
        report, page = self.path("training.json"), self.path("training.html")
        code, output = self.run_to_end("gain", "--training", *words, "--json", report, "--html", page, timeout=4 * PATIENCE)
        self.assertEqual(code, 0, output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain_training"), [])
        self.check_figures(document)
        self.check_training_page(document, pathlib.Path(page).read_text(encoding="utf-8"))
        return document, output

    def test_training_of_ranks_that_nobody_names(self):
        document, _ = self.training("resnet50", "--scale", "0.001", "--candidate", "tcp", "--quads", "1", "--no-control")
        self.assertEqual(document["plan"]["ranks"], 4)

    def test_training(self):
        document, output = self.training("resnet50", "--scale", "0.002", "--local", "3", "--candidate", "verbs:soft0", "--quads", "2",
                                         "--link-gbps", "10,100", "--compute-ms", "500")
        self.assertEqual((document["baseline"]["transport"], document["candidate"]["transport"]), ("tcp", "verbs:soft0"))
        self.assertEqual(document["verdict"], "unequal_terms")  # payloads over loopback
        self.assertEqual([len(result["quads"]) for result in document["results"]], [2])
        self.assertEqual((document["plan"]["ranks"], document["plan"]["compute_seconds"]), (3, 0.001))
        self.assertEqual([(each["link_gbps"], each["nodes"]) for each in document["predictions"]],
                         [(link, nodes) for link in (None, 10, 100) for nodes in (1, 2, 3, 4, 8)])
        self.assertEqual([each["link_gbps"] for each in document["twice_from"]], [None, 10, 100])
        self.assertTrue(document["verified"])
        self.assertIn("memory of this host", {term["candidate"] for term in document["terms"] if not term["equal"]})
        self.assertIn("claimed elsewhere: 2 (", output)
        self.assertIn("Predicted efficiency, not measured", output)

    def test_training_beside_itself(self):
        for transport in ("tcp", "verbs:soft0"):
            with self.subTest(transport=transport):
                document, _ = self.training("bert-base", "--scale", "0.0005", "--local", "2", "--baseline", transport, "--candidate",
                                            transport, "--quads", "1", "--no-control", "--dtype", "BF16")
                self.assertTrue(document["equal_terms"])
                self.assertEqual(document["verdict"], "inconclusive")  # one quad is little
                self.assertIsNone(document["control"])

    def test_training_loses_a_rank(self):
        with socket.socket() as one, socket.socket() as other:  # free now; both are bound so that they differ
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            places = f"127.0.0.1:{one.getsockname()[1]},127.0.0.1:{other.getsockname()[1]}"
        words = ["gain", "--training", "resnet50", "--scale", "0.001", "--ranks", places, "--candidate", "tcp", "--quads", "9999",
                 "--peer-timeout", "2000"]
        ranks = [self.start(*words, "--rank", str(rank)) for rank in range(2)]
        ranks[0].wait_for("^quad 2 of 9999")
        ranks[1].kill()
        self.assertEqual(ranks[0].wait(), 1, ranks[0].output)
        # In a round, or between two of them, while the next one's ranks gather.
        self.assertRegex(ranks[0].output, "gain: error: .*(rank 1: |of 2 ranks these did not come in time: 1)")

    def test_training_stopped_at_all_ranks(self):
        """As mpirun and srun do it: each rank gets the signal."""
        report = self.path("training.json")
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            places = f"127.0.0.1:{one.getsockname()[1]},127.0.0.1:{other.getsockname()[1]}"
        words = ["gain", "--training", "resnet50", "--scale", "0.001", "--ranks", places, "--candidate", "tcp", "--quads", "9999"]
        ranks = [self.start(*words, "--rank", str(rank), *(["--json", report] if rank == 0 else [])) for rank in range(2)]
        ranks[0].wait_for("^quad 2 of 9999", 4 * PATIENCE)
        for rank in reversed(ranks):
            os.kill(rank.process.pid, signal.SIGINT)
        self.assertEqual([rank.wait() for rank in ranks], [130, 130], [rank.output for rank in ranks])
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain_training"), [])
        self.assertTrue(document["interrupted"])

    def test_training_stopped(self):
        report = self.path("training.json")
        client = self.start("gain", "--training", "vgg16", "--scale", "0.001", "--local", "2", "--candidate", "shm", "--quads", "9999",
                            "--json", report)
        client.wait_for("^quad 2 of 9999", 4 * PATIENCE)
        os.kill(client.process.pid, signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "gain_training"), [])
        self.assertTrue(document["interrupted"])
        self.assertFalse(document["verified"])
        self.assertGreaterEqual(len(document["results"][0]["quads"]), 2)

    def test_training_wrong_usage(self):
        for words, reason in (
                (["resnet"], "there are resnet50, vgg16, bert-base"),
                (["vgg16", "--transport", "tcp"], "say --baseline and --candidate"),
                (["vgg16", "--scale", "0"], "'0' is no part of a model: from 0.0001 to 1"),
                (["vgg16", "--json", "-", "--html", "-"], "exclude each other"),
                (["vgg16", "--compute-ms", "0"], "without computation there is no efficiency"),
                (["vgg16", "--link-gbps", "10,"], "'' is no rate of a link"),
                (["vgg16", "--link-gbps", "nan"], "'nan' is no rate of a link"),
                (["vgg16", "--ranks", "127.0.0.1:1"], "give --rank"),
                (["vgg16", "--local", "2", "--candidate", "quic"], "quic")):
            with self.subTest(words=words):
                code = 1 if words[-1] == "quic" else 2
                self.assert_fails(self.run_to_end("gain", "--training", *words), code, reason)
        self.assert_fails(self.run_to_end("gain", "--training", "vgg16", "--local", "1", "--candidate", "tcp"), 1, "take at least 2")

    def test_pages_that_are_kept(self):
        """docs/results: what a page says its report says."""
        kept = sorted((pathlib.Path(__file__).resolve().parents[2] / "docs/results").glob("gain*/*.json"))
        if not kept:
            self.skipTest("no report is kept in docs/results")
        for report in kept:
            with self.subTest(report.name):
                document = json.loads(report.read_text(encoding="utf-8"))
                training = "predictions" in document
                self.assertEqual(violations(document, "gain_training" if training else "gain"), [])
                self.check_figures(document)
                check = self.check_training_page if training else self.check_page
                check(document, report.with_suffix(".html").read_text(encoding="utf-8"))

    def test_in_a_browser(self):
        if shutil.which("chromium") is None:
            self.skipTest("no chromium here (scripts/setup --readers)")
        document, page, _ = self.gain("--local", *QUICK)
        self.check_page(document, self.in_a_browser("gain.html"))
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertIn("@media print", page)
        document, _ = self.training("resnet50", "--scale", "0.002", "--local", "2", "--candidate", "verbs:soft0", "--quads", "1",
                                    "--link-gbps", "25")
        self.check_training_page(document, self.in_a_browser("training.html"))

    def in_a_browser(self, page):
        """What a page is once Chromium has read it."""
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        done = None
        for attempt in range(3):  # a browser that crashes says nothing about the page
            done = subprocess.run(
                ["chromium", "--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", *root,
                 f"--user-data-dir={self.path(f'profile-{page}{attempt}')}", "--dump-dom", pathlib.Path(self.path(page)).as_uri()],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=3 * PATIENCE,
                check=False)
            if done.returncode == 0 and done.stdout.strip():
                break
        self.assertEqual(done.returncode, 0)
        return done.stdout


if __name__ == "__main__":
    main()
