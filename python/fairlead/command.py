"""Command channels: a device at another host (docs/commands.md).

    with fairlead.command.Session(engine, "gpu7:7471") as session:
        channel = session.open_channel()
        x, add = session.new_handle(), session.new_handle()
        channel.allocate(x, a.nbytes)
        channel.copy_in(x, a)
        channel.load(add, "vector_add")
        channel.launch(add, Pointer(x), Pointer(x), Pointer(x), numpy.uint32(a.size))
        channel.copy_out(out, x)
        channel.synchronize()

Handles are numbers of the session's own. Functions that append a command give its sequence. Parameters of a launch are
Pointers, and numbers whose width shows: numpy.uint32(3), numpy.float32(0.5).
"""

from fairlead._core.command import Channel, Graph, Mark, Pointer, Service, Session

for _each in (Channel, Graph, Mark, Pointer, Service, Session):
    _each.__module__ = "fairlead.command"

__all__ = ["Channel", "Graph", "Mark", "Pointer", "Service", "Session"]
