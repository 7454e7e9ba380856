"""The rules of a run, from `[run]` and what follows from its model."""

from seedflood.config import RunSettings
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.rules import Rules


def make_rules(run: RunSettings, base_digest: bytes, form: Form) -> Rules:
    """Raises ConfigError if a bundle would be too large."""
    table = run.seedflood
    return Rules(
        run_id=run.run_id(),
        base_digest=base_digest,
        clients=run.clients,
        steps=run.steps,
        window=table.window,
        local_steps=table.local_steps,
        refresh_period=table.refresh_period,
        epoch_bytes=form.epoch_bytes,
        left_bytes=form.left_bytes,
        telling=form.telling,
        delay=table.delay,
        step_reach=form.step_reach,
        turn_rounds=table.turn_rounds(run.clients),
    )
