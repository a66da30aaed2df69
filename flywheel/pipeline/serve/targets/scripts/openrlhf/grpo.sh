python -m openrlhf.cli.train_ppo_ray \
  --actor.model_name_or_path "$model" \
  --data.prompt_dataset prompts.jsonl --data.input_key input --data.label_key label \
  --data.max_len $longest_and_two \
  --train.agent_func_path replay.py --rollout.n_samples_per_prompt $members \
  --algo.advantage.estimator group_norm --algo.advantage.is_correction_level $correction_or_off \
  --ds.lora.rank 16 --ds.lora.alpha 32 --ckpt.output_dir out-grpo
