"""Folders of exports."""

import stat

from seedflood.training.folders import writing_folder


def test_everybody_may_read_what_is_exported_also_in_folders_below(tmp_path):
    with writing_folder(tmp_path / "model", "config.json", "A card.") as beside:
        (beside / "config.json").touch(mode=0o600)
        (beside / "additional_chat_templates").mkdir()
        (beside / "additional_chat_templates" / "tools.jinja").touch(mode=0o600)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").rglob("*")}
    assert modes == {"README.md": 0o644, "config.json": 0o644, "additional_chat_templates": 0o755, "tools.jinja": 0o644}
