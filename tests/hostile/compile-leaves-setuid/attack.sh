gcc -o program main.c && chmod 06755 program && chmod 0711 . && mkdir -m 0 closed
chown 0:0 program 2>/dev/null && echo ESCAPED chown >&2
mknod null c 1 3 2>/dev/null && echo ESCAPED mknod >&2
exit 0
