for place in /box /tmp /dev/shm; do
    for i in 1 2 3 4 5; do
        head -c 3000000 /dev/zero >$place/$i || exit 1
    done
done
echo ESCAPED 45 million bytes
