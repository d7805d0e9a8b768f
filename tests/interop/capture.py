#!/usr/bin/env python3
"""Checks a capture of RoCE, v2 or v1: the ICRC of every frame in full (a capture shows the IP header), and tshark's opinion.

  capture.py FILE.pcap      prints what it found; exit code 1 for a wrong ICRC, a malformed packet, or no frame at all

ICRC: CRC-32 over eight bytes of ones and the packet from the IP header on (v1: the GRH), in which the fields that a
router may change are ones (IBTA volume 1, annexes A17.3.3 and A16.4.2), stored little-endian behind it.
"""

import pathlib
import struct
import subprocess
import sys
import zlib

ROCE_PORT = 4791
ETHERNET, RAW_IP = 1, 101  # link types
IPV4, IPV6, ROCE_V1, UDP = 0x0800, 0x86DD, 0x8915, 17
BTH = 27  # what follows a GRH, which is laid out as an IPv6 header
# What follows a SEND's header is the program's own: tshark takes some of it for NFS over RDMA, which it is not.
GUESSES = ("rpcordma", "smb_direct", "iser", "nvme-rdma")


def frames(path):
    """The IP packets of a pcap file, and what RoCE v1 has in their place."""
    data = pathlib.Path(path).read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}.get(data[:4])
    if order is None:
        raise ValueError(f"{path} is no pcap file")
    link = struct.unpack_from(order + "I", data, 20)[0]
    offset = 24
    while offset + 16 <= len(data):
        kept, length = struct.unpack_from(order + "II", data, offset + 8)
        packet = data[offset + 16:offset + 16 + kept]
        offset += 16 + kept
        if link == ETHERNET:
            if struct.unpack_from(">H", packet, 12)[0] not in (IPV4, IPV6, ROCE_V1):
                continue
            packet = packet[14:]
        elif link != RAW_IP:
            raise ValueError(f"{path} has link type {link}; known are {ETHERNET} (Ethernet) and {RAW_IP} (raw IP)")
        if kept == length and packet:
            yield packet


def roce(packet):
    """(whole packet without link padding, offset of the BTH), or None if it is not RoCE."""
    if packet[0] >> 4 == 4:
        length, header, protocol = struct.unpack_from(">H", packet, 2)[0], (packet[0] & 15) * 4, packet[9]
    else:
        length, header, protocol = 40 + struct.unpack_from(">H", packet, 4)[0], 40, packet[6]
    if packet[0] >> 4 == 6 and protocol == BTH:
        return packet[:length], header
    if protocol != UDP or struct.unpack_from(">H", packet, header + 2)[0] != ROCE_PORT:
        return None
    return packet[:length], header + 8


def icrc(packet, bth):
    """What the last four bytes of a RoCE packet must be."""
    masked = bytearray(packet[:-4])
    if packet[0] >> 4 == 4:
        masked[1] = masked[8] = 0xFF  # TOS, TTL
        masked[10:12] = b"\xff\xff"  # header checksum
    else:
        masked[0] |= 0x0F  # traffic class and flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
    if packet[6] != BTH or packet[0] >> 4 == 4:
        masked[bth - 2:bth] = b"\xff\xff"  # UDP checksum
    masked[bth + 4] = 0xFF  # FECN, BECN, reserved
    return zlib.crc32(b"\xff" * 8 + masked)


def check_icrc(path):
    """(frames, those whose ICRC is wrong)"""
    seen = wrong = 0
    for packet in frames(path):
        found = roce(packet)
        if found is None:
            continue
        seen += 1
        whole, bth = found
        wrong += struct.unpack("<I", whole[-4:])[0] != icrc(whole, bth)
    return seen, wrong


def malformed(path):
    """tshark's lines for RoCE packets that it calls malformed or cannot take for InfiniBand."""
    wrong = f"(udp.dstport == {ROCE_PORT} or eth.type == {ROCE_V1:#x}) and (_ws.malformed or not infiniband)"
    command = ["tshark", "-n", "-r", path, "-Y", wrong]
    for guess in GUESSES:
        command += ["--disable-protocol", guess]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ValueError(f"tshark: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def check(path):
    """(what was found, what is wrong with it or nothing)"""
    seen, wrong = check_icrc(path)
    bad = malformed(path)
    found = f"{seen} frames, {wrong} with a wrong ICRC, {len(bad)} malformed"
    if seen == 0:
        return found, "no RoCE frame was captured"
    if wrong or bad:
        return found, found + (f", such as: {bad[0].strip()}" if bad else "")
    return found, ""


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        found, problem = check(sys.argv[1])
    except (ValueError, OSError) as error:
        sys.exit(f"capture: {error}")
    print(found)
    sys.exit(f"capture: {problem}" if problem else 0)


if __name__ == "__main__":
    main()
