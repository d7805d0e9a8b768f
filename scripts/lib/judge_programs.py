"""The verbs programs of Debian that judge softroce, as scripts/judges runs them: each a name and a function that runs it.

Both ends run on this host, each with a device of its own on loopback. A judge of several runs passes if all of them do;
its note says which did not.
"""

import os
import shutil
import signal
import time

import pairs


def runs(limit, steps):
    """An Outcome out of several named ones; steps: (name, function of the time limit)."""
    begin = time.monotonic()
    failures, passed, text = [], [], ""
    for name, step in steps:
        outcome = step(limit)
        text += f"--- {name}: {'pass' if outcome.passed else 'FAIL: ' + outcome.reason}\n{outcome.output}\n"
        (passed if outcome.passed else failures).append(name if outcome.passed else f"{name}: {outcome.reason}")
    reason = "; ".join(failures) if failures else ", ".join(passed)
    return pairs.Outcome(not failures, reason, time.monotonic() - begin, text)


def needs(programs, step):
    """The step, skipped where one of the programs cannot be had; those of daemons are not in everybody's PATH."""
    def judge(limit):
        path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
        missing = [name for name in programs if shutil.which(name, path=path) is None]
        if missing:
            return pairs.Outcome(False, f"no {', '.join(missing)} here (scripts/setup --judges --stacks)", 0, skipped=True)
        return step(limit)
    return judge


class Programs:
    """Judges between two sides of one kind; `port` gives a TCP port that is free on both."""

    def __init__(self, server, client, port):
        self.server, self.client, self.port = server, client, port

    # ---- ibverbs-utils

    def devinfo(self, limit):
        begin = time.monotonic()
        program = self.client.start(["ibv_devinfo", "-v", "-d", self.client.device], limit)
        status, text = program.wait(), program.output()
        wanted = (f"hca_id:\t{self.client.device}", "PORT_ACTIVE", "GID[  1]", "::ffff:")
        missing = [word for word in wanted if word not in text]
        if status != 0:
            reason = f"exit code {status}: {pairs.last_words(text)}"
        else:
            reason = f"output lacks {missing}" if missing else ""
        return pairs.Outcome(not reason, reason, time.monotonic() - begin, text)

    def pingpong(self, program, variants):
        def once(flags):
            def step(limit):
                port = self.port()
                return pairs.run_pair(
                    self.server, [program, "-d", self.server.device, "-g", self.server.gid, "-p", port, *flags],
                    self.client, [program, "-d", self.client.device, "-g", self.client.gid, "-p", port, *flags, self.server.address],
                    limit, port)
            return step
        return lambda limit: runs(limit, [(" ".join(flags) or "defaults", once(flags)) for flags in variants])

    def refused(self, limit):
        """XRC is what no RoCE device in software has: the program must end by itself and say why."""
        begin = time.monotonic()
        program = self.server.start(["ibv_xsrq_pingpong", "-d", self.server.device, "-g", "1", "-p", str(self.port())], limit)
        status, text = program.wait(), program.output()
        passed = status not in (0, 124) and status < 128 and bool(text.strip())
        words = pairs.last_words(text)
        return pairs.Outcome(passed, f"refused: {words}" if passed else f"exit code {status}: {words}",
                             time.monotonic() - begin, text)

    # ---- perftest

    def perftest_command(self, side, program, port, flags):
        return [program, "-d", side.device, "-x", side.gid, "-F", "-p", port, *flags]

    def perftest_once(self, program, flags):
        def step(limit):
            port = None if "-R" in flags else self.port()
            number = port or self.port()
            return pairs.run_pair(
                self.server, self.perftest_command(self.server, program, number, flags),
                self.client, [*self.perftest_command(self.client, program, number, flags), self.server.address],
                limit, port)
        return step

    def perftest_interrupted(self, program, flags):
        """--run_infinitely, ended by SIGINT: both print results by then, end at once, and the device serves the next run."""
        def step(limit):
            begin = time.monotonic()
            port = self.port()
            flags_ = [*flags, "--run_infinitely", "-D", "1"]
            server = self.server.start(self.perftest_command(self.server, program, port, flags_), limit)
            client = None
            try:
                if not pairs.wait_until_listening(server, self.server, port):
                    return pairs.Outcome(False, "server did not listen", time.monotonic() - begin, server.output())
                client = self.client.start([*self.perftest_command(self.client, program, port, flags_), self.server.address], limit)
                time.sleep(4)
                alive = client.running() and server.running()
                client.signal(signal.SIGINT)
                server.signal(signal.SIGINT)
                ended = client.wait(5), server.wait(5)
                text = f"{server.output()}\n{client.output()}\nexit codes {ended}"
                rows = [line for line in client.output().splitlines() if line.split() and line.split()[0].isdigit()]
                if not alive:
                    reason = f"ended by itself: {pairs.last_words(client.output())}"
                elif 124 in ended:
                    reason = "did not end within 5 s of SIGINT"
                else:
                    reason = "" if rows else "printed no results before the signal"
                return pairs.Outcome(not reason, reason, time.monotonic() - begin, text)
            finally:
                server.end()
                if client is not None:
                    client.end()
        return step

    def perftest(self, program, connection, variants):
        def step(variant):
            flags = ["-c", connection, *variant]
            if "--run_infinitely" in flags:
                return self.perftest_interrupted(program, [flag for flag in flags if flag != "--run_infinitely"])
            return self.perftest_once(program, flags)
        return lambda limit: runs(limit, [(" ".join(variant) or "defaults", step(variant)) for variant in variants])

    # ---- UCX

    def ucx(self, test, size, count, transport=None, layout=None, tls=None):
        """At the level of transports (uct) with `transport`, else of protocols (ucp) over the transports `tls`."""
        def step(limit):
            port = self.port()
            common = ["ucx_perftest", "-p", port]
            # A device without sysfs: UCX cannot read the kinds of its GIDs, and must be told the index.
            def environment(side):
                return ["env", f"UCX_IB_GID_INDEX={side.gid}", "UCX_WARN_UNUSED_ENV_VARS=n"]
            flags = ["-t", test, "-s", size, "-n", count, "-w", 10]
            if tls:
                def words(side):
                    return [*environment(side), f"UCX_TLS={tls}", f"UCX_NET_DEVICES={side.device}:1", *common]
            else:
                flags += ["-D", layout]
                def words(side):
                    return [*environment(side), *common, "-d", f"{side.device}:1", "-x", transport]
            outcome = pairs.run_pair(self.server, words(self.server), self.client,
                                     [*words(self.client), *flags, self.server.address], limit, port)
            if outcome.passed and "Final:" not in outcome.output:
                outcome.passed, outcome.reason = False, "printed no result"
            return outcome
        return step

    # ---- programs of the connection manager

    def rping(self, limit):
        words = ["-V", "-C", 20, "-S", 4096, "-a", self.server.address, "-p", self.port()]
        # Neither end's exit code says whether the rounds were made: a client whose server gave up ends with 0.
        outcome = pairs.run_pair(self.server, ["rping", "-s", *words], self.client, ["rping", "-c", "-v", *words], limit,
                                 server_status=None)
        if outcome.passed and "rdma-ping-19:" not in outcome.output:
            outcome.passed, outcome.reason = False, "ended before the last of 20 rounds"
        return outcome

    def fi_pingpong(self, endpoint):
        def step(limit):
            port = self.port()
            return pairs.run_pair(
                self.server, ["fi_pingpong", "-p", "verbs", "-e", endpoint, "-c", "-I", 100, "-S", 4096, "-B", port],
                self.client, ["fi_pingpong", "-p", "verbs", "-e", endpoint, "-c", "-I", 100, "-S", 4096, "-P", port, self.server.address],
                limit, port)
        return step


