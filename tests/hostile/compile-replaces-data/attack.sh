# Nothing of the data can be seen yet.
[ -e answers.txt ] && echo ESCAPED the compile step sees the data
cat >run.sh <<'SCRIPT'
[ "$(cat answers.txt)" = "the real answers" ] || echo ESCAPED forged: $(cat answers.txt)
[ "$(cat secret.txt)" = "the real secret" ] || echo ESCAPED forged: $(cat secret.txt)
[ -L secret.txt ] && echo ESCAPED it is a link
echo held
SCRIPT
echo forged >answers.txt
chmod 0 answers.txt
ln -s /etc/passwd secret.txt
mkdir -p secret.txt/below 2>/dev/null
exit 0
