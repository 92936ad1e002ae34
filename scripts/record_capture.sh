#!/bin/bash
# SPDX-License-Identifier: MIT
# scripts/record_capture.sh: records the capture that `weir demo` replays.
# Owns two network namespaces joined by a veth pair, the programs that talk over it, and tcpdump.
# Calls record/pad_frames.py, record/vlan_tap.py (kernels without VLANs only), check_capture.py.
# Never touches an interface outside its namespaces; the output file is replaced only by a
# recording that passed the check.
set -euo pipefail
exec </dev/null
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1

here=${BASH_SOURCE[0]%/*}
[[ $here != "${BASH_SOURCE[0]}" ]] || here=.
self=${BASH_SOURCE[0]##*/}

usage() {
  printf '%s\n' \
    "usage: $self [FILE]       (as root; default: data/mix.pcap of this repository)" \
    "Records about 7000 frames of real programs between two network namespaces: HTTP, bulk TCP," \
    "UDP, DNS, ICMP, ARP, IPv6, VLANs. Takes some 15 seconds. Prints what FILE holds."
}

fail() {
  printf '%s: %s\n' "$self" "$*" >&2
  exit 1
}

case ${1-} in
  -h | --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac
(($# <= 1)) || { usage >&2; exit 2; }
output=${1:-$(cd "$here/.." && pwd)/data/mix.pcap}

# ---- what must be there before anything is made ----------------------------------------------

packages=(
  ip:iproute2 ss:iproute2 ethtool:ethtool tcpdump:tcpdump iperf3:iperf3 curl:curl
  dig:bind9-dnsutils dnsmasq:dnsmasq-base ncat:ncat ping:iputils-ping python3:python3
)
missing=()
for entry in "${packages[@]}"; do
  command -v "${entry%%:*}" >/dev/null || [[ " ${missing[*]} " == *" ${entry##*:} "* ]] ||
    missing+=("${entry##*:}")
done
((${#missing[@]} == 0)) || fail "tools are missing; install their packages:" \
  "apt-get install --no-install-recommends ${missing[*]}"
((EUID == 0)) || fail "network namespaces need root; run: sudo ${BASH_SOURCE[0]}"
[[ -d $(dirname "$output") ]] || fail "no such directory: $(dirname "$output")"

# ---- two hosts and a cable -------------------------------------------------------------------

client=weir-client-$$
server=weir-server-$$
work=$(mktemp -d)
clients=() # the programs that must end by themselves: "pid name"

cleanup() {
  local status=$? name pid pids tries signal
  trap - EXIT
  set +e
  for pid in $(jobs -pr); do kill "$pid" 2>/dev/null; done
  # Grandchildren (a cat behind ncat) are found by the namespaces that only they live in.
  for ((tries = 0; tries < 30; ++tries)); do
    ((tries < 20)) && signal=TERM || signal=KILL
    pids=$(for name in "$client" "$server"; do ip netns pids "$name" 2>/dev/null; done)
    [[ -n $pids ]] || break
    for pid in $pids; do kill -"$signal" "$pid" 2>/dev/null; done
    sleep 0.1
  done
  for name in "$client" "$server"; do ip netns del "$name" 2>/dev/null; done
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

at() { # at NAMESPACE COMMAND...: in that namespace, for three minutes at most
  local name=$1
  shift
  exec timeout --kill-after=5 180 ip netns exec "$name" "$@"
}

# The first runs until it is told to end, the second must end by itself, and well.
daemon() { # daemon LOG NAMESPACE COMMAND...
  local log=$1
  shift
  (at "$@") >"$work/$log.log" 2>&1 &
}
job() { # job NAME FUNCTION ARGUMENTS...
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  clients+=("$! $name")
}

wait_for() { # wait_for "what, in words" COMMAND...: polls for five seconds
  local what=$1 tries
  shift
  for ((tries = 0; tries < 100; ++tries)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.05
  done
  tail -n 5 "$work"/*.log >&2
  fail "waited in vain for: $what"
}

say() { printf '%s: %s\n' "$self" "$*"; }

say "namespaces $client and $server"
ip netns add "$client" || fail "cannot make a network namespace; CAP_SYS_ADMIN is needed"
ip netns add "$server"
ip link add eth0 netns "$client" address 00:00:5e:00:53:01 type veth \
  peer name eth0 netns "$server" address 00:00:5e:00:53:02

for name in "$client" "$server"; do
  # Without these the kernel hands over segments of up to 64 KiB with unfinished checksums, and
  # carries VLAN tags beside the frame: nothing that ever was on a wire.
  ip netns exec "$name" ethtool -K eth0 tso off gso off gro off lro off tx off rx off sg off \
    rxvlan off txvlan off tx-vlan-stag-hw-insert off rx-vlan-stag-hw-parse off \
    >"$work/ethtool.log" 2>&1 || { cat "$work/ethtool.log" >&2; fail "ethtool -K failed"; }
  ip -n "$name" link set lo up
done

features='(tcp|generic)-segmentation|generic-receive|[rt]x-checksumming|[rt]x-vlan-offload'
still_on=$(ip netns exec "$client" ethtool -k eth0 | grep -E "^($features).*: on" || true)
[[ -z $still_on ]] || fail "an offload stays on: $still_on"

ip -n "$client" link set eth0 up
(at "$client" tcpdump -i eth0 -n -s 65535 -B 16384 -Z root -w "$work/raw.pcap") \
  >"$work/tcpdump.log" 2>&1 &
tcpdump=$!
wait_for "tcpdump to listen" grep -q 'listening on' "$work/tcpdump.log"
ip -n "$server" link set eth0 up

# Tagged frames keep to 1514 bytes like all others, so the packets in them are 4 and 8 bytes
# shorter than elsewhere.
kernel_vlans=yes
if ip -n "$client" link add link eth0 name probe type vlan id 1 2>/dev/null; then
  ip -n "$client" link del probe
else
  kernel_vlans=no
  [[ -c /dev/net/tun ]] || fail "this kernel has neither VLANs (8021q) nor /dev/net/tun"
  say "this kernel has no VLAN sub-interfaces; record/vlan_tap.py stands in for them"
fi
add_vlans() { # add_vlans NAMESPACE MAC
  local name=$1 mac=$2
  if [[ $kernel_vlans == yes ]]; then
    ip -n "$name" link add link eth0 name vlan100 type vlan id 100
    ip -n "$name" link add link eth0 name svlan200 type vlan proto 802.1ad id 200
    # It only carries the inner tag, and has nothing to say of its own.
    ip netns exec "$name" sh -c 'echo 1 >/proc/sys/net/ipv6/conf/svlan200/disable_ipv6'
    ip -n "$name" link set svlan200 up
    ip -n "$name" link add link svlan200 name qinq300 type vlan id 300
  else
    daemon "$name-vlan100" "$name" python3 "$here/record/vlan_tap.py" eth0 vlan100 0x8100:100
    daemon "$name-qinq300" "$name" python3 "$here/record/vlan_tap.py" eth0 qinq300 \
      0x88a8:200 0x8100:300
    wait_for "vlan100 in $name" ip -n "$name" link show vlan100
    wait_for "qinq300 in $name" ip -n "$name" link show qinq300
    ip -n "$name" link set vlan100 address "$mac"
    ip -n "$name" link set qinq300 address "$mac"
  fi
  ip -n "$name" link set vlan100 mtu 1496 up
  ip -n "$name" link set qinq300 mtu 1492 up
}
add_vlans "$client" 00:00:5e:00:53:01
add_vlans "$server" 00:00:5e:00:53:02

add_addresses() { # add_addresses NAMESPACE HOST
  ip -n "$1" address add "192.0.2.$2/24" dev eth0
  ip -n "$1" address add "2001:db8::$2/64" dev eth0
  ip -n "$1" address add "198.51.100.$2/24" dev vlan100
  ip -n "$1" address add "2001:db8:100::$2/64" dev vlan100
  ip -n "$1" address add "203.0.113.$2/24" dev qinq300
}
add_addresses "$client" 1
add_addresses "$server" 2
all_addresses_usable() { # duplicate address detection is over on both sides
  local tentative
  tentative=$(ip -n "$client" -6 address show tentative; ip -n "$server" -6 address show tentative)
  [[ -z $tentative ]]
}
wait_for "the end of duplicate address detection" all_addresses_usable

# ---- servers -----------------------------------------------------------------------------------

mkdir "$work/www"
for size in 1 64 200 700 1300 5000 20000 60000 150000; do
  head -c "$size" /dev/urandom >"$work/www/$size.bin"
done
daemon http-server "$server" \
  python3 -m http.server --directory "$work/www" --protocol HTTP/1.1 --bind :: 80

long_text() { printf '%*s' "$1" '' | tr ' ' "$2"; }
daemon dns-server "$server" \
  dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --user=root \
  --pid-file="$work/dnsmasq.pid" --local=/example/ --edns-packet-max=1232 \
  --host-record=www.example,192.0.2.2,2001:db8::2 --host-record=mail.example,192.0.2.3 \
  --cname=ftp.example,www.example --mx-host=example,mail.example,10 \
  --srv-host=_http._tcp.example,www.example,80 --txt-record=short.example,"v=spf1 -all" \
  --txt-record=middle.example,"$(long_text 200 m)" \
  --txt-record=long.example,"$(long_text 250 a)","$(long_text 250 b)","$(long_text 200 c)"
daemon echo-server "$server" ncat --listen --keep-open --exec /bin/cat 7

listens() { # listens --tcp|--udp PORT
  ip netns exec "$server" ss --no-header --listening --numeric "$1" "sport = :$2" | grep -q .
}
wait_for "the HTTP server" listens --tcp 80
wait_for "the DNS server" listens --udp 53
wait_for "the echo server" listens --tcp 7

# ---- clients: all at once, each at its own pace over some eight seconds, so that flows mix -------

next_port=5201
stream() { # stream NAME IPERF3-ARGUMENTS...: one iperf3 test with its own server
  local name=$1 port=$next_port
  shift
  next_port=$((next_port + 1))
  daemon "iperf3-server-$port" "$server" iperf3 --server --one-off --port "$port"
  wait_for "iperf3 on port $port" listens --tcp "$port"
  job "$name" at "$client" iperf3 --port "$port" "$@"
}

ask_web() { # ask_web HOST FILES...: one connection, the files one after the other
  local host=$1 file urls=()
  shift
  for file; do urls+=("http://$host/$file.bin" --output /dev/null); done
  ip netns exec "$client" curl --silent --show-error --fail --max-time 20 --globoff "${urls[@]}"
}
browse() {
  local round
  for round in 1 2 3 4 5 6; do
    ask_web 192.0.2.2 200 1300 5000 1 700
    ask_web '[2001:db8::2]' 64 5000 700
    ask_web 198.51.100.2 1300 20000
    ask_web 192.0.2.2 20000
    sleep 1
    if ((round % 3 == 0)); then
      ask_web 192.0.2.2 150000
      ask_web '[2001:db8::2]' 60000
      ask_web 203.0.113.2 60000
    fi
  done
}

resolve() {
  local round
  printf '%s\n' "www.example A" "www.example AAAA" "example MX" "_http._tcp.example SRV" \
    "short.example TXT" "middle.example TXT" "long.example TXT" "ftp.example A" \
    "nothing.example A" >"$work/queries"
  for round in 1 2 3 4 5 6 7 8; do
    ip netns exec "$client" dig @192.0.2.2 +tries=1 +time=5 -f "$work/queries"
    ip netns exec "$client" dig @2001:db8::2 +tries=1 +time=5 www.example AAAA long.example TXT
    ip netns exec "$client" dig @198.51.100.2 +tries=1 +time=5 -x 192.0.2.2
    sleep 0.7
  done
  ip netns exec "$client" dig @192.0.2.2 +tcp +tries=1 +time=5 long.example TXT
}

type_lines() { # short lines there and back, like a remote terminal
  local count line
  line=$(long_text 90 x)
  for ((count = 0; count < 170; ++count)); do
    printf '%.*s\n' $((count * 37 % 90)) "$line"
    sleep 0.03
  done | at "$client" ncat 192.0.2.2 7
}

probe_neighbours() { # hosts ask each other again and again whether they are still there
  # A probed entry stays in use. A deleted one can fail the connection that is asking for it.
  local round prefix
  probe() { # probe DEVICE PREFIX: a host that is not known yet is left to ordinary resolution
    ip -n "$client" neigh change "${2}2" dev "$1" nud probe || true
    ip -n "$server" neigh change "${2}1" dev "$1" nud probe || true
  }
  for ((round = 0; round < 9; ++round)); do
    sleep 0.8
    for prefix in 192.0.2. 2001:db8::; do probe eth0 "$prefix"; done
    probe vlan100 198.51.100.
    probe qinq300 203.0.113.
  done
}

knock_on_closed_doors() { # answers: a reset, an ICMP "port unreachable", for a missing host none
  local round
  for round in 1 2 3; do
    ! ip netns exec "$client" curl --silent --max-time 5 http://192.0.2.2:81/ || return 1
    ! ip netns exec "$client" dig @192.0.2.2 -p 9 +tries=1 +time=1 www.example A || return 1
    ! ip netns exec "$client" ping -n -q -c 1 -W 1 192.0.2.9 || return 1
    ! ip netns exec "$client" ping -n -q -c 1 -W 1 2001:db8::9 || return 1
  done
}

reach() { # reach NAME ADDRESS PAYLOAD COUNT
  job "$1" at "$client" ping -n -q -i 0.25 -w 30 -s "$3" -c "$4" "$2"
}

say "recording (some ten seconds)"
tcp=(--interval 0 --length 8K)
stream tcp-upload --client 192.0.2.2 "${tcp[@]}" --bytes 950K --bitrate 1150K
stream tcp-download --client 192.0.2.2 "${tcp[@]}" --bytes 500K --bitrate 650K --reverse
stream tcp-ipv6 --client 2001:db8::2 "${tcp[@]}" --bytes 300K --bitrate 400K
stream tcp-vlan --client 198.51.100.2 "${tcp[@]}" --bytes 300K --bitrate 400K
udp=(--interval 0 --udp)
stream udp-16 --client 192.0.2.2 "${udp[@]}" --length 16 --blockcount 550 --bitrate 10K
stream udp-64 --client 192.0.2.2 "${udp[@]}" --length 64 --blockcount 400 --bitrate 29K --reverse
stream udp-172 --client 192.0.2.2 "${udp[@]}" --length 172 --blockcount 300 --bitrate 55K
stream udp-400 --client 2001:db8::2 "${udp[@]}" --length 400 --blockcount 200 --bitrate 85K
stream udp-512-vlan --client 198.51.100.2 "${udp[@]}" --length 512 --blockcount 150 --bitrate 80K
stream udp-1000 --client 192.0.2.2 "${udp[@]}" --length 1000 --blockcount 200 --bitrate 210K
stream udp-1472 --client 192.0.2.2 "${udp[@]}" --length 1472 --blockcount 200 --bitrate 310K

job http browse
job dns resolve
job echo type_lines
job neighbours probe_neighbours
job closed knock_on_closed_doors
for size in 0 56 200 600 1472; do reach "ping-$size" 192.0.2.2 "$size" 25; done
for size in 56 600 1452; do reach "ping6-$size" 2001:db8::2 "$size" 20; done
reach ping-fragments 192.0.2.2 4000 6
reach ping6-fragments 2001:db8::2 3000 4
reach ping-vlan 198.51.100.2 56 20
reach ping-vlan-1468 198.51.100.2 1468 10
reach ping-qinq 203.0.113.2 56 20
reach ping-qinq-1464 203.0.113.2 1464 10

for entry in "${clients[@]}"; do
  wait "${entry%% *}" || { tail -n 5 "$work/${entry#* }.log" >&2; fail "${entry#* } failed"; }
done

# ---- from a recording to the file ----------------------------------------------------------------

kill -TERM "$tcpdump" 2>/dev/null ||
  { tail -n 5 "$work/tcpdump.log" >&2; fail "tcpdump ended before the programs did"; }
wait "$tcpdump" || { cat "$work/tcpdump.log" >&2; fail "tcpdump failed"; }
grep -q '^0 packets dropped by kernel' "$work/tcpdump.log" ||
  { cat "$work/tcpdump.log" >&2; fail "tcpdump lost packets; try again on a quieter machine"; }
python3 "$here/record/pad_frames.py" "$work/raw.pcap" "$work/padded.pcap"
python3 "$here/check_capture.py" --summary "$work/padded.pcap" ||
  fail "the recording does not pass check_capture.py; $output was left alone"

# Copied beside the target and renamed: the file is never half there.
cp "$work/padded.pcap" "$output.new"
chown --reference="$(dirname "$output")" "$output.new"
chmod 0644 "$output.new"
mv "$output.new" "$output"
say "wrote $output"
