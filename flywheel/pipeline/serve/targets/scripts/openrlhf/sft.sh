deepspeed --module openrlhf.cli.train_sft \
  --model.model_name_or_path "$model" \
  --data.dataset sft.jsonl --data.input_key input --data.output_key output \
  --data.max_len $longest_and_two --ds.lora.rank 16 --ds.lora.alpha 32 \
  --ckpt.output_dir out-sft
