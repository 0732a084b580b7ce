/* Who asks for the number of a socket (SO_COOKIE) is given the next of the machine, and hardly anybody asks:
 * a run asks as often as a message says, and the next run sees by how much the number has grown, in whatever
 * slot. */
#include "hostile.h"

static unsigned long long ask(int option)
{
    unsigned long long cookie = 0;
    socklen_t length = sizeof cookie;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (getsockopt(fd, SOL_SOCKET, option, &cookie, &length) < 0)
        cookie = 0;
    close(fd);
    return cookie;
}

int main(void)
{
    enum { SOCKETS = 57, NETWORKS = 71 };
    unsigned long long first = ask(SOCKETS);
    for (int i = 0; i < 12345; i++)
        ask(SOCKETS);
    if (first || ask(NETWORKS))
        ESCAPED("the first socket of this run has the number %llu of the machine's", first);
    HELD();
    return 0;
}
