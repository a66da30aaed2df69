"""RLlib: its episodes are the attempts, and BC and MARWIL train on them."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

from _common import FOLDER, lines, run, same, steps, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from train import episodes

    rewards = {row["episode"]: row["reward"] for row in tokens("groups")}
    names = {row["eps_id"]: row["episode"] for row in lines(FOLDER / "ids.jsonl")}
    read = {names[int(e.id_)]: e.get_return() for e in episodes()}
    same(read, rewards, "returns by episode")
    (encoder,), credits = lines(FOLDER / "encoder.json"), lines(FOLDER / "episodes.json")
    did = {
        names[int(e.id_)]: list(zip([encoder["actions"][a] for a in e.get_actions()], one["credit"], strict=True))
        for e, one in zip(episodes(), credits, strict=True)
    }
    same(did, steps(), "actions and credit by step")
    for episode in episodes():
        (reply, size) = encoder["actions"].index("reply"), len(encoder["actions"])
        observations, actions = episode.get_observations(), episode.get_actions()
        same([int(o[2 * size]) for o in observations], list(range(len(episode) + 1)), "steps done")
        same([int(o[reply]) for o in observations[1:]], [actions[: n + 1].count(reply) for n in range(len(episode))],
             "replies so far")  # fmt: skip
    return f"{len(read)} attempts as SingleAgentEpisode: states, actions, credit and returns of the log"


def logged(episodes, behaviour, target, payoff):
    """Return a toy log: in each of two steps one of two actions, whose chance is known; truth by enumeration."""
    import numpy as np

    rng = np.random.default_rng(0)
    actions = (rng.random((episodes, len(behaviour))) < behaviour).astype(int)
    chance = np.where(actions == 1, behaviour, 1 - np.array(behaviour))
    wanted = np.where(actions == 1, target, 1 - np.array(target))
    rewards = np.where(actions == 1, payoff, 0.25)
    truth = float(sum(p * r + (1 - p) * 0.25 for p, r in zip(target, payoff, strict=True)))
    return actions, chance, wanted, rewards, truth


class Known:
    """A policy whose chances are known, as RLlib's estimators ask for it."""

    def __init__(self, target):
        self.target, self.config = target, {}

    def compute_log_likelihoods(self, actions, obs_batch, **_):
        import numpy as np

        first = np.array(self.target)[np.asarray(obs_batch)[:, 0].astype(int)]
        return np.log(np.where(np.asarray(actions) == 1, first, 1 - first))


def old_stack(estimator, episodes, target):
    from ray.rllib.policy.sample_batch import SampleBatch

    actions, chance, _, rewards, _ = episodes
    batches = [
        SampleBatch(
            obs=[[float(t)] for t in range(len(a))], actions=a, action_prob=c, rewards=r, eps_id=[n] * len(a),
            terminateds=[False] * (len(a) - 1) + [True],
        )
        for n, (a, c, r) in enumerate(zip(actions, chance, rewards, strict=True))
    ]  # fmt: skip
    one = estimator(policy=Known(target), gamma=1.0)
    for batch in batches if hasattr(one, "peek_on_single_episode") else ():
        one.peek_on_single_episode(batch)
    return sum(one.estimate_on_single_episode(batch)["v_target"] for batch in batches) / len(batches)


def new_stack(kind, episodes, target):
    """Its own loop over episodes, given a module with the target's chances."""
    import torch
    from ray.rllib.core import DEFAULT_MODULE_ID
    from ray.rllib.core.columns import Columns
    from ray.rllib.models.torch.torch_distributions import TorchCategorical
    from ray.rllib.offline.offline_policy_evaluation_runner import OfflinePolicyEvaluationRunner as Runner
    from ray.rllib.offline.offline_policy_evaluation_runner import OfflinePolicyEvaluationTypes as Types

    actions, chance, _, rewards, _ = episodes
    chances = torch.tensor([[1 - p, p] for p in target])

    class Module:
        def get_inference_action_dist_cls(self):
            return TorchCategorical

        def forward_inference(self, batch):
            return {Columns.ACTION_DIST_INPUTS: torch.log(chances)}

    class Counted(Runner):
        _batch_iterator = None

        def __init__(self):
            self.returns = []

        def _log_episode_metrics(self, length, value):
            self.returns.append(value)

        def _log_batch_metrics(self, *_):
            pass

    torch.manual_seed(0)
    runner = Counted()
    runner.module = {DEFAULT_MODULE_ID: Module()}
    runner.metrics = SimpleNamespace(log_value=lambda *a, **k: None, reduce=lambda: None)
    setattr(runner, "_OfflinePolicyEvaluationRunner__offline_evaluation_type", getattr(Types, kind))
    tensors = [
        {
            Columns.ACTIONS: torch.tensor(a),
            Columns.ACTION_LOGP: torch.log(torch.tensor(c)),
            Columns.REWARDS: torch.tensor(r),
        }
        for a, c, r in zip(actions, chance, rewards, strict=True)
    ]
    Counted._batch_iterator = [tensors]
    runner._evaluate(explore=False, train=False)
    return sum(runner.returns) / len(runner.returns)


def estimates():
    import numpy as np
    from ray.rllib.offline.estimators import ImportanceSampling, WeightedImportanceSampling

    sys.path.append(str(Path(__file__).parents[3]))
    from flywheel.stats.ope import pdis_terms, snips_terms

    target = (0.8, 0.3)
    two = logged(20_000, (0.5, 0.5), target, (1.0, 2.0))
    _, chance, wanted, rewards, truth = two
    ours = pdis_terms(wanted / chance, rewards)
    theirs = old_stack(ImportanceSampling, two, target)
    same(round(float(ours.mean()), 5), round(float(theirs), 5), "many steps: ours and RLlib's IS")
    assert abs(ours.mean() - truth) < 4 * ours.std() / np.sqrt(len(ours)), (ours.mean(), truth)
    one = logged(20_000, (0.5,), target[:1], (1.0,))
    single = float(snips_terms((one[2] / one[1])[:, 0], one[3][:, 0]).mean())
    weighted = float(old_stack(WeightedImportanceSampling, one, target[:1]))
    same(round(single, 5), round(weighted, 5), "one step: ours and RLlib's WIS")
    wrong = {kind: new_stack(kind, two, target) for kind in ("IS", "PDIS")}
    return (
        f"truth {truth:.3f}: PDIS and RLlib's old-stack IS {theirs:.3f} alike; its new stack IS {wrong['IS']:.3f}, "
        f"PDIS {wrong['PDIS']:.3f}; one step, truth {one[4]:.3f}: SNIPS and its WIS {weighted:.3f} alike"
    )


def trained():
    from train import main

    losses = {name: main(name, 10) for name in ("bc", "marwil")}
    assert all(series[-1] < series[0] for series in losses.values()), losses
    assert all(Path(f"policy-{name}.pth").stat().st_size for name in losses)
    return ", ".join(
        f"{name} from {series[0]:.3f} to {series[-1]:.3f} in 10 updates" for name, series in losses.items()
    )


def config():
    from train import settings

    for name in ("bc", "marwil"):
        one = settings(name)
        one.validate()
        same(one.action_space.n, len(lines(FOLDER / "encoder.json")[0]["actions"]), "actions")
    try:
        settings("bc").training(no_such_setting=1)
    except TypeError:
        return "AlgorithmConfig.validate passes for BC and MARWIL; an unknown setting is refused"
    raise AssertionError("an unknown setting was taken")


run(read=read, config=config, trained=trained, estimates=estimates)
