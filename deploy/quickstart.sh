#!/usr/bin/env bash
# From a fresh clone to a running server: installs what is missing, builds the release preset, serves
# the shipped model on 127.0.0.1:8000 and prints how to use it. Accepts the flags of `tandem serve`:
#   deploy/quickstart.sh --port 9000 --model /path/to/hf-folder --max-model-len 4k
# A second run has nothing to build and serves at once.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=build/release/bin/tandem
stamp=build/release/.built

# True when a source is newer than the last build. Faster than starting ninja.
sources_changed() {
  [ ! -x "$binary" ] || [ ! -e "$stamp" ] ||
    [ -n "$(find . \( -path ./.git -o -path ./build -o -path ./docs -o -path ./tests \) -prune -o \
      \( -type f -o -type d \) -newer "$stamp" -print -quit)" ]
}

if sources_changed; then
  deploy/install_dependencies.sh
  echo "building (takes minutes the first time; log: build/release.log)"
  mkdir -p build
  if ! { cmake --preset release -DTANDEM_TESTS=OFF && cmake --build build/release; } >build/release.log 2>&1; then
    tail -40 build/release.log >&2
    exit 1
  fi
  touch "$stamp"
fi

host=127.0.0.1 port=8000 model=deploy/models/tandem-tiny name=tandem-tiny
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --port) port=$2; shift 2 ;;
    --port=*) port=${1#*=}; shift ;;
    --host) host=$2; shift 2 ;;
    --host=*) host=${1#*=}; shift ;;
    --model) model=$2; name=$(basename "$2"); shift 2 ;;
    --model=*) model=${1#*=}; name=$(basename "$model"); shift ;;
    --served-model-name) name=$2; shift 2 ;;
    --served-model-name=*) name=${1#*=}; shift ;;
    *) arguments+=("$1"); shift ;;
  esac
done

cat <<EOF
Serving $model as "$name" on http://$host:$port. In another terminal:

  curl http://$host:$port/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "$name", "stream": true, "messages": [{"role": "user", "content": "Tell me a short story about a fox."}]}'

  pip install openai; python3 - <<'PY'
from openai import OpenAI
client = OpenAI(base_url="http://$host:$port/v1", api_key="none")
for chunk in client.chat.completions.create(model="$name", stream=True,
        messages=[{"role": "user", "content": "What is 7 plus 5?"}]):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
PY

  $binary chat --url http://$host:$port

Ctrl-C stops both processes.
EOF
exec "$binary" serve "$model" --host "$host" --port "$port" --served-model-name "$name" "${arguments[@]}"
