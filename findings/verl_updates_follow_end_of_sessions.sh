#!/usr/bin/env bash
# verl 0.9.1, trainer V1: the updates of a step take rows in the order in which their sessions ended.
#
# A step of 4 prompts with 4 sessions each; in every group, two sessions answer in 10 tokens and end first, two take 100
# tokens. With two updates a step (`ppo_mini_batch_size` 2 of 4 prompts), shuffle off (the default) and one
# data-parallel rank:
#
#   expected  every update has two whole groups, or at least rows of both lengths
#   seen      update 1: lengths {10}, rows of 4 groups; update 2: lengths {100}, rows of 4 groups
#
# The replay buffer returns the keys in the order in which TransferQueue got them, and `_balance_batch` sorts each rank's
# share by that order. Length goes with outcome, so the first update can have the failures alone, and the second one the
# successes. Advantages are right; the loss of an update is no estimate of the loss of the batch. Remedies: order the
# rows by group, `actor.shuffle=True`, or one update a step.
#
# Downloads about 2 GB. Exit code 1 if verl does something else.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet verl==0.9.1 TransferQueue==0.1.11 tensordict==0.10.0 ray==2.60.0 \
    transformers==5.10.4 cachetools==8.0.2 fastapi==0.165.0 orjson==3.13.0 uvicorn==0.54.0  # verl imports them undeclared

cat > "$folder/show.py" <<'PYTHON'
from types import SimpleNamespace

import ray
import torch
import transfer_queue as tq
import verl
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict, make_iterator

ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
tq.init()
prompts, lengths = ["a", "b", "c", "d"], {0: 10, 1: 10, 2: 100, 3: 100}
for uid in prompts:
    tq.kv_put(key=uid, partition_id="train", tag={"is_prompt": True, "status": "running", "global_steps": 1})
for sessions in ((0, 1), (2, 3)):  # the short ones end first
    for uid in prompts:
        for session in sessions:
            row = {"input_ids": torch.zeros(lengths[session], dtype=torch.int64), "uid": uid}
            tag = {"status": "success", "seq_len": lengths[session], "response_len": lengths[session], "prompt_len": 0,
                   "global_steps": 1, "min_global_steps": 0, "max_global_steps": 0}
            tq.kv_batch_put(keys=[f"{uid}_{session}_0"], partition_id="train",
                            fields=list_of_dict_to_tensordict([row]), tags=[tag])
for uid in prompts:
    tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})

buffer = ReplayBuffer(trainer_mode="sync", trainer_config=OmegaConf.create({}), max_off_policy_threshold=8,
                      max_off_policy_strategy="drop", sampler_kwargs=OmegaConf.create({}), poll_interval=0.1)
batch, _ = buffer.sample(1, "train", len(prompts))
trainer = SimpleNamespace(actor_rollout_wg=SimpleNamespace(_dispatch_info={"actor": [0]}),
                          tokenizer=SimpleNamespace(eos_token_id=0), _get_required_batch_multiple=lambda ranks: 8)
batch = PPOTrainer._balance_batch(trainer, batch, {})
rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["input_ids", "uid"])
updates = make_iterator(rows, mini_batch_size=8, epochs=1, seed=42, dataloader_kwargs={"shuffle": False})
seen = []
for number, update in enumerate(updates, 1):
    seen.append((set(update["input_ids"].offsets().diff().tolist()), len(set(update["uid"]))))
    print(f"verl {verl.__version__}, update {number}: lengths {seen[-1][0]}, rows of {seen[-1][1]} groups")
tq.close()
raise SystemExit(seen != [({10}, 4), ({100}, 4)])
PYTHON
VERL_USE_EXTERNAL_PLUGINS=none "$folder/env/bin/python" -W ignore "$folder/show.py"
