"""Two engines of this process, with a session between them."""

import pytest

import fairlead

MINUTE = 60.0


class Pair:
    def __init__(self, **settings):
        self.there = fairlead.Engine(listen="127.0.0.1:0", transport="tcp", **settings)
        self.here = fairlead.Engine(transport="tcp", **settings)
        self.peer = self.here.connect(self.there.listen_address)
        self.peer.wait_ready(MINUTE)

    def close(self):
        self.here.shutdown()
        self.there.shutdown()


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


@pytest.fixture
def make_pair():
    made = []

    def make(**settings):
        made.append(Pair(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
