"""What scripts/hardware-check finds: rows of a summary, files, and the bundle of both."""

import datetime
import io
import json
import re
import tarfile
import time

SOFT = "soft0"
WORDS = {"FAIL": "**FAIL**"}


def device_words(side):
    return "softroce, since not both hosts have an RDMA device with that address" if side.device == SOFT else f"{side.device}, GID {side.gid}"


def file_name(text):
    return re.sub(r"\W+", "_", text).strip("_")


class Bundle:
    def __init__(self):
        self.rows, self.files = [], {}

    def add(self, check, where, result, note="", files=None):
        """`result`: ok, advice, skipped or FAIL; `files`: {name: text}, kept in a folder named `where`."""
        self.rows.append({"check": check, "where": where, "result": result, "note": note})
        print(f"{result:8}{where:8}{check}{': ' + note if note else ''}", flush=True)
        self.files.update({f"{where}/{name}": text for name, text in (files or {}).items()})

    def count(self, result):
        return sum(row["result"] == result for row in self.rows)

    def summary(self):
        return f"{self.count('ok')} ok, {self.count('FAIL')} fail, {self.count('advice')} with advice, {self.count('skipped')} skipped"

    def page(self, hosts, command):
        told = [f"- {side.name}: `{host}`, data over {side.address}, {device_words(side)}" for side, host in hosts]
        rows = [[row["where"], row["check"], WORDS.get(row["result"], row["result"]), row["note"]] for row in self.rows]
        return "\n".join(
            ["# Two hosts, checked", "", f"**{self.summary()}.**", "",
             f"- When: {datetime.datetime.now().astimezone().isoformat(timespec='seconds')}", f"- Command: `{command}`", *told,
             "- What to do about it: docs/hardware.md", "", "| where | check | result | note |", "| --- | --- | --- | --- |",
             *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows)]) + "\n"

    def write(self, path, hosts, command):
        told = {side.name: {"host": host, "address": side.address, "device": side.device, "gid": side.gid} for side, host in hosts}
        self.files["summary.md"] = self.page(hosts, command)
        self.files["summary.json"] = json.dumps({"schema": "fairlead.hardware_check/1", "hosts": told, "checks": self.rows}, indent=2)
        top = path.name.removesuffix(".gz").removesuffix(".tar")
        with tarfile.open(path, "w:gz") as archive:
            for name, text in sorted(self.files.items()):
                data = text.encode()
                member = tarfile.TarInfo(f"{top}/{name}")
                member.size, member.mtime = len(data), int(time.time())
                archive.addfile(member, io.BytesIO(data))
