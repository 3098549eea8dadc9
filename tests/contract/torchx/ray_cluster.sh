# A Ray cluster of a head and a second machine in a separate network, and one job of TorchX on it.
# usage: unshare -n --fork --pid --mount-proc --kill-child bash ray_cluster.sh FOLDER ENVIRONMENT REPOSITORY WORDS...
# WORDS are those of `torchx run` after the component; status and log are printed.
set -u
sockets="$(mktemp -d /tmp/ray.XXXXXX)"  # the names of sockets must be short
trap 'rm -rf "$sockets"' EXIT
ip link set lo up
cd "$1"
export PATH="$2/bin:$PATH" PYTHONPATH="$3" RAY_USAGE_STATS_ENABLED=0 PYTHONWARNINGS=ignore
shift 3

start() {
  python -m ray.scripts.scripts start "$@" --num-cpus=2 --temp-dir="$sockets" >>ray.log 2>&1 || { cat ray.log; exit 1; }
}
torchx() {
  python -m torchx.cli.main "$@"
}

start --head --node-ip-address=127.0.0.1 --port=6399 --dashboard-host=127.0.0.1 --dashboard-port=8265
start --address=127.0.0.1:6399 --node-ip-address=127.0.0.2
mkdir work
chosen="dashboard_address=127.0.0.1:8265,working_dir=$PWD/work"
handle="$(torchx run -s ray -cfg "$chosen" cloudrec.torchx:dlrm "$@" 2>run.log | tail -1)"
[ -n "$handle" ] || { cat run.log; exit 1; }
for attempt in $(seq 100); do
  status="$(torchx status "$handle" 2>&1)"
  case "$status" in *SUCCEEDED* | *FAILED*) break ;; esac
  sleep 2
done
echo "$status"
torchx log "$handle" 2>&1
