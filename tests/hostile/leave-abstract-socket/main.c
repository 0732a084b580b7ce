#include "hostile.h"
int main(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, "\0left", 5);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 5;
    /* Sockets that hold each other outlive their processes until the kernel's collector comes by. */
    int own = socket(AF_UNIX, SOCK_DGRAM, 0), probe = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (connect(probe, (void *)&address, length) == 0)
        ESCAPED("the socket of the last run takes connections");
    if (bind(own, (void *)&address, length) < 0) {
        ESCAPED("the name is still taken");
        return 1;
    }
    connect(own, (void *)&address, length);
    struct iovec data = {"x", 1};
    int both[2] = {own, probe};
    char space[CMSG_SPACE(sizeof both)] = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space,
                             .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof both);
    memcpy(CMSG_DATA(head), both, sizeof both);
    if (sendmsg(own, &message, 0) < 0)
        return 1;
    HELD();
    return 0;
}
