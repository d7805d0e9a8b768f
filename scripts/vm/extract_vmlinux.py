#!/usr/bin/env python3
"""Takes the kernel's ELF image out of a bzImage, so that QEMU can enter it directly (PVH) without a boot loader.

  extract_vmlinux.py VMLINUZ VMLINUX

Emulated, the kernel's own decompressor costs seconds at each boot; here it is paid once. Source: the x86 boot protocol
(Documentation/x86/boot.rst in Linux): setup_sects at 0x1f1, version at 0x206, payload_offset at 0x248, payload_length
at 0x24c, the payload's last four bytes being its size once unpacked.
"""

import gzip
import lzma
import pathlib
import struct
import subprocess
import sys


def unpack(payload):
    """The payload without its trailing size, by whichever of Debian's compressors made it."""
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dc"], input=payload, stdout=subprocess.PIPE, check=True).stdout
    raise ValueError(f"payload begins with {payload[:6].hex()}, which is neither xz, gzip nor zstd")


def extract(image):
    if image[0x202:0x206] != b"HdrS" or struct.unpack_from("<H", image, 0x206)[0] < 0x208:
        raise ValueError("no bzImage of boot protocol 2.08 or later")
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    begin = (setup_sectors + 1) * 512 + offset
    kernel = unpack(image[begin:begin + length - 4])
    expected = struct.unpack_from("<I", image, begin + length - 4)[0]
    if len(kernel) != expected or not kernel.startswith(b"\x7fELF"):
        raise ValueError(f"{len(kernel)} bytes that begin with {kernel[:4].hex()}; wanted an ELF image of {expected}")
    return kernel


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        kernel = extract(pathlib.Path(sys.argv[1]).read_bytes())
    except (ValueError, OSError, lzma.LZMAError) as problem:
        sys.exit(f"extract_vmlinux: {sys.argv[1]}: {problem}")
    pathlib.Path(sys.argv[2]).write_bytes(kernel)


if __name__ == "__main__":
    main()
