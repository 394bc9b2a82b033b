#!/usr/bin/env bash
# ovn-lab.sh - a self-contained OVN/OVS lab for the gateway package.
#
#   ovn-lab.sh up [N_UDNS]      bring the lab up with N_UDNS primary UDNs (default 2)
#   ovn-lab.sh bare [N]         only Open vSwitch: br-ex, br-int and the patch ports N UDNs would have
#   ovn-lab.sh down             tear everything down (only what this lab started)
#   ovn-lab.sh reap PID         wait until that process is gone, then take the lab and the script's directory down
#   ovn-lab.sh status           processes, port counts, row counts (exit 0 = all up)
#   ovn-lab.sh env              print shell exports for the lab's sockets
#   ovn-lab.sh flows MODE       replace the flows of br-ex (and br-up1); MODE = normal | gate-off | gate-on | rest
#                               (rest: only what lies outside the ARP/NDP section, for another renderer beside it)
#   ovn-lab.sh render MODE [BRIDGE]   print that flow set
#   ovn-lab.sh pod NET          make the pod of one network (a lab brought up with OVN_LAB_PODS=0 has none)
#   ovn-lab.sh replace FILE [BRIDGE]  do what ovn-kubernetes does every 15 s: bundle replace-flows from FILE
#   ovn-lab.sh restart NAME     kill -9 and start again: ovs-vswitchd | ovn-controller | ovn-northd | ovsdb-nb | ovsdb-sb | ovsdb-ovs
#   ovn-lab.sh exec CMD...      run CMD with the lab's environment, in the node netns
#   ovn-lab.sh ping NET [DST] [ping args]   ping from the pod of NET (0 = default, i = UDN i)
#
# Everything lives under $OVN_LAB_DIR (default /tmp/ovn-lab). ovs-vswitchd runs in a
# network namespace of its own with the userspace datapath (datapath_type=netdev), so no
# kernel module is needed and no frame leaves the namespaces made here.
#
# Knobs (environment):
#   OVN_LAB_DIR        run directory                                  (/tmp/ovn-lab)
#   OVN_LAB_NODE       node name used in all OVN names                (node1)
#   OVN_LAB_VLAN       gateway VLAN id, 0 = untagged                  (0)
#   OVN_LAB_LOCALNET   number of secondary localnet UDNs on br-ex     (0)
#   OVN_LAB_UPLINK     number of UDNs on a separate bridge br-up1     (0)
#   OVN_LAB_UPSRC      source GR of br-up1 for "flows gate-on"        (u1)
#   OVN_LAB_PODS       1 = one pod netns per network, 0 = none        (1)
#   OVN_LAB_AGE        mac_binding_age_threshold of every GR, seconds (300)
set -u
set -o pipefail

LAB=${OVN_LAB_DIR:-/tmp/ovn-lab}
NODE=${OVN_LAB_NODE:-node1}
VLAN=${OVN_LAB_VLAN:-0}
LOCALNETS=${OVN_LAB_LOCALNET:-0}
UPLINKS=${OVN_LAB_UPLINK:-0}
PODS=${OVN_LAB_PODS:-1}
AGE=${OVN_LAB_AGE:-300}
BARE=0

RUN=$LAB/run LOG=$LAB/log DB=$LAB/db
NBSOCK=$RUN/nb.sock SBSOCK=$RUN/sb.sock OVSSOCK=$RUN/db.sock
TAG=ovnlab$(printf '%s' "$LAB" | cksum | cut -d' ' -f1 | cut -c1-6)
NSNODE=$TAG-node NSEXT=$TAG-ext NSUP=$TAG-upext

SHARED_MAC=06:38:d6:0b:4b:a7  NODE4=172.18.0.2 NODE6=fd00:18::2
EXT_MAC=06:38:d6:00:00:01     EXT4=172.18.0.1  EXT6=fd00:18::1
UP_MAC=06:38:d6:0b:4b:b8      UPNODE4=172.19.0.2 UPNODE6=fd00:19::2
UPEXT_MAC=06:38:d6:00:00:02   UPEXT4=172.19.0.1  UPEXT6=fd00:19::1
CTZONE=64000 COOKIE=0xdeff105

export OVS_RUNDIR=$RUN OVS_LOGDIR=$LOG OVS_DBDIR=$DB OVS_SYSCONFDIR=$LAB
export OVN_RUNDIR=$RUN OVN_LOGDIR=$LOG OVN_DBDIR=$DB
export OVN_NB_DB=unix:$NBSOCK OVN_SB_DB=unix:$SBSOCK

die()  { echo "ovn-lab: $*" >&2; exit 1; }
note() { echo "ovn-lab: $*"; }
vsctl() { ovs-vsctl --db="unix:$OVSSOCK" --timeout=60 "$@"; }
nbctl() { ovn-nbctl --timeout=120 "$@"; }
sbctl() { ovn-sbctl --timeout=60 "$@"; }
ofctl() { ovs-ofctl -O OpenFlow13 "$@"; }
nsx()  { ip netns exec "$NSNODE" "$@"; }
now()  { date +%s.%N; }

PIDFILES="ovn-controller ovn-northd ovs-vswitchd ovsdb-nb ovsdb-sb ovsdb-ovs"

# alive NAME: the pid in NAME.pid runs and its command line names this lab's directory
alive() {
    local pid
    pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 1
    [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] || return 1
    tr '\0' ' ' < "/proc/$pid/cmdline" | grep -qF -- "$RUN/"
}

