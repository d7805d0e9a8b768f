#!/usr/bin/env python3
"""Answers QEMU's pvrdma where a host's rdmacm-mux would: Debian ships none, and it needs a kernel's umad device.

  mad_multiplexer.py SOCKET

A guest tells which GIDs it has (register, unregister); the answer is that it may. Its management datagrams, which connect
queue pairs by rdma_cm, are taken and go nowhere: queue pairs that programs connect by themselves need none.

The protocol is that of contrib/rdmacm-mux/rdmacm-mux.h in QEMU 7.2: a message of one size each way, in the host's byte order:
type u32 (0 request, 1 response) | operation u32 (0 register, 1 unregister, 2 datagram) | GID 16 bytes | error u32 | ...
"""

import socket
import struct
import sys

BYTES = 360
RESPONSE = 1
ERROR_AT = 24


def answer(connection):
    while True:
        message = bytearray()
        while len(message) < BYTES:
            part = connection.recv(BYTES - len(message))
            if not part:
                return
            message += part
        struct.pack_into("=I", message, 0, RESPONSE)
        struct.pack_into("=I", message, ERROR_AT, 0)
        connection.sendall(message)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    while True:
        with listener.accept()[0] as connection:
            answer(connection)


if __name__ == "__main__":
    main()
