# A Ray cluster of a head and two machines on loopback addresses of a network of its own, and three launches.
# usage: unshare -n --fork --pid --mount-proc --kill-child bash ray_cluster.sh FOLDER RAY_BIN REPOSITORY
set -u
sockets="$(mktemp -d /tmp/ray.XXXXXX)"  # the names of sockets must be short
trap 'rm -rf "$sockets"' EXIT
ip link set lo up
cd "$1"
export PATH="$2:$PATH" PYTHONPATH="$3" RAY_USAGE_STATS_ENABLED=0 RAY_kill_child_processes_on_worker_exit=false
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')"
export CLOUDREC_GRACE_S=20

machine() {
  POD_IP=127.0.0.$1 CLOUDREC_WORK="$PWD/machine-$1" ray start --address=127.0.0.1:6399 \
    --node-ip-address=127.0.0.$1 --num-cpus=1 --temp-dir="$sockets" >"machine-$1.log" 2>&1 || exit
}
drive() {
  RAY_ADDRESS=127.0.0.1:6399 timeout 200 python -m cloudrec.agent ray launch.json >"driver-$1.log" 2>&1
  echo "$1 $?"
}

POD_IP=127.0.0.1 CLOUDREC_WORK="$PWD/head" ray start --head --node-ip-address=127.0.0.1 --port=6399 \
  --include-dashboard=false --num-cpus=0 --temp-dir="$sockets" >head.log 2>&1 || exit
machine 2
machine 3

rm -f machine-*/starts; echo "75 0" >machine-2/codes; echo "1 0" >machine-3/codes
drive again

rm -f machine-*/starts; echo "64" >machine-2/codes; echo "wait" >machine-3/codes
drive final

rm -f machine-*/starts; echo "machine-4" >machine-2/codes; echo "wait" >machine-3/codes; echo "0" >machine-4/codes
drive lost &
until [ -s machine-3/starts ]; do sleep 0.2; done
for process in /proc/[0-9]*; do
  words="$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)"
  case "$words" in */raylet\ *--node_ip_address=127.0.0.3*) kill -KILL "${process#/proc/}" ;; esac
done
machine 4
wait
