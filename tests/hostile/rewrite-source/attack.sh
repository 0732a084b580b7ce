# The first words of this file are looked for by the next run.
[ "$(head -c 20 /box/attack.sh)" = "# The first words of" ] || echo ESCAPED it was changed
[ "$(ls /box | wc -l)" = 2 ] || echo ESCAPED there are more files: $(ls /box)
chmod 777 /box/attack.sh 2>/dev/null
cp /box/attack.sh /tmp/copy
echo forged >/box/attack.sh
ln /tmp/copy /tmp/other
mv /tmp/copy /box/attack.sh
rm -f /box/hostile.h
mkdir /box/hostile.h /box/more
echo held
exit
