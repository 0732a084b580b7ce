cat >run.sh <<'SCRIPT'
[ -e /tmp/alive ] && echo ESCAPED what the compile step put in /tmp is there
before=$(cat /box/alive)
sleep 0.1
[ "$before" = "$(cat /box/alive)" ] || echo ESCAPED the process of the compile step writes on
[ -n "$before" ] && echo held
SCRIPT
setsid sh -c 'trap "" TERM HUP INT; while :; do echo x | tee -a /tmp/alive >>/box/alive; done' \
    >/dev/null 2>&1 </dev/null &
while [ ! -s /box/alive ]; do sleep 0.01; done
exit 0
