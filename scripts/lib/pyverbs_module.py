#!/usr/bin/env python3
"""Runs one module of rdma-core's Python tests and writes what became of each test as lines of JSON.

  pyverbs_module.py FOLDER MODULE RESULTS --dev soft0 --gid 1

FOLDER holds the package `tests`; what follows RESULTS are the tests' own flags. Lines are {"begin": TEST} and {"end": TEST,
"result": ok|skipped|failed|error, "reason": TEXT}: a test that began and did not end is where the program died or hung.
"""

import importlib.machinery
import json
import sys
import unittest


class Recorder(unittest.TextTestResult):
    """Writes each result at once: the process may not live to report them together."""

    file = None

    def _tell(self, **message):
        print(json.dumps(message), file=self.file, flush=True)

    def startTest(self, test):
        self._tell(begin=test.id())
        super().startTest(test)

    def addSuccess(self, test):
        self._tell(end=test.id(), result="ok")
        super().addSuccess(test)

    def addSkip(self, test, reason):
        self._tell(end=test.id(), result="skipped", reason=str(reason))
        super().addSkip(test, reason)

    def addFailure(self, test, err):
        self._tell(end=test.id(), result="failed", reason=str(err[1]))
        super().addFailure(test, err)

    def addError(self, test, err):  # also for what goes wrong in setUpClass and the like, where there is no test
        self._tell(end=test.id(), result="error", reason=str(err[1]))
        super().addError(test, err)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder, module, results = sys.argv[1:4]
    sys.argv = ["run_tests.py", *sys.argv[4:]]
    sys.path[:0] = [f"{folder}/tests", folder]  # as its own run_tests.py has them
    from args_parser import parser  # pylint: disable=import-outside-toplevel,import-error
    importlib.machinery.SourceFileLoader("tests", f"{folder}/tests/__init__.py").load_module()
    parser.parse_args()
    with open(results, "w", encoding="utf-8") as Recorder.file:
        suite = unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}")
        unittest.TextTestRunner(verbosity=2, resultclass=Recorder).run(suite)


if __name__ == "__main__":
    main()
