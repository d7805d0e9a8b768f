#!/usr/bin/env python3
"""The checker of captures checks: frames of Linux rxe as captured, then with one bit changed."""

import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import capture  # noqa: E402  pylint: disable=wrong-import-position

# An acknowledgement that rxe sent over IPv4 (IP id 0xc1ed): IP, UDP, BTH, AETH, ICRC.
FRAME = bytes.fromhex(
    "45000030c1ed4000401164bb0a0900010a090002c12112b7001c0000"
    "1100ffff0000001100e5e33f1f0000012e5cb046")


# RoCE v1 from 10.0.0.1 to 10.0.0.2, behind the Ethernet header: GRH, BTH, eight bytes, ICRC.
V1_FRAME = bytes.fromhex(
    "6b81234500181b09" "00000000000000000000ffff0a000001" "00000000000000000000ffff0a000002"
    "0a00ffff0012345600000000" "5a5a5a5a5a5a5a5a" "b96791d3")


def pcap(*packets, link=capture.RAW_IP):
    text = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for packet in packets:
        text += struct.pack("<IIII", 1, 0, len(packet), len(packet)) + packet
    return text


class Icrc(unittest.TestCase):
    def check(self, *packets, link=capture.RAW_IP):
        with tempfile.NamedTemporaryFile() as file:
            file.write(pcap(*packets, link=link))
            file.flush()
            return capture.check_icrc(file.name)

    def test_a_frame_of_rxe_is_right(self):
        self.assertEqual(self.check(FRAME), (1, 0))

    def test_ethernet_header_and_padding_are_passed_over(self):
        self.assertEqual(self.check(bytes(12) + b"\x08\x00" + FRAME + bytes(6), link=capture.ETHERNET), (1, 0))

    def test_fields_that_routers_change_are_not_covered(self):
        for offset in (1, 8, 10, 11, 26, 27, 32):  # TOS, TTL, IP checksum, UDP checksum, FECN and BECN
            changed = bytearray(FRAME)
            changed[offset] ^= 0x55
            self.assertEqual(self.check(bytes(changed)), (1, 0), offset)

    def test_any_other_bit_is_covered(self):
        mutable = {1, 8, 10, 11, 26, 27, 32}
        framing = {0, 2, 3, 9, 22, 23}  # version, lengths, protocol, port: another kind of packet then
        for offset in set(range(len(FRAME))) - mutable - framing:
            changed = bytearray(FRAME)
            changed[offset] ^= 1
            self.assertEqual(self.check(bytes(changed)), (1, 1), offset)

    def test_of_roce_v1_the_grh_is_covered(self):
        header = bytes(12) + b"\x89\x15"
        self.assertEqual(self.check(header + V1_FRAME + bytes(4), link=capture.ETHERNET), (1, 0))
        for offset in range(len(V1_FRAME)):
            if offset in {4, 5, 6}:  # its length, what follows it
                continue
            changed = bytearray(V1_FRAME)
            changed[offset] ^= 1
            # traffic class and flow label, hop limit, FECN and BECN
            covered = offset not in {1, 2, 3, 7, 44}
            if offset != 0:
                self.assertEqual(self.check(header + bytes(changed), link=capture.ETHERNET), (1, int(covered)), offset)

    def test_what_is_not_roce_is_not_counted(self):
        other = bytearray(FRAME)
        other[22:24] = struct.pack(">H", 53)
        self.assertEqual(self.check(bytes(other)), (0, 0))


if __name__ == "__main__":
    unittest.main()
