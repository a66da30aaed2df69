"""DPO or SFT on the export with AReaL: `python train.py dpo --config dpo.yaml`."""

import sys

from areal.api.cli_args import DPOConfig, SFTConfig, load_expr_config
from areal.dataset import get_custom_dataset


def main(kind, arguments):
    if kind == "dpo":
        from areal.trainer.dpo_trainer import DPOTrainer as Trainer
    else:
        from areal.trainer.sft_trainer import SFTTrainer as Trainer
    config, _ = load_expr_config(arguments, {"dpo": DPOConfig, "sft": SFTConfig}[kind])
    train = get_custom_dataset(split="train", dataset_config=config.train_dataset)
    valid = get_custom_dataset(split="train", dataset_config=config.valid_dataset)
    with Trainer(config, train_dataset=train, valid_dataset=valid) as trainer:
        trainer.train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