stop_one() {
    local pid i
    alive "$1" || { rm -f "$RUN/$1.pid"; return 0; }
    pid=$(cat "$RUN/$1.pid")
    kill "$pid" 2>/dev/null
    for i in $(seq 1 50); do
        [ -d "/proc/$pid" ] || break
        sleep 0.1
    done
    [ -d "/proc/$pid" ] && kill -9 "$pid" 2>/dev/null
    rm -f "$RUN/$1.pid"
}

# ---------------------------------------------------------------- names
# Networks are addressed by index: 0 = cluster default network, 1..N = UDNs on br-ex,
# u1..uM = UDNs on br-up1.
net_prefix() { case $1 in 0) echo "" ;; u*) echo "up${1#u}_" ;; *) echo "net$1_" ;; esac; }
gr_of()      { echo "GR_$(net_prefix "$1")$NODE"; }
ext_ls_of()  { echo "ext_$(net_prefix "$1")$NODE"; }
bridge_of()  { case $1 in u*) echo br-up1 ;; *) echo br-ex ;; esac; }
lport_of()   { echo "$(bridge_of "$1")_$(net_prefix "$1")$NODE"; }
patch_of()   { echo "patch-$(lport_of "$1")-to-br-int"; }
pod_ns_of()  { echo "$TAG-pod$1"; }

