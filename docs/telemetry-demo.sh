#!/bin/sh
# From nothing to a partition: a service, three agents, a partition of their items, run, timed, partitioned again.
# usage: docs/telemetry-demo.sh FOLDER      (a new folder: database, tokens, journals and logs go there)
set -eu
folder=${1:?usage: telemetry-demo.sh FOLDER}
if [ -e "$folder" ]; then echo "$folder exists; name a new folder" >&2; exit 1; fi
mkdir -p "$folder" && cd "$folder"
trap 'kill $pids 2>/dev/null; wait' EXIT
began=$(date +%s)

flowlex telemetry serve --port 0 --alive-s 10 > service.log 2>&1 & pids=$!
until url=$(sed -n 's/^Serving \([^ ]*\).*/\1/p' service.log) && [ -n "$url" ]; do sleep 0.2; kill -0 $pids; done
admin="--server $url --token-file flowlex-telemetry-tokens.json"

# Each node has its items (every third block has a replica on the next node), a token and an agent.
block=0
for node in node-1:9:node-2 node-2:2:node-3 node-3:1:node-1; do
  name=${node%%:*} rest=${node#*:} lines=
  for _ in $(seq "${rest%:*}"); do
    holders=\"$name\"
    [ $((block % 3)) -ne 0 ] || holders="$holders, \"${rest#*:}\""
    lines="$lines${lines:+, }{\"name\": \"block-$block\", \"items\": 20, \"holders\": [$holders]}"
    block=$((block + 1))
  done
  echo "[$lines]" > $name.items.json
  (umask 077 && flowlex telemetry token create --role agent --node $name --days 1 > $name.token)
  flowlex telemetry agent --node $name --server "$url" --token-file $name.token --heartbeat-s 0.5 > $name.log 2>&1 &
  pids="$pids $!"
done

register() { flowlex telemetry register $admin --timeout-s 30 "$@"; }
register items items "$PWD/{node}.items.json"
register cpu_cores cpu_cores --unit cores
register network_bandwidth network_bandwidth 1.25e8 --unit bytes/s
every="--kind processor --interval-s 3"
register node_performance normalised_performance $every --scope all --replicas 1 --input cpu_cores
register access_cost access_cost 1e6 $every --scope all --input network_bandwidth --unit s/item
register processing_speed processing_speed $every --input run_history --window-s 600 --unit items/s

FLOWLEX_TELEMETRY_TOKEN=$(python3 -c 'import json; print(json.load(open("flowlex-telemetry-tokens.json"))["reader"])')
FLOWLEX_TELEMETRY_WRITER_TOKEN=$(flowlex telemetry token create --role agent --any-node)
export FLOWLEX_TELEMETRY_TOKEN FLOWLEX_TELEMETRY_WRITER_TOKEN
await() { # NAME NODES: until so many nodes have a value
  for _ in $(seq 60); do
    [ "$(COLUMNS=200 flowlex telemetry show --once --server "$url" --name "$1" | grep -c '│ node-.* ok ')" -lt "$2" ] || return 0
    sleep 0.5
  done
  echo "$1 does not come; see the logs in $folder" >&2; exit 1
}
await items 3; await cpu_cores 3; await access_cost 3; await node_performance 1
flowlex solve --from-telemetry "$url" --set capacity=performance -o solution
echo "From nothing to a partition: $(($(date +%s) - began)) s"

# A made-up program, slower on some nodes than on others, which nothing has measured before.
work='case $FLOWLEX_NODE in node-1) ms=4;; node-2) ms=8;; *) ms=16;; esac
sleep $(printf "%d.%03d" $((FLOWLEX_ITEMS * ms / 1000)) $((FLOWLEX_ITEMS * ms % 1000)))'
for capacity in performance history; do
  flowlex run-partition --from-telemetry "$url" --capacity $capacity -o run-by-$capacity -- sh -c "$work"
  await processing_speed 3
done
echo "All: $(($(date +%s) - began)) s; everything is in $folder"
