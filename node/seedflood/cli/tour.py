"""`seedflood tour`: pre-train, then fine-tune, on one swarm."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from seedflood.cli.options import JsonOption, table_console
from seedflood.cluster.topology import TopologyName
from seedflood.errors import DivergenceError


def tour(
    nodes: Annotated[int, typer.Option(min=2, max=64, help="How many daemons.")] = 4,
    topology: Annotated[TopologyName, typer.Option(help="Who is linked with whom.")] = "ring",
    model: Annotated[
        str, typer.Option(help="Whose shape and tokenizer: embedded, a folder or a hub name.")
    ] = "embedded",
    texts: Annotated[str, typer.Option(help="Rows with a column text: a file, a folder or a hub name.")] = "embedded",
    task: Annotated[
        str, typer.Option(help="What is fine-tuned: places, embedded, sst2, rte, boolq, trec or agnews.")
    ] = "places",
    data: Annotated[str | None, typer.Option(help="Rows of the task: a file, a folder or a hub name.")] = None,
    pretraining_steps: Annotated[int, typer.Option(min=20, help="Of every host.")] = 800,
    finetuning_steps: Annotated[int, typer.Option(min=1, help="Of every host.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of both runs.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="Keep settings, logs and state here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the curves as a picture (SVG).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Pre-trains a model from scratch by GASLoC, then fine-tunes it by SeedFlood, with the same daemons.

    All daemons go on to the second run by themselves, with one model: what they ended the first run with. Nothing has
    to be downloaded; with a model, texts and a task of your own it does the same with these.

    Examples:

        seedflood tour --plot tour.svg

        seedflood tour --model ./tiny-opt --texts ./reviews --task sst2 --data ./sst2
    """
    from seedflood.cluster.local import is_sound, run_cluster, show_result
    from seedflood.cluster.tour import plan_tour

    plan = plan_tour(
        nodes=nodes,
        topology=topology,
        model=model,
        texts=texts,
        task=task,
        data=data,
        steps=(pretraining_steps, finetuning_steps),
        seed=seed,
    )
    result = run_cluster(plan, folder)
    if plot is not None:
        plot.write_text(_picture(result))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show_result(result, table_console())
        if plot is not None:
            Console(stderr=True).print(f"The curves are in {plot}.")
    if not is_sound(result):
        raise DivergenceError(f"the nodes ended with different digests; keep {result['folder']} and report this.")


def _picture(result: dict[str, Any]) -> str:
    from seedflood.cluster.plot import Panel, draw
    from seedflood.cluster.tour import curves_of

    before, after = curves_of(result)
    perplexity = {"held-out perplexity": before["perplexity"]}
    return draw(
        [
            Panel("Pre-trained by GASLoC", "tokens, all hosts together", perplexity, is_logarithmic=True),
            Panel("Then fine-tuned by SeedFlood", "steps", after),
        ]
    )
