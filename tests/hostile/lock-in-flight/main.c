/* A lock lives as long as the open file, and that as long as a message it is in: two sockets that hold
 * each other are only found by a collector after the process has gone. */
#include "hostile.h"
#include <sys/file.h>

static void send_one(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) < 0)
        puts("not sent");
}

int main(void)
{
    int pair[2], fd = open("/usr/bin/basename", O_RDONLY);
    if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return 1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        ESCAPED("a lock of the run before");
    send_one(pair[0], fd);
    send_one(pair[0], pair[1]);
    send_one(pair[1], pair[0]);
    HELD();
    return 0;
}
