"""Completions as shells make them: a key TAB in a bash and in a zsh of their own, on a terminal, with the files that are installed.

zsh is read where it is (scripts/setup --readers)."""

import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
import unittest

from harness import PATIENCE, PROGRAM, Case

FILES = pathlib.Path(__file__).resolve().parents[2] / "cli/completion"
# What the line holds when RETURN is pressed is printed and not run.
BASH = """PS1= PS2=; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'
source {files}/fairlead.bash
show() {{ echo "GOT<$READLINE_LINE>"; READLINE_LINE= READLINE_POINT=0; }}
bind -x '"\\C-x": show'
echo RE''ADY
"""
ZSH = """PROMPT= RPROMPT= PROMPT2= PROMPT_SP=; unsetopt beep bracketed_paste zle_bracketed_paste prompt_sp 2>/dev/null; unset zle_bracketed_paste
fpath=({files} $fpath); autoload -Uz compinit; compinit -u -D
show() {{ print; print -r -- "GOT<$BUFFER>"; BUFFER=; }}; zle -N show; bindkey '^X' show
print RE''ADY
"""


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, command, setup, folder):
        terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._terminal, self._seen = terminal, ""
        path = f"{pathlib.Path(PROGRAM).resolve().parent}:{os.environ['PATH']}"
        self._process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, cwd=folder, start_new_session=True,
                                         env={"PATH": path, "TERM": "vt100", "HOME": str(folder), "LC_ALL": "C.UTF-8"})
        os.close(inside)
        for line in setup.format(files=FILES).splitlines():
            os.write(terminal, line.encode() + b"\n")
        self.until("READY")

    def until(self, pattern):
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self._seen)):
            if not select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern!r} in {self._seen[-2000:]!r}")
            self._seen += os.read(self._terminal, 4096).decode(errors="replace")
        self._seen = self._seen[found.end():]
        return found

    def completed(self, words):
        """What the line is after TAB."""
        os.write(self._terminal, words.encode() + b"\t\x18")
        return self.until("GOT<([^>]*)>")[1]

    def end(self):
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


class Completion(Case):
    def complete(self, shell):
        for words, line in (
                ("fairlead ser", "fairlead serve "),
                ("fairlead dev", "fairlead devices "),
                ("fairlead serve --log-f", "fairlead serve --log-format "),
                ("fairlead push --checks", "fairlead push --checksum "),
                ("fairlead serve --gpu host --tena", "fairlead serve --gpu host --tenants "),
                ("fairlead gain --training gpt2 --fus", "fairlead gain --training gpt2 --fusion "),
                ("fairlead bench all", "fairlead bench allreduce "),
                ("fairlead bench trace --emu", "fairlead bench trace --emulate "),
                ("fairlead push mod", "fairlead push model.safetensors "),
                ("fairlead serve --no-such", "fairlead serve --no-such")):
            with self.subTest(words):
                self.assertEqual(shell.completed(words), line)

    def shell(self, command, setup):
        (self.folder / "model.safetensors").touch()
        made = Shell(command, setup, self.folder)
        self.addCleanup(made.end)
        return made

    def test_bash(self):
        self.complete(self.shell(["bash", "--noprofile", "--norc", "-i"], BASH))

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here (scripts/setup --readers)")
    def test_zsh(self):
        self.complete(self.shell(["zsh", "-f", "-i"], ZSH))

    def test_every_command_is_offered(self):
        helped = subprocess.run([PROGRAM, "help"], capture_output=True, text=True, check=True).stdout
        commands = re.findall(r"(?m)^  ([a-z]+) +\S", helped)
        self.assertGreater(len(commands), 8)
        shell = self.shell(["bash", "--noprofile", "--norc", "-i"], BASH)
        for command in commands:
            with self.subTest(command):
                self.assertEqual(shell.completed(f"fairlead {command}"), f"fairlead {command} ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
