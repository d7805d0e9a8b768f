"""A host that is reached by a command such as ssh: programs there, with limits on everything, and the files that they leave.

What runs there is one word for a shell, as ssh has it. Each program there ends by itself when its limit is over, also where
what reached it has been ended.
"""

import dataclasses
import ipaddress
import json
import re
import secrets
import shlex

import pairs

GRACE = 5  # seconds that the way there may take beyond a program's limit


@dataclasses.dataclass
class FarHost(pairs.Side):
    """`remote` runs its last argument there by a shell."""

    def plain(self):
        """The host itself, without what its judges are started by."""
        return dataclasses.replace(self, prefix=[])

    def start(self, argv, limit):
        words = [*(f"{name}={value}" for name, value in self.environment.items()), *map(str, [*self.prefix, *argv])]
        return self.shell(shlex.join(["env", *words] if self.environment else words), limit)

    def shell(self, text, limit):
        bounded = shlex.join(["timeout", "--kill-after", "2", str(max(1, round(limit))), "sh", "-c", text])
        return pairs.Program([*self.remote, bounded], limit + GRACE)

    def listens(self, port):
        pattern = f": [0-9A-F]*:{port:04X} [0-9A-F]*:0000 {pairs.LISTENING}"
        return self.shell(shlex.join(["grep", "-qs", pattern, "/proc/net/tcp", "/proc/net/tcp6"]), 10).wait() == 0

    def fetch(self, words, files, limit):
        """(exit code, what it said, {file: text}) of a program that leaves these files where it is started."""
        command, mark = shlex.join(map(str, words)), f"=== {secrets.token_hex(16)} "  # which no file can have in it
        show = " ".join(f"printf '\\n{mark}{name}\\n'; cat {name} 2>/dev/null;" for name in files)
        program = self.shell(f"d=$(mktemp -d) && cd \"$d\" || exit 1; trap 'rm -rf \"$d\"' EXIT; {command}; s=$?; {show} exit $s", limit)
        status = program.wait()
        said, *rest = program.output().split("\n" + mark)
        found = {}
        for part in rest:
            name, _, text = part.partition("\n")
            found[name] = text
        return status, said, found

    def interface(self):
        """(name, MTU) of the interface that has its address, or (None, why not)."""
        program = self.shell("PATH=$PATH:/usr/sbin:/sbin ip -j address show", 10)
        if program.wait() != 0:
            return None, f"no list of addresses: {pairs.last_words(program.output())}"
        try:
            for each in json.loads(program.output()):
                if any(address.get("local") == self.address for address in each.get("addr_info", [])):
                    return each["ifname"], each["mtu"]
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            return None, f"ip says what cannot be read: {problem!r}"
        return None, f"no interface there has {self.address}"

    def rdma_device(self):
        """(device, index of the RoCE v2 GID that its address is in), or None: no RDMA device has it."""
        address = ipaddress.ip_address(self.address)
        mapped = ipaddress.IPv6Address(f"::ffff:{address}") if address.version == 4 else address
        program = self.shell("cd /sys/class/infiniband 2>/dev/null && for f in $(grep -l '^" + mapped.exploded
                             + "$' */ports/*/gids/*); do echo $f $(cat ${f%gids/*}gid_attrs/types/${f##*/}); done", 10)
        program.wait()
        for line in program.output().splitlines():
            if found := re.fullmatch(r"([^/ ]+)/ports/\d+/gids/(\d+) .*v2", line):
                return found[1], int(found[2])
        return None

    def at(self, port):
        """HOST:PORT of a port there."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"
