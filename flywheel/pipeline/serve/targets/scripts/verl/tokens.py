"""A dataset of tokens and masks for veRL's SFT trainer: `data.custom_cls`."""

import pandas
import torch
from torch.utils.data import Dataset


class Tokens(Dataset):
    def __init__(self, parquet_files, tokenizer, config, processor=None, max_samples=-1):
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = pandas.concat([pandas.read_parquet(name) for name in files])
        self.rows = rows.iloc[:max_samples] if max_samples > 0 else rows
        longest = int(self.rows["input_ids"].map(len).max())
        if longest > config.max_length:
            raise ValueError(f"the longest row has {longest} tokens, data.max_length is {config.max_length}")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        row = self.rows.iloc[number]
        ids = torch.tensor(row["input_ids"], dtype=torch.long)
        return {
            "input_ids": ids,
            "position_ids": torch.arange(len(ids)),
            "loss_mask": torch.tensor(row["loss_mask"], dtype=torch.long),
        }
