"""Builds the wheel: a PEP 517 backend of CMake and the standard library alone, so that `pip install ./python` needs no network.

The wheel holds the package, libfairlead, and those libraries of libfairlead's that a bare system lacks; each finds the others
beside itself. FAIRLEAD_WHEEL_BUILD names a build folder to keep; else it is a temporary one.
"""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent
CARRIED = ("libisal.so", "libhwloc.so")
METADATA = """Metadata-Version: 2.1
Name: fairlead
Version: {version}
Summary: Moves arrays and tensors between processes and hosts, over RDMA, TCP or memory of one host
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

"""


def _version():
    text = (SOURCE / "include/fairlead/version.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def _tag():
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SystemExit(f"build_wheel: {command[0]} failed (the reason is above)")


def _build(folder):
    """Gives the files of the package: name in the wheel, path."""
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            raise SystemExit(f"build_wheel: there is no {tool}: scripts/setup installs what is needed, or apt-get install "
                             "g++ cmake ninja-build pybind11-dev python3-dev")
    off = [f"-DFAIRLEAD_{part}=OFF" for part in ("PROGRAMS", "TESTS", "BENCH", "INSTALL")]
    _run("cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", *off, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON",
         f"-DFAIRLEAD_PYTHON={sys.executable}", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN")
    cache = (folder / "CMakeCache.txt").read_text(encoding="utf-8")
    reason = re.search(r"FAIRLEAD_PYTHON_REASON:INTERNAL=(.+)", cache)
    if reason:
        raise SystemExit(f"build_wheel: the package cannot be built: {reason[1]}")
    _run("cmake", "--build", folder, "--target", "fairlead_python", "--parallel", os.environ.get("FAIRLEAD_JOBS", os.cpu_count()))
    package = folder / "python/fairlead"
    library = next((folder / "lib").glob("libfairlead.so.?"))
    binaries = [*package.glob("_core.*.so"), library, *_carried(library)]
    files = [(f"fairlead/{each.name}", each) for each in sorted((HERE / "fairlead").iterdir()) if each.suffix in (".py", ".pyi", ".typed")]
    return files + [(f"fairlead/{each.name}", each) for each in binaries]


def _carried(library):
    """The libraries that go into the wheel, by the names that they are asked for."""
    needed = subprocess.run(["ldd", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = dict(re.findall(r"(\S+) => (\S+)", needed))
    for name, path in found.items():
        if name.startswith(CARRIED):
            yield pathlib.Path(path).parent / name


def _metadata(version):
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    wheel = f"Wheel-Version: 1.0\nGenerator: fairlead\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    return {f"fairlead-{version}.dist-info/METADATA": METADATA.format(version=version) + readme,
            f"fairlead-{version}.dist-info/WHEEL": wheel,
            f"fairlead-{version}.dist-info/LICENSE": (SOURCE / "LICENSE").read_text(encoding="utf-8")}


def _stripped(path):
    """Its bytes, without what is for debuggers."""
    if ".so" not in path.name or shutil.which("strip") is None:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, path.name)
        shutil.copyfile(path, copy)
        subprocess.run(["strip", "--strip-unneeded", copy], check=True)
        return copy.read_bytes()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    name = f"fairlead-{version}-{_tag()}.whl"
    kept = os.environ.get("FAIRLEAD_WHEEL_BUILD")
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory() as folder:
        entries = [(inside, _stripped(path)) for inside, path in _build(pathlib.Path(folder).resolve())]
    entries += [(inside, text.encode()) for inside, text in _metadata(version).items()]
    record = f"fairlead-{version}.dist-info/RECORD"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        lines = []
        for inside, data in entries:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{inside},sha256={digest},{len(data)}\n")
            info = zipfile.ZipInfo(inside)
            info.external_attr = (0o100755 if ".so" in inside else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, data)
        wheel.writestr(record, "".join(lines) + f"{record},,\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("build_wheel: there is no sdist of the package alone: it is built from Fairlead's source tree "
                     "(pip install ./python)")
