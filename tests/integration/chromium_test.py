"""The drawings of fairlead topo in a browser: each opens in headless Chromium, in both colour schemes, and what it shows has
the colours that the drawing names for that scheme. Of the machines in files three are looked at; all of them with
FAIRLEAD_EVERY_DRAWING=1, as scripts/nightly sets it."""

import collections
import os
import pathlib
import re
import struct
import subprocess
import zlib

import readers
from harness import PATIENCE, PROGRAM, Case

MACHINES = pathlib.Path(__file__).resolve().parent.parent / "topology/machines"
FEW = ("far-nics", "nvidia-dgx2", "vm-vnuma")
ATTEMPTS = 3  # a browser that crashes says nothing about the drawing
SCHEMES = {"dark": 0, "light": 1}  # blink::mojom::PreferredColorScheme
WIDEST, HIGHEST = 900, 600         # pixels that are looked at: unpacking them takes Python a second
FLAGS = ("--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage",
         "--force-color-profile=srgb", "--force-device-scale-factor=1")


def pixels(png):
    """Rows of (red, green, blue) of a PNG with 8 bits a colour, not interlaced, as Chromium writes it (RFC 2083)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, packed, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            channels = {2: 3, 6: 4}[colour]
            assert depth == 8 and interlaced == 0
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, stride, before, rows = zlib.decompress(packed), width * channels, bytes(width * channels), []
    for y in range(height):
        kind, *line = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        for i in range(stride if kind else 0):
            left = line[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = up
            elif kind == 3:
                guess = (left + up) // 2
            else:
                to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
            line[i] = (line[i] + guess) & 255
        before = line
        rows.append([tuple(line[i : i + 3]) for i in range(0, stride, channels)])
    return rows


def colours(svg):
    """{scheme: {name: (red, green, blue)}} of the drawing's style"""
    light, dark = svg.split("prefers-color-scheme: dark", 1)
    return {scheme: {name: tuple(bytes.fromhex(value)) for name, value in re.findall(r"--(\w+): #([0-9a-f]{6})", text)}
            for scheme, text in (("light", light), ("dark", dark))}


class Chromium(Case):
    def screenshot(self, drawing, scheme, width, height):
        target = pathlib.Path(self.path(f"{scheme}.png"))
        target.unlink(missing_ok=True)
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        said = ""
        for attempt in range(ATTEMPTS):
            done = subprocess.run(
                ["chromium", *FLAGS, *root, f"--user-data-dir={self.path(f'profile{attempt}')}", f"--window-size={width},{height}",
                 f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--screenshot={target}", pathlib.Path(drawing).as_uri()],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                timeout=3 * PATIENCE, check=False)
            said += done.stdout
            if target.exists():
                return pixels(target.read_bytes())
        self.fail(f"no screenshot from {ATTEMPTS} attempts:\n{said}")

    def look_at(self, *words):
        drawing = self.path("drawing.svg")
        done = subprocess.run([PROGRAM, "topo", *map(str, words), "--svg", drawing], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = pathlib.Path(drawing).read_text(encoding="utf-8")
        width, height = map(int, re.search(r'width="(\d+)" height="(\d+)"', svg).groups())
        width, height = min(width, WIDEST), min(height, HIGHEST)
        for scheme, named in colours(svg).items():
            with self.subTest(words=words, scheme=scheme):
                rows = self.screenshot(drawing, scheme, width, height)
                self.assertEqual((len(rows), len(rows[0])), (height, width))
                seen = collections.Counter(pixel for row in rows for pixel in row)
                self.assertEqual(rows[2][2], named["ground"])
                self.assertLess(seen[named["ground"]], 0.99 * width * height, "nothing is drawn")
                for name in ("ink", "frame", "memory"):
                    self.assertGreater(seen[named[name]], 0, f"nothing has the colour of {name}")

    def test_machines_of_files(self):
        every = os.environ.get("FAIRLEAD_EVERY_DRAWING") == "1"
        machines = [machine for machine in sorted(MACHINES.glob("*.xml")) if every or machine.stem in FEW]
        self.assertGreaterEqual(len(machines), len(FEW))
        for machine in machines:
            self.look_at("--xml", machine)

    def test_this_machine(self):
        self.look_at()


if __name__ == "__main__":
    readers.main("chromium")
