#!/bin/sh
# Runs an agent of the command line on the task of its stdin: sh run_agent.sh mini|claude|codex|openhands
# It works in an empty folder, and sees no settings of the user. Its result is the file answer.txt that it writes.
set -eu
export HOME="${VERL_AGENTIC_FOLDER:-$(mktemp -d)}"  # a container has no such folder, and is removed as a whole
task="$(python3 -c 'import json, sys; print(json.load(sys.stdin)["prompt"][-1]["content"])')
Write the answer, and nothing else, into the file answer.txt."
mkdir "$HOME/work"
cd "$HOME/work"

run_agent() {
  case "$1" in
    mini)
      export MSWEA_CONFIGURED=true MSWEA_SILENT_STARTUP=1 MSWEA_COST_TRACKING=ignore_errors
      export LITELLM_LOCAL_MODEL_COST_MAP=True
      mini -m "openai/$OPENAI_MODEL" -y --exit-immediately -o "$HOME/mini.json" -t "$task"
      ;;
    claude)
      export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 IS_SANDBOX=1  # root may skip permissions in a sandbox alone
      claude -p --dangerously-skip-permissions "$task"
      ;;
    codex)
      provider="{name=\"policy\", base_url=\"$OPENAI_BASE_URL\", env_key=\"OPENAI_API_KEY\", wire_api=\"responses\"}"
      codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m "$OPENAI_MODEL" \
        -c "model_providers.policy=$provider" -c 'model_provider="policy"' "$task"
      ;;
    openhands)
      export LLM_MODEL="openai/$OPENAI_MODEL" LLM_BASE_URL="$OPENAI_BASE_URL" LLM_API_KEY="$OPENAI_API_KEY"
      openhands --headless --override-with-envs -t "$task"
      ;;
    *)
      echo "the agent must be mini, claude, codex or openhands, got $1; add yours to $0" >&2
      return 64
      ;;
  esac
}

run_agent "$1" </dev/null >&2
if [ -f answer.txt ]; then cat answer.txt; fi