def perftest_variants(program, connection, quick):
    """The flags to run one program with, once each: one or two when `quick`."""
    is_latency, kind = program.endswith("_lat"), program.split("_")[1]
    if quick:
        return [["-n", "1000"]] if is_latency or kind == "atomic" else [["-n", "1000"], ["-n", "500", "--use_old_post_send"]]
    variants = [[], ["-D", "2"], ["--use_old_post_send"]]
    if kind != "atomic" and connection != "UD":
        variants.append(["-a", "-n", "20" if is_latency else "100"])
    if kind != "write":
        variants.append(["-e"])
    if not is_latency:
        variants += [["-q", "8"], ["-b"], ["--report_gbits"], ["-D", "2", "--cpu_util"], ["--run_infinitely"]]
    return variants


def judges(programs, quick):
    """[(name, seconds allowed for each of its runs, function of that limit)]"""
    found = [("ibv_devinfo -v", 20, programs.devinfo)]
    for kind, variants in (("rc", [[], ["-c"], ["-e"], ["-N"]]), ("uc", [[], ["-e"]]), ("ud", [[], ["-e"]]),
                           ("srq", [["-q", "16"], ["-e"]])):
        found.append((f"ibv_{kind}_pingpong", 30, programs.pingpong(f"ibv_{kind}_pingpong", variants)))
    found.append(("ibv_xsrq_pingpong, refused", 20, programs.refused))
    for kind, connections in (("send", ("RC", "UC", "UD")), ("write", ("RC", "UC")), ("read", ("RC",)), ("atomic", ("RC",))):
        for connection in connections:
            for unit in ("bw", "lat"):
                name = f"ib_{kind}_{unit}"
                found.append((f"{name} -c {connection}", 60,
                              programs.perftest(name, connection, perftest_variants(name, connection, quick))))
    for test, layout, size, count in (("put_lat", "short", 8, 5000), ("put_bw", "zcopy", 65536, 1000), ("get", "zcopy", 65536, 1000),
                                      ("get", "bcopy", 256, 2000), ("am_lat", "short", 8, 5000), ("am_bw", "bcopy", 4096, 2000),
                                      ("add_mr", "short", 8, 2000), ("fadd", "short", 8, 2000), ("cswap", "short", 8, 2000)):
        found.append((f"ucx_perftest uct rc_verbs {test} {layout}", 30,
                      programs.ucx(test, size, count, transport="rc_verbs", layout=layout)))
    for test, layout, size, count in (("am_lat", "short", 8, 2000), ("am_bw", "bcopy", 1024, 2000)):
        found.append((f"ucx_perftest uct ud_verbs {test} {layout}", 30,
                      programs.ucx(test, size, count, transport="ud_verbs", layout=layout)))
    for tls in ("ud_verbs,self", "rc_verbs,ud_verbs,self"):
        for test, size, count in (("tag_lat", 8, 2000), ("tag_bw", 65536, 500), ("ucp_put_lat", 8, 2000), ("ucp_put_bw", 65536, 500),
                                  ("ucp_get", 65536, 500)):
            found.append((f"ucx_perftest ucp {test} over {tls.split(',', maxsplit=1)[0]}", 30, programs.ucx(test, size, count, tls=tls)))
    found.append(("rping", 30, programs.rping))
    for program in ("ib_send_bw", "ib_write_bw"):
        found.append((f"{program} -R", 30, programs.perftest_once(program, ["-R", "-n", "1000"])))
    for endpoint in ("msg", "rdm"):
        found.append((f"fi_pingpong -p verbs -e {endpoint}", 40, programs.fi_pingpong(endpoint)))
    return found
