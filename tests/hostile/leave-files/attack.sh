for place in /box /tmp /dev/shm /var/tmp /run /dev /; do
    [ -e $place/left ] && echo ESCAPED found $place/left
    { echo left >$place/left; } 2>/dev/null
    { ln -s / $place/left-link; mkdir -p $place/left-directory; } 2>/dev/null
    chmod 0 $place/left-directory 2>/dev/null
done
echo held
