"""What TRL's DPOTrainer and GRPOTrainer teach through `seedflood.join`, beside the same trainers with LoRA of PEFT.

A swarm is two processes, each with a script and half of the rows, as in `examples/on_two.py`. LoRA is one process with
all rows, at the same rank, with as many steps, and as many rows or texts a step. It has the best of `LORA_RATES` with
run seed 1, which favours it a little. The swarm has what docs/how-to/library.md says to set.

`dpo`: preferences of tiny-opt, 200 rows of SST-2 for each run seed. Behind a sentence the word for its label is chosen,
and the one for the other label rejected. A held-out row is right if the tuned model, more than the base model, prefers
the chosen word: if the difference of the logarithms of probability ratios is positive. `grpo`: rewards, by the model of
`benchmarks.reward` that adds two numbers in a third of the cases, 16 prompts with 8 texts each a step. There the share
of right texts counts, sampled for held-out prompts.

With `--folder` models and courses are kept there, and those that are there are not made again.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

import seedflood
from benchmarks.measure import Metric, make_metric, shared_folder
from benchmarks.reward import Bench, Course
from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, spell
from seedflood.training.rewards.scores import make_scorer
from seedflood.training.sources import read_data

SEEDS = (1, 2, 3)
HOSTS, RANK = 2, 16
LORA_RATES = {"dpo": (1e-3, 3e-3, 1e-2), "grpo": (3e-4, 1e-3, 3e-3)}
STEPS = {"dpo": 50, "grpo": 100}
RATE = 0.00167
"""Of GRPO in a swarm: a quarter of the default."""

RUN_KEYS: dict[str, dict[str, Any]] = {"dpo": {}, "grpo": {"learning_rate": RATE}}
"""Of `[run]`, by kind: what docs/how-to/library.md says to set."""
ROWS, HELD_OUT = 200, 872
WORDS = " terrible", " great"
"""In the order of the labels."""
PREFERENCES_A_STEP, TEXTS_A_STEP, GROUP = 16, 128, 8
JUDGED_AT_ONCE = 64
BETA = 0.1
"""Of DPO: TRL's default."""
KINDS = ("dpo", "grpo")
LINES = ("lora", "swarm")
PARTS = (*KINDS, *LINES)
BEHIND_MAX = 0.05
"""What a swarm may be behind LoRA, of 1."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """rate: of LoRA; None: as the run has it."""

    kind: str
    line: str
    seed: int
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What a process does. home: where the tuned model goes. model: the base. peers, place: of a host of a swarm."""

    wanted: Wanted
    home: str
    model: str
    peers: str = ""
    place: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """right: of held-out rows, or texts, in the end. margin: of preferences, in the mean; else how often the most
    likely text is right. sent_bytes: of a host, a step."""

    wanted: Wanted
    right: float
    margin: float
    sent_bytes: float

    @classmethod
    def read(cls, line: str) -> "Trained":
        fields = json.loads(line)
        return cls(**{**fields, "wanted": Wanted(**fields["wanted"])})


def run(parts: Sequence[str] = (), folder: Path | None = None) -> dict[str, Metric]:
    """parts: kinds and lines; without, all."""
    metrics: dict[str, Metric] = {}
    with TemporaryDirectory(prefix="seedflood-preferences-") as home:
        bench = Trials(folder or Path(home))
        for kind in [kind for kind in KINDS if kind in parts] or KINDS:
            lines = [line for line in LINES if line in parts] or LINES
            trained = {line: bench.all_seeds(kind, line) for line in lines}
            for line, courses in trained.items():
                metrics[f"preferences.{kind}.{line}.right"] = make_metric([one.right for one in courses])
            if len(trained) == 2:
                pairs = zip(trained["lora"], trained["swarm"], strict=True)
                behind = [lora.right - swarm.right for lora, swarm in pairs]
                metrics[f"preferences.{kind}.behind"] = make_metric(behind, BEHIND_MAX)
                sent = [one.sent_bytes for one in trained["swarm"]]
                metrics[f"preferences.{kind}.swarm.sent_bytes_per_step"] = make_metric(sent)
    return metrics


