cat >run.sh <<'SCRIPT'
for name in shadow secret root proc sibling; do
    cat $name 2>/dev/null && echo ESCAPED read $name
done
ls up/etc/shadow up@STATE@ 2>/dev/null && echo ESCAPED looked outside
echo forged 2>/dev/null >canary && echo ESCAPED wrote to the canary
echo held
SCRIPT
ln -s /etc/shadow shadow
ln -s @SECRET_FILE@ secret
ln -s /proc/1/root@SECRET_FILE@ root
ln -s /proc/1/environ proc
ln -s ../compile-leaves-links-1/attack.sh sibling
ln -s ../../../../.. up
ln -s @CANARY@ canary
exit 0
