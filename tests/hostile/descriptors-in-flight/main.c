/* A descriptor in a message is none of the table's; chains of sockets in each other's messages. */
#include "hostile.h"
#include <sys/timerfd.h>

static int send_all(int socket, const int *fds, int count)
{
    char control[CMSG_SPACE(253 * sizeof(int))] = {0};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
    return (int)sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void work(int number)
{
    double end = now_s() + 0.7;
    (void)number;
    while (now_s() < end) {
        int pair[2], fds[100], count = 0, sent = 0;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            break;
        while (count < 100 && (fds[count] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0)
            count++;
        if (count > 0)
            sent = send_all(pair[0], fds, count);
        while (count > 0)
            close(fds[--count]);
        send_all(pair[0], &pair[1], 1); /* keeps itself alive: garbage for the collector */
        close(pair[0]);
        close(pair[1]);
        if (sent < 0)
            usleep(1000);
    }
}

int main(void)
{
    in_children(8, work);
    HELD();
    return 0;
}
