"""Reads what scripts/demo measured and prints its table. Exit code 1 unless every push verified every tensor, by what
the pushes say and by what the server's metrics say, and was carried by the transport that it asked for.

usage: demo_table.py DIR VERBS      VERBS such as verbs:soft0, with DIR/push.TRANSPORT.ROUND.json, DIR/lat.TRANSPORT.ROUND.json and DIR/metrics.txt
Figures are medians over the rounds. GB is 1e9 bytes.
"""

import glob
import json
import os
import statistics
import sys


def load(folder, kind, transport):
    documents = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"{kind}.{transport}.*.json"))):
        with open(path, encoding="utf-8") as file:
            documents.append(json.load(file))
    if not documents:
        sys.exit(f"demo: no {kind} results for {transport}")
    return documents


def summary(folder, transport):
    pushes = load(folder, "push", transport)
    latencies = [document["results"][0]["latency_ns"] for document in load(folder, "lat", transport)]

    return {
        "transport": transport,
        "device": ", ".join(pushes[0]["device"].split(", ")[:2]),  # what it is and its packet I/O; not port, GID, ...
        "verified": all(push["verified"] == push["tensors"] for push in pushes),
        "verified_tensors": sum(push["verified"] for push in pushes),
        "stayed": all(push["transport"] == transport and not push["path_changes"] for push in pushes),
        "tensors": pushes[0]["tensors"],
        "bytes": pushes[0]["bytes"],
        "bulk": statistics.median([push["bytes_per_second"] for push in pushes]),
        "p50": statistics.median([latency["p50"] for latency in latencies]),
        "p99": statistics.median([latency["p99"] for latency in latencies]),
        "initiator": statistics.median([push["cpu_seconds_per_gb"]["initiator"] for push in pushes]),
        "target": statistics.median([push["cpu_seconds_per_gb"]["target"] for push in pushes]),
    }


def metric(folder, series):
    with open(os.path.join(folder, "metrics.txt"), encoding="utf-8") as file:
        for line in file:
            if line.startswith(series + " "):
                return float(line.split()[-1])
    sys.exit(f"demo: /metrics has no {series}")


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if column < 2 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        print("  " + "  ".join(cells).rstrip())


def rdma_devices():
    try:
        return sorted(os.listdir("/sys/class/infiniband"))
    except OSError:
        return []


def main():
    folder, verbs = sys.argv[1:3]
    ways = [summary(folder, way) for way in ("shm", verbs, "tcp")]
    tcp = ways[-1]
    rows = [["transport", "device", "bulk GB/s", "8 B write p50 us", "p99 us", "CPU-s/GB initiator", "target",
             "bulk : tcp"]]
    for way in ways:
        rows.append([way["transport"], way["device"], f"{way['bulk'] / 1e9:.2f}", f"{way['p50'] / 1e3:.1f}",
                     f"{way['p99'] / 1e3:.1f}", f"{way['initiator']:.2f}", f"{way['target']:.2f}",
                     f"{way['bulk'] / tcp['bulk']:.2f}"])
    print()
    print_table(rows)
    host = load(folder, "lat", "tcp")[0]["host"]
    rdma = rdma_devices()
    print(f"\nHardware: {host['cpu_model']}, {host['cores']} cores, {host['kernel']}; both processes on this host, over "
          f"loopback; {'RDMA devices not used here: ' + ', '.join(rdma) if rdma else 'no RDMA device'}.")
    print("shm is what engines of one user on one host take by themselves (auto).")
    if verbs == "verbs:soft0":
        print("verbs:soft0 is a software device: within one host its RoCE v2 packets cross memory, so its ratio to TCP over "
              "loopback says what the kernel's sockets cost, and nothing of RDMA hardware.")

    failed = False
    pushed = sum(way["verified_tensors"] for way in ways)
    counted = metric(folder, 'fairlead_serve_tensors_total{result="verified"}')
    if counted != pushed:
        print(f"FAILED: the pushes report {pushed} verified tensors, the server's metrics {counted:.0f}")
        failed = True
    for way in ways:
        if not way["verified"]:
            print(f"FAILED: {way['transport']}: not every tensor was verified on the far side")
            failed = True
        if not way["stayed"]:
            print(f"FAILED: {way['transport']}: a push was carried by another transport")
            failed = True
    if failed:
        sys.exit(1)
    print(f"Verified: {tcp['tensors']} tensors, {tcp['bytes']} bytes, each checksum computed again by the receiver, "
          f"in every push over all three; the server counted {counted:.0f} tensors.")


if __name__ == "__main__":
    main()
