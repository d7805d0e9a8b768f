"""The wheel in a venv that has nothing else: its libraries are the ones it carries, and bytes cross. Used by scripts/wheel and
scripts/try_packages."""

import asyncio
import pathlib
import sys

import fairlead

try:
    import numpy
    sys.exit("this venv has NumPy, so it shows less than it should")
except ImportError:
    pass
mapped = pathlib.Path("/proc/self/maps").read_text().splitlines()
carried = {line.split()[-1] for line in mapped if any(name in line for name in ("libfairlead", "libhwloc", "libisal"))}
ours = pathlib.Path(fairlead.__file__).parent
if len(carried) != 3 or not all(pathlib.Path(each).parent == ours for each in carried):
    sys.exit(f"other libraries than the wheel's were loaded: {carried}")


async def main():
    for transport in ("tcp", "verbs:soft0"):
        with fairlead.Engine(listen="127.0.0.1:0", transport=transport) as there, fairlead.Engine(transport=transport) as here:
            target = bytearray(1000)
            there.publish("target", target, "w")
            peer = await here.connect(there.listen_address).ready(60)
            await peer.write(bytes(range(250)) * 4, await peer.find("target", 60))
            if target != bytes(range(250)) * 4:
                sys.exit("other bytes arrived")
            print(f"wheel: 1000 bytes over {peer.transport}")


asyncio.run(main())
