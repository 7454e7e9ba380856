"""SIGHUP: settings that do not fit any more change nothing, and are told in a sentence."""

from types import SimpleNamespace

from seedflood.config import load_course
from seedflood.host.process import _Process


class Told(list):
    def tell(self, event, level, *, reason):
        self.append((event, reason))

    def reloading(self):
        self.append("reloading")

    def ready(self):
        self.append("ready")


def test_a_course_that_has_become_shorter_is_not_reloaded(tmp_path):
    peers, told = tmp_path / "peers.toml", Told()
    peers.write_text('[run]\nname = "one"\n')
    process = _Process(lambda: load_course(peers))
    process._notifier, process._daemon = told, SimpleNamespace(position=1, hub=told)
    process._reload()
    assert told == ["reloading", ("not reloaded", "the file leads to 1 runs, and this is run 2"), "ready"]
