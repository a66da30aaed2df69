deepspeed --module openrlhf.cli.train_dpo \
  --model.model_name_or_path "$model" \
  --data.dataset dpo.jsonl --data.prompt_key prompt --data.chosen_key chosen --data.rejected_key rejected \
  --data.max_len $longest_and_two --model.beta 0.1 --ds.lora.rank 16 --ds.lora.alpha 32 \
  --ckpt.output_dir out-dpo
