#include "hostile.h"
static struct sockaddr_in place(int uid, const char *host)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(uid % 50000 + 9000))};
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}
int main(void)
{
    struct sockaddr_in any = place((int)getuid(), "0.0.0.0");
    int stream = socket(AF_INET, SOCK_STREAM, 0), packets = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (bind(stream, (void *)&any, sizeof any) == 0)
        listen(stream, 5);
    bind(packets, (void *)&any, sizeof any);
    for (double start = now_s(); now_s() < start + 0.4; usleep(2000))
        for (int uid = @FIRST_UID@; uid <= @LAST_UID@; uid++) {
            char byte;
            struct sockaddr_in other = place(uid, "127.0.0.1");
            if (uid == (int)getuid())
                continue;
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            if (connect(fd, (void *)&other, sizeof other) == 0)
                ESCAPED("met the run of user %d", uid);
            close(fd);
            sendto(packets, "x", 1, MSG_NOSIGNAL, (void *)&other, sizeof other);
            if (recv(packets, &byte, 1, 0) > 0)
                ESCAPED("heard from another run");
        }
    HELD();
    return 0;
}
