"""One process: a buffer moved by Fairlead, and a gRPC call with a protobuf message. usage: beside_grpc.py FIRST LIBRARY"""

import concurrent.futures
import ctypes
import sys

first, library = sys.argv[1:]


def move():
    moves = ctypes.CDLL(library).move_one_buffer
    for transport in (b"tcp", b"verbs:soft0"):
        if moves(transport) != 0:
            sys.exit("nothing was moved")


def call():
    import grpc
    from google.protobuf import struct_pb2

    def answer(request, _):
        request["seen"] = True
        return request

    handler = grpc.unary_unary_rpc_method_handler(answer, struct_pb2.Struct.FromString, struct_pb2.Struct.SerializeToString)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Test", {"Ask": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary("/Test/Ask", struct_pb2.Struct.SerializeToString, struct_pb2.Struct.FromString)
        question = struct_pb2.Struct()
        question["name"] = "kv/0"
        reply = ask(question, timeout=60)
    server.stop(None).wait()
    if reply["name"] != "kv/0" or not reply["seen"]:
        sys.exit("the call came back wrong")


for step in (call, move) if first == "grpc" else (move, call):
    step()