class Trials:
    """folder: of models, and of what was trained before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder / "preferences.jsonl"

    def all_seeds(self, kind: str, line: str) -> list[Trained]:
        if line == "swarm":
            return self.train([Wanted(kind, line, seed) for seed in SEEDS])
        tries = self.train([Wanted(kind, line, SEEDS[0], rate) for rate in LORA_RATES[kind]])
        best = max(tries, key=lambda one: one.right)
        return self.train([Wanted(kind, line, seed, best.wanted.rate) for seed in SEEDS])

    def train(self, wanted: Sequence[Wanted]) -> list[Trained]:
        """Trains and judges what is not there. All that is wanted is of one kind and line."""
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        known = {one.wanted: one for one in (Trained.read(line) for line in lines)}
        missing = [one for one in wanted if one not in known]
        if missing:
            known |= {one.wanted: one for one in self._train(missing)}
        return [known[one] for one in wanted]

    def _train(self, wanted: Sequence[Wanted]) -> list[Trained]:
        kind, line = wanted[0].kind, wanted[0].line
        bench = Bench("addition", self._folder, STEPS[kind]) if kind == "grpo" else None
        model = str(bench.model if bench else shared_folder() / "models" / "tiny-opt")
        with TemporaryDirectory(prefix="seedflood-preferences-") as home:
            jobs = [Job(one, f"{home}/{place}", model) for place, one in enumerate(wanted)]
            for job in jobs:
                Path(job.home).mkdir()
            sent = train_in_swarm(jobs) if line == "swarm" else train_alone(jobs)
            done = []
            for job, sent_bytes in zip(jobs, sent, strict=True):
                if bench:
                    course = Course(kind, line, job.wanted.seed, STEPS[kind], 0.0, 0.0, 0.0, 0.0, 0.0)
                    course = bench.judge(course, Path(job.home, "model"))
                    right, margin = course.right, course.greedy
                else:
                    margins = judge(job)
                    right, margin = mean(one > 0 for one in margins), mean(margins)
                done.append(Trained(job.wanted, right, margin, sent_bytes / STEPS[kind]))
                print(done[-1], file=sys.stderr, flush=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._kept.open("a") as kept:
            kept.writelines(json.dumps(asdict(one)) + "\n" for one in done)
        return done


def train_in_swarm(jobs: Sequence[Job]) -> list[float]:
    """Each run with two hosts, one run after the other. Returns how many bytes a host sent in each."""
    hosts: list[list[Job]] = [[] for _ in range(HOSTS)]
    for job in jobs:
        ports = reserve_ports(HOSTS)
        run = {"model": job.model, "task": "own", "estimate": "gradient", "rank": RANK, "clients": HOSTS}
        run |= {"steps": STEPS[job.wanted.kind], "seed": job.wanted.seed, "window": "strict"}
        run |= RUN_KEYS[job.wanted.kind]
        for place in range(HOSTS):
            folder = Path(job.home, f"host-{place}")
            folder.mkdir()
            node = {"name": folder.name, "listen": f"127.0.0.1:{ports[place]}", "http": "", "threads": 1}
            node["shard"] = f"{place + 1}/{HOSTS}"
            peers = [{"address": f"127.0.0.1:{ports[0]}"}] if place else []
            (folder / "peers.toml").write_text(spell({"run": RunSettings.place(run), "node": node, "peers": peers}))
            hosts[place].append(replace(job, peers=str(folder / "peers.toml"), place=place))
    _wait([_start(those, Path(jobs[0].home, f"log-{place}")) for place, those in enumerate(hosts)])
    sent = []
    for job in jobs:
        ended = [json.loads(Path(job.home, f"host-{place}", "ended.json").read_text()) for place in range(HOSTS)]
        assert len({one["digest"] for one in ended}) == 1, ended
        sent.append(mean(one["sent_bytes"] for one in ended))
    return sent


def train_alone(jobs: Sequence[Job]) -> list[float]:
    _wait([_start(jobs, Path(jobs[0].home, "log"))])
    return [0.0 for _ in jobs]


Started = tuple["subprocess.Popen[bytes]", Path]


def _start(jobs: Sequence[Job], log: Path) -> Started:
    command = [sys.executable, "-m", "benchmarks.preferences", json.dumps([asdict(job) for job in jobs])]
    given = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as written:
        return subprocess.Popen(command, env=given, stdout=written, stderr=written), log


def _wait(started: Sequence[Started]) -> None:
    codes = [process.wait() for process, _ in started]
    if any(codes):
        raise RuntimeError("\n".join(log.read_text()[-3000:] for _, log in started))


def preferences(seed: int) -> list[dict[str, str]]:
    """The rows of a run. Seed 0: those that are held out."""
    place = shared_folder() / "data" / "sst2" / ("train.jsonl" if seed else "validation.jsonl")
    read = [json.loads(line) for line in place.read_text().splitlines()]
    if seed:
        read = random.Random(seed).sample([row for row in read if len(row["sentence"].split()) >= 8], ROWS)
    return [_preference(row["sentence"].strip(), row["label"]) for row in read[:HELD_OUT]]


def _preference(sentence: str, label: int) -> dict[str, str]:
    return {"prompt": f"{sentence} . it was", "chosen": WORDS[label], "rejected": WORDS[1 - label]}


@torch.inference_mode()
def judge(job: Job) -> list[float]:
    """Of each held-out row by how much the tuned model likes the chosen text better than the base model does."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.model)
    rows = preferences(0)
    margins = torch.zeros(len(rows))
    for path, sign in ((f"{job.home}/model", 1.0), (job.model, -1.0)):
        model = AutoModelForCausalLM.from_pretrained(path, dtype="float32")
        for start in range(0, len(rows), JUDGED_AT_ONCE):
            part = rows[start : start + JUDGED_AT_ONCE]
            chosen, rejected = (_log_probabilities(model, tokenizer, part, name) for name in ("chosen", "rejected"))
            margins[start : start + len(part)] += sign * (chosen - rejected)
    return margins.tolist()


