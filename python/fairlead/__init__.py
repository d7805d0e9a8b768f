"""Fairlead moves arrays and tensors between processes and hosts: over RDMA, TCP, or memory of one host.

    import fairlead, numpy

    with fairlead.Engine() as engine:
        peer = engine.connect("gpu7:7471")
        inbox = peer.lookup("inbox")
        peer.write(numpy.ones(1 << 18, "float32"), inbox, notify=42).wait()

`await` a transfer instead of wait() in a coroutine. Sizes are bytes, times are seconds (None: for ever), shapes and strides
count elements. docs/python.md has the rest; what each function promises is said in include/fairlead/*.h.
"""

from fairlead._core import (Engine, Event, Memory, Peer, Prepared, RemoteMemory, Tensor, TensorSpec, Transfer, set_log_level,
                            wait_all, wait_any)
from fairlead._core import version as _version
from fairlead import _api
from fairlead._errors import Code, DeadlineExceeded, Denied, Error, InvalidArgument, NotFound, Unavailable

_api.extend()
from fairlead import command  # noqa: E402  (the classes are complete now)
from fairlead.models import list_models, pull_state_dict, push_state_dict  # noqa: E402

__version__ = _version()
__all__ = ["Code", "DeadlineExceeded", "Denied", "Engine", "Error", "Event", "InvalidArgument", "Memory", "NotFound", "Peer",
           "Prepared", "RemoteMemory", "Tensor", "TensorSpec", "Transfer", "Unavailable", "command", "list_models",
           "pull_state_dict", "push_state_dict", "set_log_level", "wait_all", "wait_any"]
