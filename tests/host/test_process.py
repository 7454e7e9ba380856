"""SIGHUP: settings that do not fit any more change nothing, and are told in a sentence."""

from types import SimpleNamespace

from seedflood.config import Settings, load_settings
from seedflood.host.process import _Process


class Told(list):
    def log(self, event, level, *, reason):
        self.append((event, reason))

    def reloading(self):
        self.append("reloading")

    def ready(self):
        self.append("ready")


def test_settings_that_cannot_be_read_any_more_are_not_reloaded(tmp_path):
    peers, told = tmp_path / "peers.toml", Told()
    peers.write_text("[run]\nstepz = 3\n")
    process = _Process(Settings(), lambda: load_settings(peers))
    process._notifier, process._daemon = told, SimpleNamespace(hub=told)
    process._reload()
    assert told[0] == "reloading"
    assert told[1][0] == "not reloaded"
    assert 'has no key "stepz"' in told[1][1]
    assert told[2] == "ready"
