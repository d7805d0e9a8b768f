"""Programs of others that read what Fairlead writes. Debian's packages have them (scripts/setup --readers); a test of one
that is missing is skipped, with exit code 77."""

import shutil
import subprocess
import sys
import unittest

SKIPPED = 77


def main(program):
    if shutil.which(program) is None:
        print(f"skipped: no {program} here (scripts/setup --readers)")
        sys.exit(SKIPPED)
    started = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=300, check=False)
    if started.returncode != 0:
        print(f"skipped: {program} does not start here: {started.stdout.strip()[-300:]}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
