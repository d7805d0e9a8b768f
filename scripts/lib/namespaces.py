"""Hosts with links between them, made of network namespaces, for tests and measurements that need more than one host.

enter() first: it runs the program again in namespaces of its own, whose root it is without being root. What is made there
goes with the program.
"""

import os
import shutil
import subprocess
import sys
import time

import endings

INSIDE = "FAIRLEAD_INSIDE_NAMESPACES"
OWN = ["unshare", "--user", "--map-root-user", "--net"]
SKIPPED = 77  # as ctest knows it

endings.end_in_order()


def run(*words, at=()):
    """Runs a command, `at` a host (Host.at); an error if that fails. Gives what it says."""
    return subprocess.run([*at, *words], check=True, capture_output=True, text=True, timeout=20).stdout


def enter(*tools, bridge=False):
    """Returns in namespaces of the program's own; ends it as skipped where they cannot be made, or a tool is missing."""
    if os.environ.get(INSIDE) is not None:
        return
    probe = "ip link add fl1 type veth peer name fl2 && unshare --net true && nsenter --net --target $$ true"
    if bridge:
        probe += " && ip link add fl0 type bridge"
    tools = ("ip", "nsenter", "unshare", *tools)
    if not all(map(shutil.which, tools)) or \
            subprocess.run([*OWN, "sh", "-c", probe], capture_output=True, check=False).returncode != 0:
        print(f"skipped: needs network namespaces{', a bridge' if bridge else ''} and {', '.join(tools)}")
        sys.exit(SKIPPED)
    os.execvpe(OWN[0], [*OWN, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def join(address, interface, at=()):
    """Gives an interface an address, and brings it up."""
    run("ip", "addr", "add", f"{address}/24", "dev", interface, at=at)
    run("ip", "link", "set", interface, "up", at=at)


def second_host(case, here, there):
    """Another host for as long as the test lasts, with a link to it. here, there: (address, interface) of its ends."""
    other = Host()
    case.addCleanup(other.stop)
    run("ip", "link", "set", "lo", "up")
    join_by_link(case, other, here, there)
    return other


def join_by_link(case, other, here, there):
    """A link to another host for as long as the test lasts; its ends as of second_host."""
    other.link(here[1], there[1])
    case.addCleanup(subprocess.run, ["ip", "link", "delete", here[1]], capture_output=True)
    join(*here)
    join(*there, at=other.at)


class Host:
    """Another host than this program's, until stop()."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL,
                                       preexec_fn=endings.with_its_starter)
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            if self.holder.poll() is not None:
                raise RuntimeError("no further network namespace can be made")
            time.sleep(0.01)
        self.at = ["nsenter", "--net", "--target", str(self.holder.pid)]
        run("ip", "link", "set", "lo", "up", at=self.at)

    def link(self, here, there):
        """A link to this program's host: the names of its ends."""
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", str(self.holder.pid))

    def stop(self):
        self.holder.kill()
        self.holder.wait()
