echo 'ls | wc -l >/dev/null; echo held' >run.sh
i=0
name=$(printf %0200d 0)
while [ $i -lt 400 ]; do
    mkdir $name && cd $name || exit 1
    i=$((i + 1))
done
cd /box || exit 1
mkdir many && cd many || exit 1
seq -f file-%.0f 1 5000 | xargs touch
chmod 0 .
exit 0
