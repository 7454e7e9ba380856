"""What a swarm learns by reward, against AdamW on all weights by the same objective, and against GRPO of TRL.

Models of half a million parameters that can add two numbers of two digits, play Countdown with three numbers, or sort
six digits, in a third of the cases (`tools/pretrain_arithmetic.py`). 128 texts a step: 4 origins with 4 prompts and 8
texts for each. The swarm is real daemons on a ring; `early` and `new` are one at the default rank in one process, with
texts that are two rounds old, and without. AdamW and TRL are one process, at the best of three learning rates with run
seed 1, which favours them a little; the swarm has its default, but for `tenfold`, ten times of it.

What counts is how often a text that is sampled for a held-out prompt is right, by transformers' own generation: 500
prompts, 4 texts each. Beside it is the perplexity of the held-out rows with their answers. Seconds are of all
processors together, the swarm's with starting and loading.

With `--folder` models and courses are kept there, and those that are there are not made again.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from torch.nn.utils import clip_grad_norm_

from benchmarks.measure import Metric, make_metric
from benchmarks.processes import Cluster, Facts, ring
from seedflood.config import NodeSettings, RunSettings
from seedflood.identity import Identity
from seedflood.training.evaluation import evaluate
from seedflood.training.models import BaseModel, load_model
from seedflood.training.objectives.reward import PromptBatch, Reward
from seedflood.training.randomness import derive_key
from seedflood.training.rewards.scores import make_scorer
from seedflood.training.seedflood.rehearsal import Rehearsal
from seedflood.training.shards import equal_shares
from seedflood.training.sources import read_data
from seedflood.training.tasks import load_task
from study.methods.seedflood import frame_bytes

SEEDS = (1, 2, 3)
ORIGINS, PROMPTS, GROUP = 4, 4, 8
STEPS = 100
LONGER = {"long": 240, "longest": 480}
"""Steps, by part."""

ADAMW_RATES = (3e-5, 1e-4, 3e-4)
SAMPLES = 4
"""Texts for each held-out prompt."""
WAIT_SECONDS_MAX = 3600.0


class Kind(NamedTuple):
    """tokens: of a text at most. gains: what should be won, of 1, by line and steps."""

    score: str
    tokens: int
    gains: Mapping[tuple[str, int], float]


SUMS = {("rank-22", 100): 0.18, ("rank-32", 100): 0.24, ("rank-22", 240): 0.28, ("rank-32", 240): 0.42}
KINDS = {
    "addition": Kind("exact", 4, SUMS),
    "countdown": Kind("countdown", 12, {("rank-22", 100): 0.10, ("rank-22", 240): 0.10, ("held", 480): 0.10}),
    "sorting": Kind("exact", 7, {("rank-22", 100): 0.10}),
}
LINES = ("rank-22", "rank-32", "adamw", "grpo")
ASIDE = ("held", "rank-8", "rank-16", "tenfold", "new", "early")
"""Only by name. held: rank 22, held to the base model by `KL`."""

KL, RISE_MAX = 0.1, 1.02
"""The latter of the perplexity."""
PARTS = (*KINDS, *LINES, *ASIDE, *LONGER)


@dataclass(frozen=True, slots=True)
class Course:
    """right: how often a sampled text is right, in the end. greedy: the most likely one. sent_bytes: per origin, step
    and link. update_bytes: of the frame of an update, of the first step."""

    kind: str
    line: str
    seed: int
    steps: int
    right: float
    greedy: float
    perplexity: float
    cpu_seconds: float
    seconds: float
    sent_bytes: float = 0.0
    update_bytes: float = 0.0
    rate: float = 0.0


class Sizes(NamedTuple):
    """As in `Course`."""

    sent_bytes: float = 0.0
    update_bytes: float = 0.0


def run(parts: Sequence[str] = (), folder: Path | None = None) -> dict[str, Metric]:
    """parts: kinds and lines; without, all. And one of LONGER, for more steps."""
    steps = next((count for part, count in LONGER.items() if part in parts), STEPS)
    kinds = [kind for kind in KINDS if kind in parts] or list(KINDS)
    lines = [line for line in (*LINES, *ASIDE) if line in parts] or list(LINES)
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-reward-") as home:
        for kind in kinds:
            bench = Bench(kind, folder or Path(home), steps)
            base = bench.course("base", 0)
            for line in lines:
                metrics |= _metrics(base, [bench.course(line, seed) for seed in SEEDS])
    return metrics


def _metrics(base: Course, courses: Sequence[Course]) -> dict[str, Metric]:
    name = f"reward.{base.kind}.{courses[0].line}"
    target = KINDS[base.kind].gains.get((courses[0].line, courses[0].steps))
    gain = make_metric([one.right - base.right for one in courses], target, more_is_better=True)
    return {
        f"{name}.gain": gain,
        f"{name}.right": make_metric([one.right for one in courses]),
        f"{name}.perplexity_ratio": make_metric(
            [one.perplexity / base.perplexity for one in courses], RISE_MAX if courses[0].line == "held" else None
        ),
        f"{name}.cpu_seconds": make_metric([one.cpu_seconds for one in courses]),
        f"{name}.link_bytes_per_step": make_metric([one.sent_bytes for one in courses]),
        f"{name}.update_bytes": make_metric([one.update_bytes for one in courses]),
    }


Trainer = Callable[["Bench", int, float, Path], tuple[Path, Sizes]]
"""(bench, run seed, learning rate, an empty folder) -> the trained model, in that folder."""


class Bench:
    """One kind of exercise. folder: of its model, rows and courses."""

    def __init__(self, kind: str, folder: Path, steps: int) -> None:
        self.kind, self.steps, self._what = kind, steps, KINDS[kind]
        self.home = folder / kind
        self.model, self.rows = self.home / "model", self.home / "rows"
        if not self.model.is_dir():
            tool = Path(__file__).parent.parent / "tools" / "pretrain_arithmetic.py"
            subprocess.run([sys.executable, str(tool), kind, str(self.home)], check=True)
        self._kept = self.home / "courses.jsonl"
        self._best: dict[str, float] = {}

    def course(self, line: str, seed: int) -> Course:
        """A course of this line, from the folder if it is there."""
        if line not in ("adamw", "grpo"):
            return self._once(line, seed, 0.0)
        if line not in self._best:
            tries = {rate: self._once(line, SEEDS[0], rate).right for rate in ADAMW_RATES}
            self._best[line] = max(tries, key=lambda rate: tries[rate])
        return self._once(line, seed, self._best[line])

    def settings(self, seed: int, **more: Any) -> dict[str, Any]:
        return {
            "model": str(self.model),
            "task": "reward",
            "score": self._what.score,
            "max_length": 32,
            "max_new_tokens": self._what.tokens,
            "group": GROUP,
            "batch_size": PROMPTS,
            "clients": ORIGINS,
            "steps": self.steps,
            "seed": seed,
            **more,
        }

    def _once(self, line: str, seed: int, rate: float) -> Course:
        steps = 0 if line == "base" else self.steps
        wanted = (self.kind, line, seed, steps, rate)
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        for course in (Course(**json.loads(one)) for one in lines):
            if (course.kind, course.line, course.seed, course.steps, course.rate) == wanted:
                return course
        before, began = _cpu_seconds(), time.monotonic()
        with TemporaryDirectory(prefix="seedflood-reward-") as home:
            model, sizes = TRAINERS[line](self, seed, rate, Path(home))
            spent = _cpu_seconds() - before, time.monotonic() - began
            course = self.judge(Course(*wanted[:4], 0.0, 0.0, 0.0, *spent, *sizes, rate), model)
        with self._kept.open("a") as kept:
            kept.write(json.dumps(asdict(course)) + "\n")
        print(course, file=sys.stderr, flush=True)
        return course

    def judge(self, course: Course, model: Path) -> Course:
        """The course with how often texts of the model are right, and its perplexity."""
        base = load_model(str(model))
        named = {"task": "completion", "label_column": "answer", "template": "{prompt}"}
        task = load_task(RunSettings.of(**named, max_length=32), base.tokenizer, data=str(self.rows))
        return replace(
            course,
            right=self._share_right(base, do_sample=True, top_k=0, top_p=1.0, num_return_sequences=SAMPLES),
            greedy=self._share_right(base, do_sample=False, num_return_sequences=1),
            perplexity=evaluate(base.causal, task).figures["perplexity"],
        )

    @torch.inference_mode()
    def _share_right(self, base: BaseModel, **how: Any) -> float:
        rows = [row.columns for row in read_data(str(self.rows)).validation.rows]
        prompts = [str(row["prompt"]) for row in rows]
        tokens = base.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        torch.manual_seed(0)
        written = base.model.generate(**inputs, max_new_tokens=self._what.tokens, **how)
        texts = base.tokenizer.batch_decode(written[:, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
        count, score = how["num_return_sequences"], make_scorer(self._what.score)
        return mean(score(prompts[k // count], text, rows[k // count]) for k, text in enumerate(texts))


def _base(bench: Bench, seed: int, rate: float, home: Path) -> tuple[Path, Sizes]:
    return bench.model, Sizes()


def _swarm(rank: int, times: float = 1.0, **more: Any) -> Trainer:
    """Real daemons; the first one exports what they have learned. times: the default rate. more: keys of the run."""

    def train(bench: Bench, seed: int, rate: float, home: Path) -> tuple[Path, Sizes]:
        run = bench.settings(seed, estimate="gradient", rank=rank, **more)
        hosts = equal_shares(NodeSettings(data=str(bench.rows), state=home), ORIGINS)
        beside = Rehearsal(RunSettings.of(**run), hosts)
        update_bytes = mean(frame_bytes(one, Identity.generate(), beside.run.run_id()) for one in beside.advance())
        if times != 1.0:
            run["learning_rate"] = times * beside.learning_rate
        node = {"data": str(bench.rows), "progress_seconds": 0.0}
        each = [{**node, **({"export": str(home / "export")} if k == 0 else {})} for k in range(ORIGINS)]
        with Cluster(home, ORIGINS, ring(ORIGINS), run=run, node=each) as cluster:
            for one in cluster.nodes:
                one.start()
            lines = [one.wait_for("finished", WAIT_SECONDS_MAX) for one in cluster.nodes]
        results = [json.loads((one.state / "result.json").read_text())["result"] for one in cluster.nodes]
        digests = {result["digest"] for result in results}
        assert len(digests) == 1, f"replicas differ: {digests}"
        sent = [_last(seen, "sent_bytes") for seen in lines]
        return home / "export", Sizes(mean(sent) / bench.steps / 2, update_bytes)  # links of a ring

    return train


def _last(lines: Sequence[Facts], name: str) -> float:
    return float(next(line[name] for line in reversed(lines) if name in line))


def _rehearsed(ahead: int) -> Trainer:
    """All origins in one process, by the code of the swarm at its default rank."""

    def train(bench: Bench, seed: int, rate: float, home: Path) -> tuple[Path, Sizes]:
        run = RunSettings.of(**bench.settings(seed, estimate="gradient", ahead=ahead))
        node = NodeSettings(data=str(bench.rows), state=home, threads=1)
        rehearsal = Rehearsal(run, equal_shares(node, ORIGINS))
        while rehearsal.step < run.steps:
            rehearsal.advance()
        rehearsal.trainers[0].complete()
        return rehearsal.trainers[0].export(home / "model", ""), Sizes()

    return train


def _adamw(bench: Bench, seed: int, rate: float, home: Path) -> tuple[Path, Sizes]:
    """All weights, by the objective of the swarm: the same prompts and texts at the first step."""
    base = load_model(str(bench.model))
    settings = RunSettings.of(**bench.settings(seed, estimate="gradient"))
    tasks = [
        load_task(settings, base.tokenizer, data=str(bench.rows), shard=f"{k + 1}/{ORIGINS}") for k in range(ORIGINS)
    ]
    parameters = list(base.model.parameters())
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    for step in range(bench.steps):
        for origin, task in enumerate(tasks):
            batch, objective = task.batch(origin, step), task.objective
            assert isinstance(objective, Reward)
            assert isinstance(batch, PromptBatch)
            keys = [derive_key("text", seed, origin, step, text) for text in range(PROMPTS * GROUP)]
            written = objective.teach(base.causal, batch, objective.answer(base.causal, batch.examples, keys))
            if written.batch is not None:
                score = objective.measure(base.causal, written.batch)
                torch.autograd.backward(score.minimised_sums[0] / (PROMPTS * GROUP * ORIGINS))
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    base.model.save_pretrained(home / "model")
    base.tokenizer.save_pretrained(home / "model")
    return home / "model", Sizes()


def _grpo(bench: Bench, seed: int, rate: float, home: Path) -> tuple[Path, Sizes]:
    """TRL: its own texts, advantages divided by the deviation of their group, and no penalty for leaving the base."""
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    score = make_scorer(bench.settings(seed)["score"])

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        names = [name for name in columns if name in ("answer", "numbers", "target")]
        rows = [{name: columns[name][k] for name in names} for k in range(len(prompts))]
        return [score(*one) for one in zip(prompts, completions, rows, strict=True)]

    settings = GRPOConfig(
        output_dir=str(home / "trl"),
        learning_rate=rate,
        lr_scheduler_type="constant",
        max_steps=bench.steps,
        per_device_train_batch_size=ORIGINS * PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=bench.settings(seed)["max_new_tokens"],
        beta=0.0,
        seed=seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    rows = [dict(row.columns) for row in read_data(str(bench.rows)).train.rows]
    tokenizer = AutoTokenizer.from_pretrained(bench.model, padding_side="left")
    trainer = GRPOTrainer(
        model=str(bench.model),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(home / "model"))
    return home / "model", Sizes()


TRAINERS: Mapping[str, Trainer] = {
    "base": _base,
    **{f"rank-{rank}": _swarm(rank) for rank in (8, 16, 22, 32)},
    "tenfold": _swarm(16, 10.0),
    "held": _swarm(22, kl=KL),
    "new": _rehearsed(0),
    "early": _rehearsed(2),
    "adamw": _adamw,
    "grpo": _grpo,
}


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