def _log_probabilities(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]], name: str) -> Tensor:
    """Of what follows each prompt, with the token that ends a text."""
    tokens = tokenizer(
        [row["prompt"] + row[name] + tokenizer.eos_token for row in rows], return_tensors="pt", padding=True
    )
    is_counted = tokens.attention_mask.clone()
    for place, row in enumerate(rows):
        is_counted[place, : len(tokenizer(row["prompt"]).input_ids)] = 0
    logits = model(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).logits[:, :-1]
    each = logits.log_softmax(-1).gather(2, tokens.input_ids[:, 1:, None]).squeeze(2)
    likes: Tensor = (each * is_counted[:, 1:]).sum(1)
    return likes


# What the processes do


def main(jobs: str) -> None:
    torch.set_num_threads(1)
    for job in json.loads(jobs):
        work(Job(**{**job, "wanted": Wanted(**job["wanted"])}))


def work(job: Job) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.model, padding_side="left" if is_grpo(job) else "right")
    model = AutoModelForCausalLM.from_pretrained(job.model, dtype="float32")
    if job.wanted.line == "lora":
        trainer = make_trainer(job, model, tokenizer)
        trainer.train()
        trainer.model.merge_and_unload().save_pretrained(f"{job.home}/model")
        tokenizer.save_pretrained(f"{job.home}/model")
        return
    with seedflood.join(model, job.peers) as swarm:
        trainer = make_trainer(job, model, tokenizer, swarm)
        seedflood.Callback(swarm).add_to(trainer)
        trainer.train()
        sent_bytes = swarm.bytes_sent
    Path(job.peers).with_name("ended.json").write_text(json.dumps({"digest": swarm.digest, "sent_bytes": sent_bytes}))
    if job.place == 0:
        model.save_pretrained(f"{job.home}/model")
        tokenizer.save_pretrained(f"{job.home}/model")


def is_grpo(job: Job) -> bool:
    return job.wanted.kind == "grpo"


def make_trainer(job: Job, model: Any, tokenizer: Any, swarm: seedflood.Participant | None = None) -> Any:
    """A trainer with this host's share of the rows of each step; without a swarm with all of them, of LoRA."""
    from peft import LoraConfig

    wanted, rows, hosts = job.wanted, rows_of(job), 1
    settings: dict[str, Any] = {
        "output_dir": f"{job.home}/trl-{job.place}",
        "max_steps": STEPS[wanted.kind],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 5,
        "disable_tqdm": True,
        "seed": HOSTS * wanted.seed + job.place,
    }
    given = {"model": model, "processing_class": tokenizer}
    if swarm is None:
        lora = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
        given["peft_config"] = lora
        schedule = "constant" if is_grpo(job) else "linear"
        settings |= {"learning_rate": wanted.rate, "lr_scheduler_type": schedule, "max_grad_norm": 1.0}
    else:
        rows, hosts = rows.shard(swarm.shard.count, swarm.shard.index), swarm.shard.count
        given["optimizers"] = swarm.optimizer(), swarm.schedule()
        settings["max_grad_norm"] = 0.0
    given["train_dataset"] = rows
    return _grpo(hosts, settings, given) if is_grpo(job) else _dpo(hosts, settings, given)


def _dpo(hosts: int, settings: dict[str, Any], given: dict[str, Any]) -> Any:
    """hosts: which share a step."""
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    batch = PREFERENCES_A_STEP // hosts
    args = DPOConfig(
        **settings, per_device_train_batch_size=batch, beta=BETA, max_length=128, precompute_ref_log_probs=True
    )
    return DPOTrainer(args=args, **given)


def _grpo(hosts: int, settings: dict[str, Any], given: dict[str, Any]) -> Any:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    score = make_scorer("exact")

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        rows = [{"answer": answer} for answer in columns["answer"]]
        return [score(*one) for one in zip(prompts, completions, rows, strict=True)]

    args = GRPOConfig(
        **settings,
        per_device_train_batch_size=TEXTS_A_STEP // hosts,
        num_generations=GROUP,
        num_iterations=1,
        max_completion_length=4,
        beta=0.0,
    )
    return GRPOTrainer(args=args, reward_funcs=reward, **given)


def rows_of(job: Job) -> Dataset:
    if not is_grpo(job):
        return Dataset.from_list(preferences(job.wanted.seed))
    rows = read_data(str(Path(job.model).parent / "rows")).train.rows
    return Dataset.from_list([dict(row.columns) for row in rows])


if __name__ == "__main__":
    main(sys.argv[1])
