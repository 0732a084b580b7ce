cd /box || exit 1
[ -e output ] && echo ESCAPED the last run is still here
for name in output stdout stderr core result.txt; do
    mkfifo $name
done
ln -s /etc/passwd answer
ln -s @CANARY@ usage
ln -s /dev/zero log
ln -sf /dev/zero attack.sh
echo forged 2>/dev/null >usage
mkfifo /tmp/fifo /dev/shm/fifo
echo held