# idx NET: a number unique over both kinds of network (uplink UDNs start at 4001)
idx() { case $1 in u*) echo $((4000 + ${1#u})) ;; *) echo "$1" ;; esac; }
pod4net() { local i; i=$(idx "$1"); echo "10.$((100 + i / 250)).$((i % 250))"; }
pod6net() { printf 'fd10:%x:' "$(($(idx "$1") + 1))"; }
podmac()  { local i; i=$(idx "$1"); printf '0a:58:0a:64:%02x:%02x' $((i / 256)) $((i % 256)); }
gwmac()   { local i; i=$(idx "$1"); printf '0a:58:0a:65:%02x:%02x' $((i / 256)) $((i % 256)); }
ctmark()  { printf '0x%x' $(($(idx "$1") + 1)); }
masq4()   { local k=$((10 + 2 * $(idx "$1") - 1)); echo "169.254.$((k / 256)).$((k % 256))"; }
masq6()   { printf 'fd69::%x' $((10 + 2 * $(idx "$1") - 1)); }

# ---------------------------------------------------------------- processes
start_db() { # NAME SCHEMA SOCK DBNAME
    local name=$1 schema=$2 sock=$3 file=$DB/$1.db
    alive "$name" && return 0
    [ -e "$file" ] || ovsdb-tool create "$file" "$schema" || die "cannot create $file"
    rm -f "$sock"
    ovsdb-server -vconsole:off --detach --no-chdir --pidfile="$RUN/$name.pid" \
        --log-file="$LOG/$name.log" --unixctl="$RUN/$name.ctl" --remote="punix:$sock" "$file" \
        || die "ovsdb-server $name"
}

start_daemons() {
    start_db ovsdb-ovs /usr/share/openvswitch/vswitch.ovsschema "$OVSSOCK"
    vsctl --no-wait init || die "ovs init"
    if [ "$BARE" = 0 ]; then
        start_db ovsdb-nb  /usr/share/ovn/ovn-nb.ovsschema "$NBSOCK"
        start_db ovsdb-sb  /usr/share/ovn/ovn-sb.ovsschema "$SBSOCK"
        vsctl --no-wait set Open_vSwitch . external_ids:system-id="chassis-$NODE" \
            external_ids:ovn-remote="unix:$SBSOCK" external_ids:ovn-encap-type=geneve \
            external_ids:ovn-encap-ip=127.0.0.1 external_ids:ovn-monitor-all=true \
            external_ids:ovn-bridge-datapath-type=netdev || die "ovs init"
        nbctl init; sbctl init
        nbctl set NB_Global . name="$NODE" options:northd_probe_interval=0
    fi
    alive ovs-vswitchd || nsx ovs-vswitchd "unix:$OVSSOCK" -vconsole:off --detach --no-chdir --disable-system \
        --pidfile="$RUN/ovs-vswitchd.pid" --log-file="$LOG/ovs-vswitchd.log" \
        --unixctl="$RUN/ovs-vswitchd.ctl" || die "ovs-vswitchd"
    [ "$BARE" = 0 ] || return 0
    alive ovn-northd || ovn-northd -vconsole:off --detach --no-chdir --pidfile="$RUN/ovn-northd.pid" \
        --log-file="$LOG/ovn-northd.log" --unixctl="$RUN/ovn-northd.ctl" \
        --ovnnb-db="$OVN_NB_DB" --ovnsb-db="$OVN_SB_DB" || die "ovn-northd"
}

start_controller() {
    alive ovn-controller || nsx ovn-controller "unix:$OVSSOCK" -vconsole:off --detach --no-chdir \
        --pidfile="$RUN/ovn-controller.pid" --log-file="$LOG/ovn-controller.log" \
        || die "ovn-controller"
    # ovn-controller has no --unixctl option here; give its socket a stable name
    ln -sfn "ovn-controller.$(cat "$RUN/ovn-controller.pid").ctl" "$RUN/ovn-controller.ctl"
}

# ---------------------------------------------------------------- namespaces and bridges
add_ns() {
    ip netns list | grep -qw -- "$1" && return 0
    ip netns add "$1" || die "netns $1"
    ip netns exec "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    ip -n "$1" link set lo up
}

# ext_host NS UPLINK MAC IP4 IP6: a machine on the physical network of a bridge, behind the
# bridge's uplink port. With a gateway VLAN an access switch (br-sw-UPLINK, its host port tagged)
# stands between them, since not every kernel has VLAN devices.
ext_host() {
    local ns=$1 port=$2 mac=$3 ip4=$4 ip6=$5 access=$2
    add_ns "$ns"
    [ "$VLAN" = 0 ] || access=$port-acc
    if ! ip -n "$NSNODE" link show "$access" >/dev/null 2>&1; then
        ip -n "$NSNODE" link add "$access" type veth peer name eth0 netns "$ns" || die "veth $access"
        ip netns exec "$ns" ethtool -K eth0 tx off >/dev/null 2>&1
    fi
    ip -n "$NSNODE" link set "$access" up
    if [ "$VLAN" != 0 ]; then
        ip -n "$NSNODE" link show "$port" >/dev/null 2>&1 ||
            ip -n "$NSNODE" link add "$port" type veth peer name "$port-sw" || die "veth $port"
        ip -n "$NSNODE" link set "$port" up
        ip -n "$NSNODE" link set "$port-sw" up
        vsctl --may-exist add-br "br-sw-$port" -- set bridge "br-sw-$port" datapath_type=netdev \
            -- --may-exist add-port "br-sw-$port" "$access" tag="$VLAN" \
            -- --may-exist add-port "br-sw-$port" "$port-sw" || die "br-sw-$port"
    fi
    ip -n "$ns" link set eth0 address "$mac"
    ip -n "$ns" link set eth0 up
    ip -n "$ns" addr replace "$ip4/16" dev eth0
    ip -n "$ns" addr replace "$ip6/64" dev eth0 nodad
}

# bridge NAME MAC IP4 IP6 PHYSPORT
bridge() {
    local br=$1 mac=$2 ip4=$3 ip6=$4 phys=$5 tag=()
    [ "$VLAN" != 0 ] && tag=(-- set port "$br" tag="$VLAN")
    vsctl --may-exist add-br "$br" -- set bridge "$br" datapath_type=netdev \
        other_config:hwaddr="$mac" external_ids:bridge-id="$br" external_ids:bridge-uplink="$phys" \
        -- --may-exist add-port "$br" "$phys" "${tag[@]}" || die "bridge $br"
    nsx sysctl -qw "net.ipv6.conf.$br.disable_ipv6=0"
    ip -n "$NSNODE" link set "$br" up
    ip -n "$NSNODE" addr replace "$ip4/16" dev "$br"
    ip -n "$NSNODE" addr replace "$ip6/64" dev "$br" nodad
    ovs-appctl -t "$RUN/ovs-vswitchd.ctl" fdb/add "$br" "$br" "$VLAN" "$mac" >/dev/null 2>&1
}

# ---------------------------------------------------------------- OVN topology
# nb_net NET: ovn-nbctl commands (one token a line, '--' before each) for one network
nb_net() {
    local n=$1 gr ls els lp rp mac n4 n6 e4 e6 phys p4 p6 udn=0
    gr=$(gr_of "$n") els=$(ext_ls_of "$n") lp=$(lport_of "$n") rp=rtoe-$gr
    ls=$(net_prefix "$n")$NODE p4=$(pod4net "$n") p6=$(pod6net "$n")
    [ "$n" = 0 ] || udn=1
    case $n in
        u*) mac=$UP_MAC n4=$UPNODE4 n6=$UPNODE6 e4=$UPEXT4 e6=$UPEXT6 phys=up${n#u} ;;
        *)  mac=$SHARED_MAC n4=$NODE4 n6=$NODE6 e4=$EXT4 e6=$EXT6 phys=physnet ;;
    esac
    local nets=("$n4/16" "$n6/64") snat4=$n4 snat6=$n6
    if [ $udn = 1 ]; then
        snat4=$(masq4 "$n") snat6=$(masq6 "$n")
        nets+=("$snat4/32" "$snat6/128")
    fi
    printf '%s\n' -- --may-exist lr-add "$gr" \
        -- set logical_router "$gr" options:chassis="chassis-$NODE" \
           options:always_learn_from_arp_request=false options:dynamic_neigh_routers=false \
           options:mac_binding_age_threshold="$AGE" \
        -- --may-exist lrp-add "$gr" "$rp" "$mac" "${nets[@]}" \
        -- --may-exist ls-add "$els" \
        -- --may-exist lsp-add "$els" "$lp" \
        -- lsp-set-addresses "$lp" unknown -- lsp-set-type "$lp" localnet \
        -- lsp-set-options "$lp" network_name="$phys" \
        -- --may-exist lsp-add "$els" "etor-$gr" -- lsp-set-type "etor-$gr" router \
        -- lsp-set-addresses "etor-$gr" "$mac" \
        -- --may-exist lr-route-add "$gr" 0.0.0.0/0 "$e4" "$rp" \
        -- --may-exist lr-route-add "$gr" ::/0 "$e6" "$rp" \
        -- --may-exist ls-add "$ls" \
        -- --may-exist lrp-add "$gr" "rtos-$gr" "$(gwmac "$n")" "$p4.1/24" "$p6:1/64" \
        -- --may-exist lsp-add "$ls" "stor-$gr" -- lsp-set-type "stor-$gr" router \
        -- lsp-set-addresses "stor-$gr" router -- lsp-set-options "stor-$gr" router-port="rtos-$gr" \
        -- --may-exist lsp-add "$ls" "pod-$ls" \
        -- lsp-set-addresses "pod-$ls" "$(podmac "$n") $p4.2 $p6:2" \
        -- --may-exist lr-nat-add "$gr" snat "$snat4" "$p4.0/24" \
        -- --may-exist lr-nat-add "$gr" snat "$snat6" "$p6:/64"
    if [ $udn = 1 ]; then
        printf '%s\n' -- lsp-set-options "etor-$gr" router-port="$rp" \
            -- set logical_router_port "$rp" external_ids:k8s.ovn.org/network="$(net_prefix "$n" | tr -d _)" \
            -- set logical_router "$gr" options:disable_garp_rarp=true
    else
        printf '%s\n' -- lsp-set-options "etor-$gr" router-port="$rp" nat-addresses=router exclude-lb-vips-from-garp=true \
            -- set logical_router_port "$rp" external_ids:gateway-physical-ip=yes
    fi
    [ "$VLAN" = 0 ] || printf '%s\n' -- set logical_switch_port "$lp" tag_request="$VLAN"
    # the gateway's own masquerade rows: dummy next hop on every GR, host masquerade on UDN GRs
    smb_masq "$rp" 169.254.0.4 0a:58:a9:fe:00:04
    smb_masq "$rp" fd69::4 0a:58:00:00:69:04
    if [ $udn = 1 ]; then
        smb_masq "$rp" 169.254.0.2 0a:58:a9:fe:00:02
        smb_masq "$rp" fd69::2 0a:58:00:00:69:02
    fi
}
smb_masq() {
    grep -qxF -- "$1,$2" "$LAB/smb.have" 2>/dev/null ||
        printf '%s\n' -- create Static_MAC_Binding logical_port="$1" ip="\"$2\"" mac="\"$3\"" override_dynamic_mac=true
}

nb_localnet() {
    local l=$1
    printf '%s\n' -- --may-exist ls-add "lnet${l}_ovn_localnet_switch" \
        -- --may-exist lsp-add "lnet${l}_ovn_localnet_switch" "lnet${l}_ovn_localnet_port" \
        -- lsp-set-addresses "lnet${l}_ovn_localnet_port" unknown \
        -- lsp-set-type "lnet${l}_ovn_localnet_port" localnet \
        -- lsp-set-options "lnet${l}_ovn_localnet_port" network_name="lnet$l" \
        -- --may-exist lsp-add "lnet${l}_ovn_localnet_switch" "vm-lnet$l" \
        -- lsp-set-addresses "vm-lnet$l" "0a:58:ac:12:00:$(printf %02x $((50 + l))) 172.18.0.$((50 + l)) fd00:18::$((50 + l))" unknown
}

run_nb() { # stdin: tokens, one a line, starting with '--'
    local a
    mapfile -t a
    [ ${#a[@]} -gt 1 ] || return 0
    nbctl "${a[@]:1}" >/dev/null || die "ovn-nbctl failed"
}

# vif NS PORT LSP MAC IP4/len GW4 IP6/len GW6
vif_ns() {
    local ns=$1 port=$2 mac=$3 ip4=$4 gw4=$5 ip6=$6 gw6=$7
    ip netns list | grep -qw -- "$ns" && return 0
    add_ns "$ns"
    ip -n "$NSNODE" link add "$port" type veth peer name eth0 netns "$ns" || die "veth $port"
    ip -n "$NSNODE" link set "$port" up
    ip -n "$ns" -batch - <<B
link set eth0 address $mac
link set eth0 up
addr add $ip4 dev eth0
addr add $ip6 dev eth0 nodad
B
    [ -z "$gw4" ] || ip -n "$ns" route replace default via "$gw4" dev eth0
    [ -z "$gw6" ] || ip -n "$ns" -6 route replace default via "$gw6" dev eth0
    ip netns exec "$ns" ethtool -K eth0 tx off >/dev/null 2>&1
}

all_nets() { local i; for i in $(seq 0 "$1"); do echo "$i"; done; for i in $(seq 1 "$UPLINKS"); do echo "u$i"; done; }

wait_patches() {
    local want=$1 have i
    for i in $(seq 1 1200); do
        have=$(vsctl --bare --columns=name find interface type=patch 'ofport>0' | grep -c -- '-to-br-int$')
        [ "$have" -ge "$want" ] && return 0
        sleep 0.1
    done
    die "only $have of $want patch ports appeared (see $LOG/ovn-controller.log)"
}

need() {
    local c
    for c in ovsdb-server ovs-vswitchd ovs-vsctl ovs-ofctl ovn-northd ovn-controller ovn-nbctl ovn-sbctl ip ethtool ping; do
        command -v "$c" >/dev/null || die "no $c: apt-get install openvswitch-switch ovn-central ovn-host iproute2 ethtool iputils-ping"
    done
}

# prepare: the run directory and the node's namespace
prepare() {
    mkdir -p "$RUN" "$LOG" "$DB" || die "cannot make $LAB"
    [ ${#OVSSOCK} -lt 90 ] || die "OVN_LAB_DIR is too long for a unix socket path"
    add_ns "$NSNODE"
    # the userspace datapath only taps its ports: the kernel also sees their frames, so it
    # must answer ARP/NDP for the node's addresses on the bridge interfaces alone
    nsx sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.default.arp_ignore=1 \
        net.ipv6.conf.default.disable_ipv6=1
}

# bare N: the switch alone, with the patch ports OVN would make for the default network and N UDNs
bare() {
    local n=${1:-2} i p args=()
    case $n in ''|*[!0-9]*) die "N must be a number" ;; esac
    need
    [ ! -e "$LAB/params" ] || die "there is a lab in $LAB: take it down first"
    BARE=1
    prepare
    start_daemons
    ext_host "$NSEXT" phys0 "$EXT_MAC" "$EXT4" "$EXT6"
    vsctl --may-exist add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure || die br-int
    bridge br-ex "$SHARED_MAC" "$NODE4" "$NODE6" phys0
    for i in $(seq 0 "$n"); do
        p=patch-br-ex_net${i}_$NODE-to-br-int # patch_of, without a process for each
        [ "$i" != 0 ] || p=patch-br-ex_$NODE-to-br-int
        args+=(-- add-port br-ex "$p" -- set interface "$p" type=patch "options:peer=$p-peer"
               -- add-port br-int "$p-peer" -- set interface "$p-peer" type=patch "options:peer=$p")
        if [ $((i % 50)) = 49 ]; then vsctl "${args[@]:1}" || die patch; args=(); fi
    done
    [ ${#args[@]} = 0 ] || vsctl "${args[@]:1}" || die patch
    printf '%s\n' "$n" > "$LAB/n_udns"
    save_params
    note "bare, with $n UDNs"
}

up() {
    local n=${1:-2} t0 t1 i net maps batch
    case $n in ''|*[!0-9]*) die "N_UDNS must be a number" ;; esac
    [ "$n" -le 2000 ] || die "at most 2000 UDNs"
    need
    # a lab that exists only grows: what it has stays, and its node name, VLAN and pods are fixed
    if [ -r "$LAB/params" ]; then
        local want="$NODE $VLAN $PODS" l=$LOCALNETS u=$UPLINKS have
        load_params
        [ "$want" = "$NODE $VLAN $PODS" ] || die "the lab in $LAB has another OVN_LAB_NODE/VLAN/PODS: take it down first"
        [ "$l" -gt "$LOCALNETS" ] && LOCALNETS=$l
        [ "$u" -gt "$UPLINKS" ] && UPLINKS=$u
        have=$(cat "$LAB/n_udns")
        [ "$have" -gt "$n" ] && n=$have
    fi
    t0=$(now)
    prepare
    start_daemons
    ext_host "$NSEXT" phys0 "$EXT_MAC" "$EXT4" "$EXT6"
    vsctl --may-exist add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure \
        other_config:disable-in-band=true || die br-int
    bridge br-ex "$SHARED_MAC" "$NODE4" "$NODE6" phys0
    maps=physnet:br-ex
    for i in $(seq 1 "$LOCALNETS"); do maps+=",lnet$i:br-ex"; done
    if [ "$UPLINKS" -gt 0 ]; then
        ext_host "$NSUP" phys1 "$UPEXT_MAC" "$UPEXT4" "$UPEXT6"
        bridge br-up1 "$UP_MAC" "$UPNODE4" "$UPNODE6" phys1
        for i in $(seq 1 "$UPLINKS"); do maps+=",up$i:br-up1"; done
    fi
    vsctl set Open_vSwitch . external_ids:ovn-bridge-mappings="$maps"
    t1=$(now); note "base up in $(awk "BEGIN{printf \"%.2f\", $t1-$t0}") s"

    nbctl --format=csv --no-headings --data=bare --columns=logical_port,ip list Static_MAC_Binding > "$LAB/smb.have"
    local nets; nets=$(all_nets "$n")
    batch=0
    { for net in $nets; do
        nb_net "$net"; batch=$((batch + 1))
        [ $((batch % 40)) = 0 ] && echo __FLUSH__
      done
      for i in $(seq 1 "$LOCALNETS"); do nb_localnet "$i"; done; } > "$LAB/nb.cmds"
    awk -v p="$LAB/nb.part." 'BEGIN{k=0} /^__FLUSH__$/{close(p k); k++; next} {print > (p k)}' "$LAB/nb.cmds"
    for i in "$LAB"/nb.part.*; do run_nb < "$i"; rm -f "$i"; done
    t1=$(now); note "NB written at $(awk "BEGIN{printf \"%.2f\", $t1-$t0}") s"

    if [ "$PODS" = 1 ]; then
        local args=() cnt=0 port ls
        for net in $nets; do
            ls=$(net_prefix "$net")$NODE port=pv$net
            vif_ns "$(pod_ns_of "$net")" "$port" "$(podmac "$net")" "$(pod4net "$net").2/24" \
                "$(pod4net "$net").1" "$(pod6net "$net"):2/64" "$(pod6net "$net"):1"
            args+=(-- --may-exist add-port br-int "$port" -- set interface "$port" external_ids:iface-id="pod-$ls")
            cnt=$((cnt + 1))
            if [ $((cnt % 50)) = 0 ]; then vsctl "${args[@]:1}" || die vif; args=(); fi
        done
        [ ${#args[@]} = 0 ] || vsctl "${args[@]:1}" || die vif
    fi
    for i in $(seq 1 "$LOCALNETS"); do
        vif_ns "$TAG-vm$i" "lv$i" "0a:58:ac:12:00:$(printf %02x $((50 + i)))" "172.18.0.$((50 + i))/16" "" "fd00:18::$((50 + i))/64" ""
        vsctl --may-exist add-port br-int "lv$i" -- set interface "lv$i" external_ids:iface-id="vm-lnet$i"
    done
    t1=$(now); note "VIFs made at $(awk "BEGIN{printf \"%.2f\", $t1-$t0}") s"

    start_controller
    wait_patches $((n + 1 + UPLINKS + LOCALNETS))
    nbctl --wait=hv sync || die "no --wait=hv"
    printf '%s\n' "$n" > "$LAB/n_udns"
    save_params
    t1=$(now); note "up with $n UDNs in $(awk "BEGIN{printf \"%.2f\", $t1-$t0}") s"
}

save_params() {
    printf 'NODE=%q VLAN=%q LOCALNETS=%q UPLINKS=%q PODS=%q BARE=%q\n' \
        "$NODE" "$VLAN" "$LOCALNETS" "$UPLINKS" "$PODS" "$BARE" > "$LAB/params"
}

load_params() {
    # shellcheck source=/dev/null
    [ -r "$LAB/params" ] && . "$LAB/params"
    return 0
}

down() {
    local p ns left=0
    load_params
    for p in $PIDFILES; do stop_one "$p"; done
    for ns in $(ip netns list | awk '{print $1}' | grep -- "^$TAG-"); do
        ip netns pids "$ns" | while read -r p; do kill "$p" 2>/dev/null; done
        ip netns del "$ns" || left=1
    done
    case $LAB in ''|/|/tmp|/root|/home) die "refusing to remove $LAB" ;; esac
    rm -rf "$RUN" "$DB" "$LAB"/nb.cmds "$LAB"/flows.* "$LAB"/n_udns "$LAB"/params "$LAB"/smb.have
    [ "${OVN_LAB_KEEP_LOGS:-0}" = 1 ] || rm -rf "$LOG"
    rmdir "$LAB" 2>/dev/null
    [ $left = 0 ] || die "a namespace could not be removed"
    note "down"
}

status() {
    local p bad=0 t
    load_params
    for p in $PIDFILES; do
        if alive "$p"; then echo "$p: up (pid $(cat "$RUN/$p.pid"))"; else echo "$p: down"; bad=1; fi
    done
    [ $bad = 0 ] || return 1
    echo "UDNs: $(cat "$LAB/n_udns" 2>/dev/null || echo '?')  (uplink $UPLINKS, localnet $LOCALNETS, vlan $VLAN)"
    echo "namespaces: $(ip netns list | grep -c -- "^$TAG-") named $TAG-*"
    echo "br-ex patch ports: $(vsctl list-ports br-ex | grep -c '^patch-')"
    echo "br-ex flows: $(ofctl dump-flows "unix:$RUN/br-ex.mgmt" 2>/dev/null | grep -c actions)  br-int flows: $(ofctl dump-flows "unix:$RUN/br-int.mgmt" 2>/dev/null | grep -c actions)"
    for t in MAC_Binding Static_MAC_Binding; do
        echo "SB $t rows: $(sbctl --bare --columns=_uuid list $t | grep -c .)"
    done
    echo "NB Static_MAC_Binding rows: $(nbctl --bare --columns=_uuid list Static_MAC_Binding | grep -c .)"
    echo "'resubmit' lines in ovs-vswitchd.log: $(grep -ci resubmit "$LOG/ovs-vswitchd.log")"
}

print_env() {
    load_params
    cat <<E
export OVN_LAB_DIR=$LAB OVN_NB_DB=$OVN_NB_DB OVN_SB_DB=$OVN_SB_DB OVS_DB=unix:$OVSSOCK
export OVS_RUNDIR=$RUN OVN_RUNDIR=$RUN OVS_LOGDIR=$LOG OVN_LOGDIR=$LOG OVS_DBDIR=$DB OVN_DBDIR=$DB
export OVN_LAB_NSNODE=$NSNODE OVN_LAB_NSEXT=$NSEXT OVN_LAB_PODNS=$TAG-pod
export BR_EX=unix:$RUN/br-ex.mgmt BR_INT=unix:$RUN/br-int.mgmt
E
}

ofport() { vsctl get interface "$1" ofport; }

# outputs PORT...: output actions in port order, each with its comma
outputs() { [ $# = 0 ] || printf '%s\n' "$@" | sort -n | sed 's/.*/output:&,/' | tr -d '\n'; }

# render MODE BRIDGE: the reference flow set of br-ex or br-up1 (written from the enhancement's
# text). On br-up1 the source GR is OVN_LAB_UPSRC (default u1); there is no default network.
render() {
    local mode=$1 br=${2:-br-ex} n net src phys mac n4 n6 sub4 sub6 all cudn p m f s i vl="" strip="" nets ing ports=() udns=()
    n=$(cat "$LAB/n_udns")
    if [ "$mode" = rest ]; then
        render gate-on "$br" | grep -v 'table=1' | grep -E 'priority=(99|[1-9][0-9][0-9]),'
        return
    fi
    echo "priority=0,table=0,actions=NORMAL"
    [ "$mode" = normal ] && return
    if [ "$VLAN" != 0 ]; then vl="dl_vlan=$VLAN," strip="strip_vlan,"; fi
    if [ "$br" = br-ex ]; then
        mac=$SHARED_MAC n4=$NODE4 n6=$NODE6 sub4=172.18.0.0/16 sub6=fd00:18::/64 phys=$(ofport phys0) src=0
        nets=$(seq 0 "$n")
    else
        mac=$UP_MAC n4=$UPNODE4 n6=$UPNODE6 sub4=172.19.0.0/16 sub6=fd00:19::/64 phys=$(ofport phys1) src=${OVN_LAB_UPSRC:-u1}
        nets=$(for i in $(seq 1 "$UPLINKS"); do echo "u$i"; done)
    fi
    declare -A of
    while IFS=, read -r p m; do of[$p]=$m; done < <(vsctl --format=csv --no-headings --data=bare --columns=name,ofport find interface type=patch)
    src=${of[$(patch_of "$src")]}
    for net in $nets; do
        p=${of[$(patch_of "$net")]}
        ports+=("$p"); [ "$net" = 0 ] || udns+=("$p")
        echo "cookie=$COOKIE,priority=10,table=0,in_port=$p,dl_src=$mac,actions=NORMAL"
        echo "cookie=$COOKIE,priority=9,table=0,in_port=$p,actions=drop"
        m=$(ctmark "$net")
        if [ "$net" = 0 ]; then
            echo "cookie=$COOKIE,priority=100,in_port=$p,dl_src=$mac,ip,actions=ct(commit,zone=$CTZONE,exec(set_field:$m->ct_mark)),output:$phys"
            echo "cookie=$COOKIE,priority=100,in_port=$p,dl_src=$mac,ipv6,actions=ct(commit,zone=$CTZONE,exec(set_field:$m->ct_mark)),output:$phys"
        else
            echo "cookie=$COOKIE,priority=100,in_port=$p,dl_src=$mac,ip,ip_src=$(masq4 "$net"),actions=ct(commit,zone=$CTZONE,nat(src=$n4),exec(set_field:$m->ct_mark)),output:$phys"
            echo "cookie=$COOKIE,priority=100,in_port=$p,dl_src=$mac,ipv6,ipv6_src=$(masq6 "$net"),actions=ct(commit,zone=$CTZONE,nat(src=$n6),exec(set_field:$m->ct_mark)),output:$phys"
        fi
        for f in ip ipv6; do for s in est rel; do
            echo "cookie=$COOKIE,priority=100,table=1,$f,ct_state=+trk+$s,ct_mark=$m,actions=output:$p"
        done; done
    done
    all=$(outputs "${ports[@]}") cudn=$(outputs "${udns[@]}")
    for f in ip ipv6; do
        echo "cookie=$COOKIE,priority=50,$f,dl_dst=$mac,actions=ct(zone=$CTZONE,nat,table=1)"
    done
    if [ "$br" = br-ex ]; then
        # host-subnet traffic of the default network and the host: NORMAL, to reach localnet ports too
        for p in "$src" LOCAL; do
            m=0x1; [ "$p" = LOCAL ] && m=0xffff
            echo "cookie=$COOKIE,priority=102,in_port=$p,dl_src=$mac,ip,ip_dst=$sub4,actions=ct(commit,zone=$CTZONE,exec(set_field:$m->ct_mark)),NORMAL"
            echo "cookie=$COOKIE,priority=102,in_port=$p,dl_src=$mac,ipv6,ipv6_dst=$sub6,actions=ct(commit,zone=$CTZONE,exec(set_field:$m->ct_mark)),NORMAL"
        done
        # NDP from the default GR must not be caught by the two ipv6 flows above
        for m in 135 136; do echo "cookie=$COOKIE,priority=103,in_port=$src,dl_src=$mac,icmp6,icmpv6_type=$m,actions=NORMAL"; done
    fi
    echo "cookie=$COOKIE,priority=10,table=1,${vl}dl_dst=$mac,actions=${strip}output:LOCAL"
    echo "cookie=$COOKIE,priority=0,table=1,actions=NORMAL"
    if [ "$mode" = gate-off ]; then
        echo "cookie=$COOKIE,priority=10,table=0,${vl}dl_dst=$mac,actions=${all}NORMAL"
        if [ "$br" = br-ex ]; then
            echo "cookie=$COOKIE,priority=12,table=0,${vl}arp,arp_op=1,arp_tpa=$n4,actions=output:$src,NORMAL"
            echo "cookie=$COOKIE,priority=12,table=0,${vl}icmp6,icmpv6_type=135,nd_target=$n6,actions=output:$src,NORMAL"
            if [ -n "$cudn" ]; then
                echo "cookie=$COOKIE,priority=11,table=0,in_port=$phys,${vl}dl_dst=ff:ff:ff:ff:ff:ff,arp,actions=${all}NORMAL"
                echo "cookie=$COOKIE,priority=11,table=0,in_port=$phys,${vl}dl_dst=33:33:00:00:00:01,icmp6,icmpv6_type=136,actions=${all}NORMAL"
            fi
        fi
        for m in 134 136; do echo "cookie=$COOKIE,priority=14,table=1,icmp6,icmpv6_type=$m,actions=${cudn}FLOOD"; done
        return
    fi
    ing=("$phys")
    [ "$br" = br-ex ] && for i in $(seq 1 "$LOCALNETS"); do ing+=("${of[patch-lnet${i}_ovn_localnet_port-to-br-int]}"); done
    for i in "${ing[@]}"; do
        # no strip_vlan before NORMAL: LOCAL is an access port of the gateway VLAN, so an untagged
        # frame would be switched in VLAN 0 and never reach it
        echo "cookie=$COOKIE,priority=52,table=0,in_port=$i,${vl}dl_dst=$mac,arp,actions=output:$src,NORMAL"
        for m in 134 135 136; do
            echo "cookie=$COOKIE,priority=52,table=0,in_port=$i,${vl}dl_dst=$mac,icmp6,icmpv6_type=$m,actions=output:$src,NORMAL"
        done
    done
}

# set_noflood MODE BRIDGE NETS...: NO_FLOOD on every GR patch port but the source's.
# It is an OpenFlow 1.0 port bit: with -O OpenFlow13 mod-port exits 0 and changes nothing.
set_noflood() {
    local mode=$1 br=$2 net of want; shift 2
    for net in "$@"; do
        of=$(ofport "$(patch_of "$net")")
        want=no-flood
        case $mode/$br/$net in normal/*|*/*/0|gate-off/br-up1/*|gate-on/br-up1/"${OVN_LAB_UPSRC:-u1}") want=flood ;; esac
        ovs-ofctl mod-port "unix:$RUN/$br.mgmt" "$of" $want
    done
}

flows() {
    local mode=${1:-} n i
    case $mode in normal|gate-off|gate-on|rest) ;; *) die "flows normal|gate-off|gate-on|rest" ;; esac
    load_params
    n=$(cat "$LAB/n_udns") || die "not up"
    render "$mode" br-ex > "$LAB/flows.$mode"
    ofctl --bundle replace-flows "unix:$RUN/br-ex.mgmt" "$LAB/flows.$mode" || die "replace-flows"
    # shellcheck disable=SC2046  # one argument a network
    [ "$mode" = rest ] || set_noflood "$mode" br-ex $(seq 1 "$n")
    note "br-ex flows: $mode ($(wc -l < "$LAB/flows.$mode") flows)"
    if [ "$UPLINKS" -gt 0 ]; then
        render "$mode" br-up1 > "$LAB/flows.up.$mode"
        ofctl --bundle replace-flows "unix:$RUN/br-up1.mgmt" "$LAB/flows.up.$mode" || die "replace-flows br-up1"
        # shellcheck disable=SC2046  # one argument a network
        [ "$mode" = rest ] || set_noflood "$mode" br-up1 $(seq -f 'u%g' 1 "$UPLINKS")
        note "br-up1 flows: $mode ($(wc -l < "$LAB/flows.up.$mode") flows)"
    fi
}

# reap PID: for a test that is killed or times out, and so cannot clean up itself
reap() {
    while [ -d "/proc/$1" ]; do sleep 1; done
    down
    case $(dirname "$0") in # a test's own copy of this script, never a source tree
        */ovn-lab-[0-9]*-[0-9]*) rm -rf -- "$(dirname "$0")" ;;
    esac
}

# pod NET: the pod of one network, if it is not there
pod() {
    local port=pv$1
    load_params
    vif_ns "$(pod_ns_of "$1")" "$port" "$(podmac "$1")" "$(pod4net "$1").2/24" \
        "$(pod4net "$1").1" "$(pod6net "$1"):2/64" "$(pod6net "$1"):1"
    vsctl --may-exist add-port br-int "$port" \
        -- set interface "$port" external_ids:iface-id="pod-$(net_prefix "$1")$NODE" || die vif
    nbctl --wait=hv sync || die "no --wait=hv"
}

# replace FILE [BRIDGE]: what a stock ovn-kubernetes node process does on request and every 15 s
replace() {
    ofctl --bundle replace-flows "unix:$RUN/${2:-br-ex}.mgmt" "$1" || die "replace-flows"
}

# restart NAME: as after a crash. The userspace datapath's bridge interfaces are new then, and
# with them the node's addresses, which the node's own network setup would give back.
restart() {
    load_params
    case " $PIDFILES " in *" $1 "*) ;; *) die "restart one of: $PIDFILES" ;; esac
    kill_one "$1"
    start_daemons
    if [ "$1" = ovs-vswitchd ]; then
        bridge br-ex "$SHARED_MAC" "$NODE4" "$NODE6" phys0
        [ "$UPLINKS" = 0 ] || bridge br-up1 "$UP_MAC" "$UPNODE4" "$UPNODE6" phys1
    fi
    [ "$BARE" = 1 ] || start_controller
}

kill_one() {
    local pid
    alive "$1" || return 0
    pid=$(cat "$RUN/$1.pid")
    kill -9 "$pid"
    while [ -d "/proc/$pid" ]; do sleep 0.01; done
    rm -f "$RUN/$1.pid"
}

case ${1:-} in
    up)     shift; up "$@" ;;
    bare)   shift; bare "$@" ;;
    down)   down ;;
    status) status ;;
    env)    print_env ;;
    flows)  shift; flows "$@" ;;
    render) shift; load_params; render "$@" ;;
    pod)    shift; pod "$1" ;;
    reap)   shift; reap "$1" ;;
    replace) shift; replace "$@" ;;
    restart) shift; restart "${1:-}" ;;
    exec)   shift; nsx "$@" ;;
    ping)   shift; net=$1; dst=${2:-$EXT4}; shift; [ $# -gt 0 ] && shift
            ip netns exec "$(pod_ns_of "$net")" ping "${@:--c3}" "$dst" ;;
    *)      sed -n '2,/^set -u/p' "$0" | sed '$d' | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
